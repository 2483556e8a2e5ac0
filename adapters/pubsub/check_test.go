package pubsub

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/redeliver/redeliver"
)

// checkConfig returns a configuration for Check.
func checkConfig(pub message.Publisher, sub message.Subscriber) Config {
	return Config{Publisher: pub, Subscriber: sub, Group: "billing", Confirms: true, MaxUnacked: NoLimit}
}

func TestCheckAcceptsReliablePubSub(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemoryBroker().member(t, "billing")
		if err := Check(t.Context(), checkConfig(m, m)); err != nil {
			t.Error(err)
		}
	})
}

// A Pub/Sub is refused with advice if it loses messages, or lets every process run every retry.
func TestCheckRefusesUnreliablePubSub(t *testing.T) {
	wire := func(t *testing.T, config gochannel.Config) Config {
		t.Helper()
		ch := gochannel.NewGoChannel(config, watermill.NopLogger{})
		t.Cleanup(func() { _ = ch.Close() })
		return checkConfig(ch, ch)
	}
	for name, c := range map[string]struct {
		config func(*testing.T) Config
		want   string
	}{
		"a late subscription misses messages": {func(t *testing.T) Config { t.Helper(); return wire(t, gochannel.Config{}) }, "before it subscribed"},
		"everybody gets everything":           {func(t *testing.T) Config { t.Helper(); return wire(t, gochannel.Config{Persistent: true}) }, "both of two Subscribes"},
		"messages with one UUID are dropped": {func(t *testing.T) Config {
			t.Helper()
			m := newMemoryBroker().member(t, "billing")
			return checkConfig(&deduplicatingPublisher{Publisher: m, seen: make(map[string]bool)}, m)
		}, "one UUID"},
		"metadata is cut": {func(t *testing.T) Config {
			t.Helper()
			m := newMemoryBroker().member(t, "billing")
			return checkConfig(changingPublisher{m, func(msg *message.Message) { msg.Metadata[StateKey] = msg.Metadata[StateKey][:255] }}, m)
		}, "metadata"},
		"the payload must be text": {func(t *testing.T) Config {
			t.Helper()
			m := newMemoryBroker().member(t, "billing")
			return checkConfig(changingPublisher{m, func(msg *message.Message) { msg.Payload = []byte(strings.ToValidUTF8(string(msg.Payload), "?")) }}, m)
		}, "payload"},
		"the UUID changes": {func(t *testing.T) Config {
			t.Helper()
			m := newMemoryBroker().member(t, "billing")
			return checkConfig(changingPublisher{m, func(msg *message.Message) { msg.UUID += "-1" }}, m)
		}, "UUID"},
		"nacked is gone": {func(t *testing.T) Config {
			t.Helper()
			m := newMemoryBroker().member(t, "billing")
			return checkConfig(m, ackingSubscriber{m})
		}, "nacked"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				err := Check(t.Context(), c.config(t))
				if !errors.Is(err, redeliver.ErrConfig) || !strings.Contains(err.Error(), c.want) {
					t.Errorf("checked: %v, want a ConfigError that says %q", err, c.want)
				}
			})
		})
	}
}

// Foreign messages count neither as received nor as duplicates.
func TestCheckIgnoresForeignMessages(t *testing.T) {
	for name, c := range map[string]struct {
		lost int // of the ten messages for two Subscribes
		want string
	}{
		"foreign messages for both of two Subscribes": {0, ""},
		"a foreign message instead of a message":      {1, "9 of 10 messages"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMemoryBroker().member(t, "billing")
				err := Check(t.Context(), checkConfig(&losingPublisher{Publisher: m, from: 2, lost: c.lost}, foreignCopies{m}))
				if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
					t.Errorf("checked: %v, want %q", err, c.want)
				}
			})
		})
	}
}

// losingPublisher loses some of the messages after the first.
type losingPublisher struct {
	message.Publisher
	from, lost int
}

func (p *losingPublisher) Publish(topic string, msgs ...*message.Message) error {
	if p.from--; p.from < 0 && p.lost > 0 {
		p.lost--
		return nil
	}
	return p.Publisher.Publish(topic, msgs...)
}

// foreignCopies is a subscriber that delivers copies of earlier messages to both Subscribes after the first of the
// ten.
type foreignCopies struct{ message.Subscriber }

func (s foreignCopies) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	in, err := s.Subscriber.Subscribe(ctx, topic)
	if err != nil {
		return nil, err
	}
	out := make(chan *message.Message)
	go func() {
		defer close(out)
		send := func(msg *message.Message) bool {
			select {
			case out <- msg:
				return true
			case <-ctx.Done():
				return false
			}
		}
		for {
			msg, ok := <-in
			if !ok || !send(msg) {
				return
			}
			if msg.UUID == "one UUID" {
				continue
			}
			for i := range 8 {
				foreign := message.NewMessage("a stranger "+string(rune('a'+i)), nil)
				if !send(foreign) {
					return
				}
			}
			break
		}
		for msg := range in {
			if !send(msg) {
				return
			}
		}
	}()
	return out, nil
}

// deduplicatingPublisher publishes each UUID once, as some brokers do.
type deduplicatingPublisher struct {
	message.Publisher
	mu   sync.Mutex
	seen map[string]bool
}

func (p *deduplicatingPublisher) Publish(topic string, msgs ...*message.Message) error {
	for _, msg := range msgs {
		p.mu.Lock()
		seen := p.seen[msg.UUID]
		p.seen[msg.UUID] = true
		p.mu.Unlock()
		if !seen {
			if err := p.Publisher.Publish(topic, msg); err != nil {
				return err
			}
		}
	}
	return nil
}

// changingPublisher changes the messages that it publishes.
type changingPublisher struct {
	message.Publisher
	change func(*message.Message)
}

func (p changingPublisher) Publish(topic string, msgs ...*message.Message) error {
	for _, msg := range msgs {
		msg = clone(msg)
		p.change(msg)
		if err := p.Publisher.Publish(topic, msg); err != nil {
			return err
		}
	}
	return nil
}

// ackingSubscriber treats a nack as an ack.
type ackingSubscriber struct{ message.Subscriber }

func (s ackingSubscriber) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	in, err := s.Subscriber.Subscribe(ctx, topic)
	if err != nil {
		return nil, err
	}
	out := make(chan *message.Message)
	go func() {
		defer close(out)
		for original := range in {
			msg := clone(original)
			select {
			case out <- msg:
			case <-ctx.Done():
				return
			}
			select {
			case <-msg.Acked():
			case <-msg.Nacked():
			case <-ctx.Done():
				return
			}
			original.Ack()
		}
	}()
	return out, nil
}
