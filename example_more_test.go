package redeliver_test

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/observe"
)

// delays prints the waits before the first retries, without jitter.
func delays(b redeliver.Backoff, n int) {
	for i := range n {
		d, ok := b.Delay(i, 0)
		if !ok {
			fmt.Print("no more")
			break
		}
		fmt.Print(d, " ")
	}
	fmt.Println()
}

func ExampleFixed() {
	delays(redeliver.Fixed(30*time.Second), 3)
	// Output: 30s 30s 30s
}

// The last delay is repeated.
func ExampleSteps() {
	delays(redeliver.Steps(time.Second, time.Minute), 4)
	// Output: 1s 1m0s 1m0s 1m0s
}

func ExampleExponential() {
	delays(redeliver.Exponential(), 8)
	// Output: 1s 2s 4s 8s 16s 32s 1m0s 1m0s
}

func ExampleExponentialBackoff() {
	delays(redeliver.ExponentialBackoff{Base: 100 * time.Millisecond, Max: time.Second}, 6)
	// Output: 100ms 200ms 400ms 800ms 1s 1s
}

// The jitter is a random share of the base, here 0 and a half.
func ExampleExponentialBackoff_Delay() {
	b := redeliver.ExponentialBackoff{Base: 2 * time.Second, Max: time.Minute}
	for _, draw := range []float64{0, 0.5} {
		d, _ := b.Delay(3, draw)
		fmt.Println(d)
	}
	// Output:
	// 16s
	// 17s
}

func ExampleRocketMQ() {
	delays(redeliver.RocketMQ(), 16)
	// Output: 10s 30s 1m0s 2m0s 3m0s 4m0s 5m0s 6m0s 7m0s 8m0s 9m0s 10m0s 20m0s 30m0s 1h0m0s 2h0m0s
}

// Each decision gets a new BackOff, because those of cenkalti/backoff have state.
func ExampleFromBackOff() {
	delays(redeliver.FromBackOff(func() backoff.BackOff { return backoff.NewConstantBackOff(5 * time.Second) }), 2)
	// Output: 5s 5s
}

// The dependency has named the time of the next request.
func ExampleRetryAfter() {
	d := redeliver.Policy{}.Decide(redeliver.State{}, redeliver.RetryAfter(errBusy, 90*time.Second), at)
	fmt.Println(d.Action, "in", d.Delay)
	// Output: retry later in 1m30s
}

// A postponement is no attempt.
func ExamplePostpone() {
	d := redeliver.Policy{Backoff: redeliver.Fixed(time.Minute)}.Decide(redeliver.State{}, redeliver.Postpone(errBusy), at)
	fmt.Printf("again in %s, %d attempts\n", d.Delay, d.State.Attempts)
	// Output: again in 1m0s, 0 attempts
}

func ExampleReject() {
	d := redeliver.Policy{}.Decide(redeliver.State{}, redeliver.Reject("no order with a negative amount"), at)
	fmt.Println(d.Action, d.State.Reason)
	// Output: dead-letter rejected
}

// errors.Is finds the user's error and redeliver's.
func ExamplePermanent_is() {
	err := fmt.Errorf("charging order 17: %w", redeliver.Permanent(errNoSuchCard))
	fmt.Println(err)
	fmt.Println(errors.Is(err, errNoSuchCard), errors.Is(err, redeliver.ErrPermanent))
	// Output:
	// charging order 17: no such card
	// true true
}

// With MaxAge a message stops when a retry would begin too late to be of use.
func ExamplePolicy_maxAge() {
	policy := redeliver.Policy{MaxRetries: 5, Backoff: redeliver.Fixed(time.Hour), MaxAge: 90 * time.Minute}
	state := redeliver.State{Source: redeliver.Source{Known: true, Timestamp: at}}
	for now := at; ; now = state.Due {
		d := policy.Decide(state, errBusy, now)
		fmt.Println(now.Format(time.TimeOnly), d.Action)
		if d.Action == redeliver.ActionDeadLetter {
			fmt.Println(d.State.Reason)
			return
		}
		state = d.State
	}
	// Output:
	// 15:00:00 retry later
	// 16:00:00 dead-letter
	// expired
}

// Events go to several sinks: here to a log that is set to warnings.
func ExampleNewSlogSink() {
	handler := slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{
		Level: slog.LevelWarn,
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		},
	})
	sink := observe.Sinks(redeliver.NewSlogSink(slog.New(handler)))
	sink.Event(redeliver.SubscriptionChanged{Origin: "orders", Group: "billing", Change: redeliver.ChangeAssigned})
	sink.Event(redeliver.SubscriptionChanged{
		Origin: "orders", Group: "billing", Change: redeliver.ChangeIntakePaused, Detail: "writing to orders.billing.dlq", Err: errors.New("disk full"),
	})
	// Output: level=WARN msg="subscription: intake paused" origin=orders group=billing detail="writing to orders.billing.dlq" error="disk full"
}
