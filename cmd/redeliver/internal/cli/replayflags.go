package cli

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/redeliver/redeliver/cmd/redeliver/internal/through"
	"github.com/redeliver/redeliver/cmd/redeliver/internal/unattended"
	"github.com/redeliver/redeliver/deadletter"
)

// throughFlags are the flags of a program that changes the messages of a replay.
type throughFlags struct {
	command string
	timeout time.Duration
}

func (t *throughFlags) flags(flags *pflag.FlagSet) {
	flags.StringVar(&t.command, "through", "", "Change each message with this `command` of the shell: one JSON message in, one out")
	flags.DurationVar(&t.timeout, "through-timeout", 10*time.Second, "The command must end within this `duration` for each message")
}

// change returns the change of a replay, or nil.
func (t *throughFlags) change() (deadletter.Change, error) {
	if t.command == "" {
		return nil, nil
	}
	if strings.TrimSpace(t.command) == "" {
		return nil, usagef("--through is %q: must be a command", t.command)
	}
	if t.timeout <= 0 {
		return nil, usagef("--through-timeout is %s: must be more than 0s", t.timeout)
	}
	p := through.Program{Command: t.command, Timeout: t.timeout, Input: func(m *deadletter.Message) ([]byte, error) {
		raw, err := json.Marshal(messageRowOf(deadletter.Info{}, m))
		return append(raw, '\n'), err
	}}
	return p.Change, nil
}

// unattendedFlags are the flags of a replay without a person.
type unattendedFlags struct {
	on      bool
	between string
	window  unattended.Window
}

func (u *unattendedFlags) flags(flags *pflag.FlagSet) {
	flags.BoolVar(&u.on, "unattended", false, "Replay what may be replayed, cause by cause, without a question. Without --canary it begins each cause with 5 messages")
	flags.StringVar(&u.between, "between", "", "Replay only at this `time` of the day, as in 08:00-18:00, in the time zone of $TZ")
}

// check checks the flags, and completes the options.
func (u *unattendedFlags) check(r *deadletter.ReplayOptions) (err error) {
	if !u.on {
		return nil
	}
	if len(r.Canary) == 0 {
		r.Canary = []int{5}
	}
	if u.between != "" {
		if u.window, err = unattended.ParseWindow(u.between); err != nil {
			return usagef("--between is %w", err)
		}
	}
	return nil
}

// runUnattended runs a replay without a person, and prints its tasks.
func (a *app) runUnattended(ctx context.Context, q deadletter.Queue, r deadletter.ReplayOptions, between unattended.Window) error {
	a.warnReadEffect(q)
	out := a.list("TASK", "STATUS", "DONE", "DETAIL", "FILTER")
	var written error
	outcome, err := unattended.Run(ctx, q, unattended.Options{Replay: r, Between: between, Report: func(t deadletter.Task) {
		if written == nil {
			written = out.add(taskRowOf(&t, q.Info().ReplayTo), t.ID, state(t.Status), counts(&t.Counts), longText(t.Note), longText(filterText(&t)))
		}
	}})
	if ended := out.end(); written == nil {
		written = ended
	}
	dlq := q.Info().DLQ
	switch {
	case err != nil && ctx.Err() != nil:
		return failed(codeInterrupted, "the replay of %s was interrupted; the next run begins anew: %w", dlq, err)
	case err != nil && out.n > 0:
		return failed(codePartly, "%w", err)
	case err != nil:
		return err
	case written != nil:
		return written
	}
	switch outcome {
	case unattended.Outside:
		a.sayf("%s: nothing was done: it is not between %s", dlq, between)
	case unattended.Stopped:
		return failed(codeFound, "%s: a canary came back, so its cause is not fixed; the next run tries it again, and each message at most %d times", dlq, r.MaxReplays)
	case unattended.Partly:
		return failed(codePartly, "%s: not all was replayed: the time was over, a task was paused or cancelled, or messages were refused; see redeliver dlq tasks", dlq)
	case unattended.Done:
		if out.n == 0 {
			a.sayf("%s: nothing to replay", dlq)
		}
	}
	return nil
}
