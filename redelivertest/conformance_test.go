package redelivertest

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver/internal/adaptertest"
)

func TestConformanceInBubbles(t *testing.T) {
	h := newHarness()
	h.Wrap = synctest.Test
	adaptertest.Run(t, h)
}

func newHarness() adaptertest.Harness {
	return newHarnessOf(&harness{brokers: make(map[string]*Broker)})
}

func newHarnessOf(h *harness) adaptertest.Harness {
	return adaptertest.Harness{
		Name: "redelivertest",
		Features: adaptertest.Features{
			OrderFirstAttempts: true, BinaryHeaders: true, DuplicateHeaders: true, NullBody: true, CountsCrashes: true,
			ForeignHeaders: true, Refuse: true, ManyGroups: true, KeepsAttempts: true, DelayedPublish: true, MessageTimes: true, NoHeadOfLineBlocking: true, OrderBlocking: true, KeepsAttemptsInPlace: true, OrderThroughRetries: true, GroupPause: true, NewPause: true,
		},
		Origin: h.origin, Open: h.open, Put: h.put, PutRetries: h.putBack, DeadLetters: h.dead, Received: seen, Refuse: h.refuse,
		DLQTopic: func(origin, group string) (topic, reader string) { return dlqOf(origin, group), "audit" },
	}
}

// harness has one broker for each origin, because each bubble needs its own.
type harness struct {
	mu      sync.Mutex
	brokers map[string]*Broker
}

func (h *harness) origin(tb testing.TB, n int) (string, []string) {
	tb.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	origin := fmt.Sprintf("orders-%d", len(h.brokers))
	h.brokers[origin] = New(tb)
	return origin, []string{"billing", "mail", "stock"}[:n]
}

func (h *harness) broker(origin string) *Broker {
	h.mu.Lock()
	defer h.mu.Unlock()
	origin, _, _ = strings.Cut(origin, ".") // for a DLQ
	return h.brokers[origin]
}

type service struct{ *Client }

func (s service) Subscriber() message.Subscriber { return s.Client.Subscriber() }
func (s service) Publisher() message.Publisher   { return s.Client.Publisher() }

func (h *harness) open(_ testing.TB, cfg adaptertest.Config) (adaptertest.Service, error) {
	c, err := h.broker(cfg.Origin).newClient(Config{
		Group: cfg.Group, Policy: cfg.Policy, Sink: cfg.Sink, MaxInFlight: cfg.MaxInFlight, MinInFlight: cfg.MinInFlight,
		NackDelay: cfg.NackDelay, DrainTimeout: cfg.DrainTimeout, SendTimeout: cfg.SendTimeout,
		Decode: decode,
	})
	if err != nil {
		return nil, err
	}
	return service{c}, nil
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
		h.broker(origin).append(origin, written(m), nil)
	}
}

func (h *harness) putBack(_ testing.TB, origin, group string, msgs ...adaptertest.Message) {
	b := h.broker(origin)
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, m := range msgs {
		b.queueLocked(origin, group).waitLocked(0, written(m), nil, -1)
	}
}

func written(m adaptertest.Message) record {
	rec := record{uuid: m.ID, key: m.Key, body: m.Body}
	for _, h := range m.Headers {
		rec.headers = append(rec.headers, header{h.Name, h.Value})
	}
	for _, h := range m.OwnHeaders {
		rec.headers = append(rec.headers, header{h.Name, []byte(h.Value)})
	}
	return rec
}

func read(rec record) adaptertest.Message {
	m := adaptertest.Message{ID: rec.uuid, Key: bytes.Clone(rec.key), Body: bytes.Clone(rec.body)}
	for _, h := range rec.headers {
		m.Headers = append(m.Headers, adaptertest.Header{Name: h.name, Value: slices.Clone(h.value)})
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
		changed, recs := b.changed, b.queueLocked(origin, group).dead
		b.mu.Unlock()
		if len(recs) >= n || late {
			for _, rec := range recs {
				users, ours := rec.split()
				m := read(users)
				m.OwnHeaders = ours
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
	rec := deliveredIn(msg.Context())
	if rec == nil {
		return adaptertest.Message{}
	}
	return read(rec.record)
}

func (h *harness) refuse(_ testing.TB, origin, group string, what adaptertest.Place) (restore func()) {
	b := h.broker(origin)
	b.mu.Lock()
	q := b.queueLocked(origin, group)
	b.mu.Unlock()
	return (&Subscription{q}).RefuseWrites(Place(what))
}
