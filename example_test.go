package redeliver_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redeliver/redeliver"
)

var (
	errNoSuchCard = errors.New("no such card")
	errBusy       = errors.New("bank is busy")
)

// at is the time of all examples.
var at = time.Date(2026, 3, 14, 15, 0, 0, 0, time.UTC)

func charge(card string) error {
	switch card {
	case "unknown":
		return errNoSuchCard
	case "busy":
		return errBusy
	default:
		return nil
	}
}

// A handler answers with an error value, and the policy does the rest.
func Example() {
	handle := func(card string) error {
		switch err := charge(card); {
		case errors.Is(err, errNoSuchCard):
			return redeliver.Permanent(err) // DLQ now
		case errors.Is(err, errBusy):
			return redeliver.RetryAfter(err, 90*time.Second) // the dependency named the time
		default:
			return err // the policy decides
		}
	}
	policy := redeliver.Policy{MaxRetries: 3, Backoff: redeliver.RocketMQ()}
	for _, card := range []string{"good", "unknown", "busy"} {
		d := policy.Decide(redeliver.State{ID: card}, handle(card), at)
		fmt.Printf("%s: %s, wait %s, reason %q\n", card, d.Action, d.Delay, d.State.Reason)
	}
	// Output:
	// good: commit, wait 0s, reason ""
	// unknown: dead-letter, wait 0s, reason "permanent"
	// busy: retry later, wait 1m30s, reason ""
}

// A policy can be tried without a broker: a decision is a function of the state, the error and the time.
func ExamplePolicy_Decide() {
	policy := redeliver.Policy{MaxRetries: 3, Backoff: redeliver.Steps(time.Second, 5*time.Second, 30*time.Second)}
	state, now := redeliver.State{ID: "orders/0/7"}, at
	for {
		d := policy.Decide(state, errBusy, now)
		fmt.Printf("attempt %d failed: %s", state.Attempt(), d.Action)
		if d.Action == redeliver.ActionDeadLetter {
			fmt.Printf(", %s\n", d.State.Reason)
			return
		}
		fmt.Printf(" at %s\n", d.State.Due.Format(time.TimeOnly))
		state, now = d.State, d.State.Due
	}
	// Output:
	// attempt 1 failed: retry later at 15:00:01
	// attempt 2 failed: retry later at 15:00:06
	// attempt 3 failed: retry later at 15:00:36
	// attempt 4 failed: dead-letter, exhausted
}

// Kinds of errors may have their own backoff and retries.
func ExamplePolicy_classify() {
	policy := redeliver.Policy{
		Classify: func(err error) redeliver.Class {
			switch {
			case errors.Is(err, errNoSuchCard):
				return redeliver.Class{Kind: redeliver.KindPermanent}
			case errors.Is(err, errBusy):
				return redeliver.Class{Backoff: redeliver.Fixed(time.Minute), MaxRetries: 60}
			default:
				return redeliver.Class{}
			}
		},
	}
	for _, err := range []error{errNoSuchCard, errBusy} {
		d := policy.Decide(redeliver.State{}, err, at)
		fmt.Printf("%s: %s %s\n", err, d.Action, d.Delay)
	}
	// Output:
	// no such card: dead-letter 0s
	// bank is busy: retry later 1m0s
}

// All problems of a policy are reported at once, at the start.
func ExamplePolicy_Validate() {
	policy := redeliver.Policy{MaxRetries: 2, Immediate: 5, Levels: []time.Duration{time.Minute, time.Second}}
	err := policy.Validate("Policy")
	if refused, ok := errors.AsType[*redeliver.ConfigError](err); ok {
		for _, problem := range refused.Problems {
			fmt.Println(problem)
		}
	}
	// Output:
	// Policy.Immediate is 5: must be from 0 to MaxRetries, 2: immediate tries are retries
	// Policy.Levels[1] is 1s: must be longer than the level before it, 1m0s
}

func ExamplePermanent() {
	err := fmt.Errorf("order 7: %w", redeliver.Permanent(errNoSuchCard))
	fmt.Println(err)
	fmt.Println(errors.Is(err, redeliver.ErrPermanent), errors.Is(err, errNoSuchCard))
	// Output:
	// order 7: no such card
	// true true
}

func ExampleFromContext() {
	handler := func(ctx context.Context) {
		if state, ok := redeliver.FromContext(ctx); ok {
			fmt.Printf("attempt %d of %s, last time: %s\n", state.Attempt(), state.ID, state.Error)
		}
	}
	handler(redeliver.NewContext(context.Background(), redeliver.State{ID: "orders/0/7", Attempts: 2, Error: "bank is busy"}))
	// Output: attempt 3 of orders/0/7, last time: bank is busy
}
