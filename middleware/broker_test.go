package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/delayqueue"
	"github.com/redeliver/redeliver/middleware"
)

var (
	errHandler = errors.New("the bank is closed")
	errBroker  = errors.New("the broker is down")
)

// write is one message as the broker took it.
type write struct {
	where string // "level" or "dlq"
	state redeliver.State
	body  string // of the record
	at    time.Time
}

// broker is a Scheduler, DeadLetters and Sink that writes down what it is told.
type broker struct {
	refuse func(ctx context.Context, where string) error // nil takes everything

	mu   sync.Mutex
	log  []string // confirmations, events and acks in their order
	took []write
	told []redeliver.Event
}

func (b *broker) notef(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.log = append(b.log, fmt.Sprintf(format, args...))
}

func (b *broker) write(ctx context.Context, where string, d *delayqueue.Delivery, st redeliver.State) (string, error) {
	if b.refuse != nil {
		if err := b.refuse(ctx, where); err != nil {
			return where, err
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.log = append(b.log, where+" confirms")
	payload := ""
	if pristine, err := d.Record.Message(); err == nil {
		payload = string(pristine.Payload)
	}
	b.took = append(b.took, write{where, st, payload, time.Now()})
	return where, nil
}

func (b *broker) Schedule(ctx context.Context, d *delayqueue.Delivery, st *redeliver.State) (string, error) {
	return b.write(ctx, "level", d, *st)
}

func (b *broker) DeadLetter(ctx context.Context, d *delayqueue.Delivery, st *redeliver.State) (string, error) {
	return b.write(ctx, "dlq", d, *st)
}

func (b *broker) Event(e redeliver.Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.told = append(b.told, e)
	b.log = append(b.log, fmt.Sprintf("%T", e)[len("redeliver."):])
}

func (b *broker) seen() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]string(nil), b.log...)
}

func (b *broker) writes() []write {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]write(nil), b.took...)
}

// only returns the one message that was written.
func (b *broker) only(t *testing.T, where string) redeliver.State {
	t.Helper()
	took := b.writes()
	if len(took) != 1 || took[0].where != where || took[0].body != "payload" {
		t.Fatalf("written: %+v; want one message on the %s", took, where)
	}
	return took[0].state
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

// record is what the broker delivered: every message of it is a new one.
type record struct{}

func (record) Message() (*message.Message, error) {
	msg := message.NewMessage("orders/0/1", []byte("payload"))
	msg.Metadata.Set("tenant", "acme")
	return msg, nil
}

// subscribe is a subscription at b with a policy.
func subscribe(b *broker, p redeliver.Policy) *delayqueue.Subscription {
	return &delayqueue.Subscription{
		Origin: "orders", Group: "billing", Policy: p.WithDefaults(), Scheduler: b, DeadLetters: b, Sink: b,
	}
}

// deliver is a message of sub as its subscriber delivers it.
func deliver(session context.Context, sub *delayqueue.Subscription) *message.Message {
	d := &delayqueue.Delivery{Sub: sub, Record: record{}, ID: "orders/0/1", Source: redeliver.Source{Known: true, Offset: 1}}
	d.Begin(session)
	msg, _ := d.Record.Message()
	msg.SetContext(d)
	return msg
}

// answer is how a message left the middleware.
type answer struct {
	produced []*message.Message
	err      error
}

// handle runs one message of sub through Retry around h.
func handle(t *testing.T, sub *delayqueue.Subscription, h message.HandlerFunc) answer {
	t.Helper()
	produced, err := middleware.Retry()(h)(deliver(t.Context(), sub))
	return answer{produced, err}
}

// returns is a handler with one answer.
func returns(err error) message.HandlerFunc {
	return func(*message.Message) ([]*message.Message, error) { return nil, err }
}

// is tells how a message is settled: "acked", "nacked" or "open".
func is(msg *message.Message) string {
	select {
	case <-msg.Acked():
		return "acked"
	case <-msg.Nacked():
		return "nacked"
	default:
		return "open"
	}
}

// pristine is the message as the broker delivered it.
func pristine() *message.Message {
	msg, _ := record{}.Message()
	return msg
}
