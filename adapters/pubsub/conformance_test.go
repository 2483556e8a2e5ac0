package pubsub

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/driver"
	"github.com/redeliver/redeliver/internal/adaptertest"
	"github.com/redeliver/redeliver/mq"
)

func TestConformanceInBubbles(t *testing.T) {
	h := newHarness()
	h.Wrap = synctest.Test
	adaptertest.Run(t, h)
}

func newHarness() adaptertest.Harness {
	return newHarnessOf(&harness{brokers: make(map[string]*memoryBroker)})
}

func newHarnessOf(h *harness) adaptertest.Harness {
	return adaptertest.Harness{
		Name: "Watermill in memory",
		Features: adaptertest.Features{
			BinaryHeaders: true, ForeignHeaders: true, Refuse: true, ManyGroups: true, KeepsAttempts: true, DelayedPublish: true,
			NoHeadOfLineBlocking: true, // this broker does not prefetch
		},
		Origin: h.origin, Open: h.open, Put: h.put, PutRetries: h.putBack, DeadLetters: h.dead, Received: seen, Refuse: h.refuse,
		Oversized: map[adaptertest.Place]func(testing.TB, string, string) adaptertest.Message{
			adaptertest.Levels: func(_ testing.TB, origin, group string) adaptertest.Message {
				return h.oversized(origin, group, adaptertest.Levels)
			},
			adaptertest.DLQ: func(_ testing.TB, origin, group string) adaptertest.Message {
				return h.oversized(origin, group, adaptertest.Levels, adaptertest.DLQ)
			},
		},
		ForgeHeaders: func(st redeliver.State) []adaptertest.Header {
			c := carried{headers: driver.AppendStateHeaders(st, nil), until: st.Due}
			text, err := c.pack()
			if err != nil {
				panic(err) // a map of strings never fails
			}
			return []adaptertest.Header{{Name: StateKey, Value: []byte(text)}}
		},
	}
}

// harness has a broker for each origin, because each bubble has its own.
type harness struct {
	mu      sync.Mutex
	brokers map[string]*memoryBroker
}

func (h *harness) broker(origin string) *memoryBroker {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.brokers[origin]
}

func (h *harness) origin(tb testing.TB, n int) (string, []string) {
	tb.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	origin := fmt.Sprintf("orders-%d", len(h.brokers))
	h.brokers[origin] = newMemoryBroker()
	return origin, []string{"billing", "mail.v2", "stock"}[:n]
}

// oversized bounds the size that topics accept, and returns a larger message.
func (h *harness) oversized(origin, group string, places ...adaptertest.Place) adaptertest.Message {
	b := h.broker(origin)
	b.update(func() {
		for _, place := range places {
			for _, name := range topics(origin, group, place) {
				b.bounded[name] = true
			}
		}
	})
	return adaptertest.Message{Body: make([]byte, maxPayload+1)}
}

type service struct {
	*mq.Client
	member *member
}

func (s service) Subscriber() message.Subscriber { return s.Client.Subscriber() }
func (s service) Publisher() message.Publisher   { return s.Client.Publisher() }
func (s service) Kill()                          { s.member.kill() }

func (h *harness) open(tb testing.TB, cfg adaptertest.Config) (adaptertest.Service, error) {
	tb.Helper()
	m := h.broker(cfg.Origin).member(tb, cfg.Group)
	c, err := Open(tb.Context(), Config{
		Publisher: m, Subscriber: m, Group: cfg.Group, Confirms: true, MaxUnacked: NoLimit, Policy: cfg.Policy, Sink: cfg.Sink,
		MaxInFlight: cfg.MaxInFlight, MinInFlight: cfg.MinInFlight, NackDelay: cfg.NackDelay, DrainTimeout: cfg.DrainTimeout, SendTimeout: cfg.SendTimeout,
		Decode: decode, Refused: func(err error) bool { return errors.Is(err, errTooLarge) },
	})
	if err != nil {
		return nil, err
	}
	return service{c, m}, nil
}

// decode refuses the message that the kit defines as undecodable.
func decode(msg *message.Message) error {
	if string(msg.Payload) == adaptertest.Undecodable {
		return errors.New("no such schema")
	}
	return nil
}

func (h *harness) put(_ testing.TB, origin string, msgs ...adaptertest.Message) {
	for _, m := range msgs {
		h.broker(origin).put(origin, written(m))
	}
}

func (h *harness) putBack(_ testing.TB, origin, group string, msgs ...adaptertest.Message) {
	for _, m := range msgs {
		h.broker(origin).put(Names{}.retry(origin, group), written(m))
	}
}

func written(m adaptertest.Message) *message.Message {
	msg := message.NewMessage(m.ID, m.Body)
	for _, h := range m.Headers {
		msg.Metadata[h.Name] = string(h.Value)
	}
	if len(m.OwnHeaders) > 0 {
		rec := newRecord(msg, false)
		msg, _ = rec.withState(&carried{headers: m.OwnHeaders})
	}
	return msg
}

func read(msg *message.Message) adaptertest.Message {
	m := adaptertest.Message{ID: msg.UUID, Body: msg.Payload}
	for _, name := range slices.Sorted(maps.Keys(msg.Metadata)) {
		m.Headers = append(m.Headers, adaptertest.Header{Name: name, Value: []byte(msg.Metadata[name])})
	}
	return m
}

func (h *harness) dead(tb testing.TB, origin, group string, n int) (msgs []adaptertest.Message) {
	tb.Helper()
	b := h.broker(origin)
	deadline := time.NewTimer(adaptertest.Timeout)
	defer deadline.Stop()
	for late := false; ; {
		b.mu.Lock()
		changed, all := b.changed, b.topics[Names{}.dlq(origin, group)]
		b.mu.Unlock()
		if len(all) >= n || late {
			for _, msg := range all {
				rec := newRecord(msg, true)
				m := read(rec.unmarshal())
				m.OwnHeaders = rec.headers
				msgs = append(msgs, m)
			}
			return msgs
		}
		select {
		case <-changed:
		case <-deadline.C:
			late = true
		}
	}
}

func seen(msg *message.Message) adaptertest.Message {
	native := MessageFromContext(msg.Context())
	if native == nil {
		return adaptertest.Message{}
	}
	return read(clone(native))
}

// topics returns the topics of a place.
func topics(origin, group string, what adaptertest.Place) []string {
	l, err := newLayout(&Config{Group: group, MaxUnacked: NoLimit, Policy: redeliver.Policy{}}, origin)
	if err != nil {
		panic(err)
	}
	if what == adaptertest.DLQ {
		return []string{l.dlq}
	}
	return append(l.delays[:], l.retry)
}

func (h *harness) refuse(_ testing.TB, origin, group string, what adaptertest.Place) (restore func()) {
	b := h.broker(origin)
	set := func(refused bool) {
		b.update(func() {
			for _, name := range topics(origin, group, what) {
				b.refused[name] = refused
			}
		})
	}
	set(true)
	return func() { set(false) }
}
