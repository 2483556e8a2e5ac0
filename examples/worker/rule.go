package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
)

// rule returns the result of an attempt of a message.
type rule func(msg *message.Message, attempt int) error

var errByRule = errors.New("failed as --fail says")

// rules are the rules without a parameter.
var rules = map[string]rule{
	"never":     func(*message.Message, int) error { return nil },
	"always":    func(*message.Message, int) error { return errByRule },
	"permanent": func(*message.Message, int) error { return redeliver.Permanent(errByRule) },
	// It ignores its context, as some real handlers do, and so exceeds its timeout.
	"hang":  func(*message.Message, int) error { select {} },
	"panic": func(*message.Message, int) error { panic("panicked by the rule") },
	// End the process without a commit, flush or close.
	"exit": func(*message.Message, int) error {
		os.Exit(exitFailed)
		return nil
	},
}

// parseRule parses a rule of --fail.
func parseRule(text string) (rule, error) {
	if name, ok := strings.CutPrefix(text, "header:"); ok {
		if name == "" {
			return nil, fmt.Errorf("is %q: must be header:NAME with the name of a header", text)
		}
		return headerRule(name), nil
	}
	return parsePlain(text)
}

// parsePlain parses a rule other than header:NAME.
func parsePlain(text string) (rule, error) {
	if number, ok := strings.CutPrefix(text, "attempt<"); ok {
		n, err := strconv.Atoi(number)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("is %q: must be attempt<N with a whole number of 1 or more", text)
		}
		return func(_ *message.Message, attempt int) error {
			if attempt < n {
				return fmt.Errorf("%w: attempts 1 to %d fail, and this is %d", errByRule, n-1, attempt)
			}
			return nil
		}, nil
	}
	if r, ok := rules[text]; ok {
		return r, nil
	}
	return nil, fmt.Errorf("is %q: must be never, always, permanent, attempt<N, header:NAME, hang, panic or exit", text)
}

// headerRule returns a rule that follows the message's own header. A message without the header succeeds. A message
// with an unreadable header is dead-lettered.
func headerRule(name string) rule {
	return func(msg *message.Message, attempt int) error {
		text, ok := msg.Metadata[name]
		if !ok {
			return nil
		}
		r, err := parsePlain(text)
		if err != nil {
			return redeliver.Permanent(fmt.Errorf("header %s %w", name, err))
		}
		return r(msg, attempt)
	}
}

// answer returns a handler that works for the time work and then follows the rule.
func answer(r rule, work time.Duration) func(*message.Message) error {
	return func(msg *message.Message) error {
		if work > 0 {
			select {
			case <-time.After(work):
			case <-msg.Context().Done():
				return msg.Context().Err()
			}
		}
		state, _ := redeliver.FromContext(msg.Context())
		return r(msg, state.Attempt())
	}
}
