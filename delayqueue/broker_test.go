package delayqueue_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/delayqueue"
)

// broker is a Scheduler, DeadLetters and Sink that writes down what it is told,
// in order.
type broker struct {
	schedule, bury func(ctx context.Context, try int) error // nil takes everything

	mu    sync.Mutex
	log   []string
	tries int
	times []time.Time
	wrote []redeliver.State
	told  []redeliver.Event
}

func (b *broker) write(ctx context.Context, where string, st redeliver.State, answer func(context.Context, int) error) (string, error) {
	b.mu.Lock()
	b.tries++
	try := b.tries
	b.times = append(b.times, time.Now())
	b.mu.Unlock()
	if answer != nil {
		if err := answer(ctx, try); err != nil {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.log = append(b.log, where+" refuses")
			return where, err
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.log = append(b.log, where+" confirms")
	b.wrote = append(b.wrote, st)
	return where, nil
}

func (b *broker) Schedule(ctx context.Context, _ *delayqueue.Delivery, st *redeliver.State) (string, error) {
	return b.write(ctx, "level", *st, b.schedule)
}

func (b *broker) DeadLetter(ctx context.Context, _ *delayqueue.Delivery, st *redeliver.State) (string, error) {
	return b.write(ctx, "dlq", *st, b.bury)
}

func (b *broker) Event(e redeliver.Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.told = append(b.told, e)
	name := fmt.Sprintf("%T", e)[len("redeliver."):]
	if c, ok := e.(redeliver.SubscriptionChanged); ok {
		name = string(c.Change)
	}
	b.log = append(b.log, name)
}

// events are all events of one kind.
func events[E redeliver.Event](b *broker) (found []E) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range b.told {
		if e, ok := e.(E); ok {
			found = append(found, e)
		}
	}
	return found
}

// seen is the log so far.
func (b *broker) seen() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]string(nil), b.log...)
}

type record struct{}

func (record) Message() (*message.Message, error) {
	return message.NewMessage("orders/0/1", []byte("payload")), nil
}

// subscribe is a subscription at b, and a message of it below session.
func subscribe(b *broker, session context.Context) (*delayqueue.Subscription, *delayqueue.Delivery) { //nolint:revive // b is what it is about
	sub := &delayqueue.Subscription{
		Origin: "orders", Group: "billing", Policy: redeliver.Policy{}.WithDefaults(),
		Scheduler: b, DeadLetters: b, Sink: b,
	}
	return sub, deliver(sub, session)
}

func deliver(sub *delayqueue.Subscription, session context.Context) *delayqueue.Delivery { //nolint:revive // as above
	d := &delayqueue.Delivery{Sub: sub, Record: record{}, ID: "orders/0/1", Source: redeliver.Source{Known: true, Offset: 1}}
	d.Begin(session)
	return d
}

// later is a decision to retry d.
func later(t *testing.T, sub *delayqueue.Subscription, d *delayqueue.Delivery) *redeliver.Decision {
	t.Helper()
	dec := sub.Decide(d.State(), errOurs, time.Now())
	if dec.Action != redeliver.RetryLater {
		t.Fatalf("the policy says %s", dec.Action)
	}
	return dec
}
