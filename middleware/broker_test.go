package middleware_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/redelivertest"
)

const (
	ms     = time.Millisecond
	second = time.Second
	minute = time.Minute
	hour   = time.Hour
)

var (
	errHandler = errors.New("the bank is closed")
	errBroker  = errors.New("the broker is down")
)

// events is a sink that keeps its events.
type events struct {
	mu  sync.Mutex
	all []redeliver.Event
}

func (s *events) Event(e redeliver.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, e)
}

func (s *events) list() []redeliver.Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.all)
}

// kinds returns the types of events, in order.
func kinds(events []redeliver.Event) (all []string) {
	for _, e := range events {
		all = append(all, fmt.Sprintf("%T", e)[len("redeliver."):])
	}
	return all
}

// only returns the events of one type.
func only[E redeliver.Event](events []redeliver.Event) (found []E) {
	for _, e := range events {
		if e, ok := e.(E); ok {
			found = append(found, e)
		}
	}
	return found
}

// reader reads the topic orders like a Router, but one message after another.
type reader struct {
	*redelivertest.Subscription

	b        *redelivertest.Broker
	client   *redelivertest.Client
	reported *events
	out      <-chan *message.Message
}

func read(t *testing.T, b *redelivertest.Broker, cfg redelivertest.Config) *reader {
	t.Helper()
	reported := &events{}
	cfg.Group, cfg.Sink = "billing", reported
	c := b.Open(cfg)
	out, err := c.Subscriber().Subscribe(t.Context(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	return &reader{c.Subscription("orders"), b, c, reported, out}
}

// deliver publishes a message and returns it as the subscriber delivers it.
func (r *reader) deliver(id string) *message.Message {
	r.b.Publish("orders", published(id))
	return r.next()
}

// next returns the next message as the subscriber delivers it.
func (r *reader) next() *message.Message { return <-r.out }

// published returns a message as it is published.
func published(id string) *message.Message {
	msg := message.NewMessage(id, []byte("payload"))
	msg.Metadata.Set("tenant", "acme")
	return msg
}

// answer is the result of a middleware.
type answer struct {
	produced []*message.Message
	err      error
}

// run handles msg in a goroutine, like a Router, and sends the result.
func run(h message.HandlerFunc, msg *message.Message) <-chan answer {
	done := make(chan answer, 1)
	go func() {
		produced, err := h(msg)
		done <- answer{produced, err}
	}()
	return done
}

func succeed(*message.Message) ([]*message.Message, error) { return nil, nil }

func noPublish(h message.NoPublishHandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) { return nil, h(msg) }
}

// settled returns "acked", "nacked" or "open".
func settled(msg *message.Message) string {
	select {
	case <-msg.Acked():
		return "acked"
	case <-msg.Nacked():
		return "nacked"
	default:
		return "open"
	}
}
