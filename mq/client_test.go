package mq_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/doctor"
	"github.com/redeliver/redeliver/mq"
)

// fakeBroker is a broker without operations. Its subscriptions end when release is closed.
type fakeBroker struct {
	release                chan struct{}
	begun, closing, closed bool
}

func (b *fakeBroker) Options() mq.BrokerOptions {
	return mq.BrokerOptions{
		Name: "fake", Subscription: "group billing", DrainTimeout: 10 * time.Second, SendTimeout: 5 * time.Second,
		Unsupported: map[string]string{"Pause": "it never stops"},
	}
}

func (b *fakeBroker) Subscribe(_ context.Context, topic string) (<-chan *message.Message, func(context.Context), error) {
	if topic == "" {
		return nil, nil, errors.New("no topic")
	}
	messages := make(chan *message.Message)
	return messages, func(ctx context.Context) {
		b.begun = true
		<-ctx.Done()
		<-b.release
		close(messages)
	}, nil
}
func (b *fakeBroker) Initialize(string) error                   { return nil }
func (b *fakeBroker) Publish(string, ...*message.Message) error { return nil }
func (b *fakeBroker) Plan(_ context.Context, t string) (*mq.Plan, error) {
	return &mq.Plan{Origin: t}, nil
}
func (b *fakeBroker) BeginClose() { b.closing = true }
func (b *fakeBroker) Disconnect() { b.closed = true }

// Close waits for the subscribers, at most until its context ends; a context that had already ended bounds it by both timeouts.
func TestCloseIsBounded(t *testing.T) {
	for name, c := range map[string]struct {
		ends time.Duration // of the context, from the call; 0: before it
		want time.Duration
	}{"a context that ends": {3 * time.Second, 3 * time.Second}, "one that had ended": {0, 15 * time.Second}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := &fakeBroker{release: make(chan struct{})}
				client := mq.NewClient(b)
				if _, err := client.Subscriber().Subscribe(t.Context(), "orders"); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				ctx, cancel := context.WithTimeout(t.Context(), max(c.ends, 1))
				defer cancel()
				if c.ends == 0 {
					cancel()
				}
				began := time.Now()
				err := client.Close(ctx)
				if took := time.Since(began); took != c.want || !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "1 of 1 subscribers have not drained, group billing") {
					t.Errorf("it returns after %s, want %s: %v", took, c.want, err)
				}
				if !b.begun || !b.closing || b.closed {
					t.Errorf("the broker is %+v", b)
				}
				if err := client.Close(t.Context()); err != nil {
					t.Errorf("a second Close returns %v", err)
				}
				close(b.release)
				synctest.Wait()
				if !b.closed {
					t.Error("Close does not continue in the background")
				}
			})
		})
	}
}

// A closed subscriber refuses another Subscribe, and an error of the broker is the error of Subscribe.
func TestSubscribeRefuses(t *testing.T) {
	b := &fakeBroker{release: make(chan struct{})}
	client := mq.NewClient(b)
	sub := client.Subscriber()
	if out, err := sub.Subscribe(t.Context(), ""); err == nil || out != nil {
		t.Errorf("no topic: %v, %v", out, err)
	}
	if err := sub.Close(); err != nil {
		t.Fatal(err)
	}
	if out, err := sub.Subscribe(t.Context(), "orders"); !errors.Is(err, mq.ErrClosed) || out != nil {
		t.Errorf("a closed one: %v, %v", out, err)
	}
}

// An operation that a broker does not have says which, and why.
func TestUnsupportedOperations(t *testing.T) {
	o := mq.NewClient(&fakeBroker{}).Operations()
	ctx := t.Context()
	for name, do := range map[string]func() error{
		"DeadLetters":      func() error { _, err := o.DeadLetters(ctx, mq.DeadLetterConfig{}); return err },
		"DeadLetterQueues": func() error { _, err := o.DeadLetterQueues(ctx); return err },
		"Pause":            func() error { return o.Pause(ctx, "orders", "why") },
		"PauseNew":         func() error { return o.PauseNew(ctx, "orders", "why") },
		"Resume":           func() error { return o.Resume(ctx, "orders") },
		"Paused":           func() error { _, err := o.Paused(ctx, "orders"); return err },
		"Doctor":           func() error { _, err := o.Doctor(ctx, "orders", doctor.Examination{}); return err },
		"Waiting":          func() error { _, err := o.Waiting(ctx, mq.WaitingConfig{}); return err },
		"WaitingLevels":    func() error { _, err := o.WaitingLevels(ctx, "orders"); return err },
		"Release":          func() error { _, err := o.Release(ctx, mq.ReleaseConfig{}); return err },
	} {
		err := do()
		if !errors.Is(err, mq.ErrUnsupported) || !strings.HasPrefix(err.Error(), "fake: "+name+" is ") {
			t.Errorf("%s returns %v", name, err)
		}
	}
	if err := o.Pause(ctx, "orders", "why"); !strings.Contains(err.Error(), "it never stops") {
		t.Errorf("the reason is missing: %v", err)
	}
}

// A broker reports the fields of a DeadLetterConfig that it does not have.
func TestUnusedFields(t *testing.T) {
	all := []string{"Group", "ReplayTo", "ReadBy", "Lease", "DeliveryLimit"}
	if ps := new(mq.DeadLetterConfig).Unused("no", all...); len(ps) > 0 {
		t.Errorf("of nothing: %v", ps)
	}
	full := mq.DeadLetterConfig{Topic: "orders", Group: "g", ReplayTo: "r", ReadBy: "b", Lease: time.Second, DeliveryLimit: 5}
	for _, field := range all {
		ps := full.Unused("it has none", field)
		if len(ps) != 1 || ps[0].Field != field || !strings.Contains(ps[0].Rule, "it has none") {
			t.Errorf("%s: %v", field, ps)
		}
	}
}

// answers records the answers of a batch.
type answers []error

func (a *answers) Answer(err error) bool {
	*a = append(*a, err)
	return len(*a) == 1
}

// Each method of a batch and of its messages gives the answer that its name says, and reports whether it counts.
func TestBatchAnswers(t *testing.T) {
	var one, all answers
	b := mq.NewBatch("orders", "billing", &all, 1, func(int) (string, context.Context, mq.Answerer) {
		return "record", redeliver.NewContext(t.Context(), redeliver.State{ID: "a", Attempts: 2}), &one
	})
	m := b.Messages[0]
	if m.Record != "record" || m.State().Attempt() != 3 || b.Origin != "orders" || b.Group != "billing" {
		t.Errorf("%+v of %+v", m, b)
	}
	if !m.Ack() || m.Retry() || m.RetryAfter(time.Minute) || m.Reject("no") || m.Answer(errors.ErrUnsupported) {
		t.Error("another answer than the first counts")
	}
	if !b.AckAll() || b.RetryAll() || b.RetryAllAfter(time.Minute) {
		t.Error("another answer for all than the first counts")
	}
	var after *redeliver.RetryAfterError
	for i, ok := range []bool{
		one[0] == nil, errors.Is(one[1], redeliver.ErrRetryRequested), errors.As(one[2], &after) && after.After == time.Minute,
		errors.Is(one[3], redeliver.ErrRejected), errors.Is(one[4], errors.ErrUnsupported),
		all[0] == nil, errors.Is(all[1], redeliver.ErrRetryRequested), errors.As(all[2], &after) && after.After == time.Minute,
	} {
		if !ok {
			t.Errorf("answer %d is wrong: %v, %v", i, one, all)
		}
	}
}
