package sqs

import (
	"context"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/sqs/internal/api"
	"github.com/redeliver/redeliver/adapters/sqs/internal/wire"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/internal/adaptertest"
	"github.com/redeliver/redeliver/internal/sqsfake"
	"github.com/redeliver/redeliver/mq"
)

// The contract of a deadletter.Queue runs in virtual time, where leases expire at once.
func TestDeadLetterQueue(t *testing.T) {
	for name, fifo := range map[string]bool{"standard": false, "FIFO": true} {
		t.Run(name, func(t *testing.T) {
			m := &testHarness{fifo: fifo, fakes: make(map[string]*fake)}
			adaptertest.RunDeadLetters(t, m.toHarness(), m.deadLetters)
		})
	}
}

func (m *testHarness) toHarness() adaptertest.Harness {
	return adaptertest.Harness{
		Name: "SQS", Features: adaptertest.Features{OrderFirstAttempts: m.fifo}, Wrap: synctest.Test,
		Origin: m.origin, Open: m.open, Put: m.put, Received: seenBy,
		DLQTopic: func(origin, _ string) (topic, reader string) {
			return api.SiblingName(origin, "-dlq"), api.SiblingName(origin, "-dlq")
		},
	}
}

// testHarness is a harness of the kit over fakes, one for each bubble.
type testHarness struct {
	fifo  bool
	mu    sync.Mutex
	fakes map[string]*fake
}

func (m *testHarness) fake(origin string) *fake {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.fakes[strings.Replace(origin, "-dlq", "", 1)]
}

func (m *testHarness) origin(testing.TB, int) (string, []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	origin := fmt.Sprintf("orders-%d", len(m.fakes))
	if m.fifo {
		origin += api.FIFOSuffix
	}
	f := newFake()
	f.Create(origin)
	m.fakes[origin] = f
	return origin, []string{origin}
}

// openOn opens a client that can be killed.
func openOn(line *sqsfake.Connection, cfg Config) (*mq.Client, error) {
	cfg.AWS, cfg.Endpoint = line.Config(), sqsfake.Endpoint
	return Open(context.Background(), cfg)
}

type process struct {
	*mq.Client
	line *sqsfake.Connection
}

func (p process) Subscriber() message.Subscriber { return p.Client.Subscriber() }
func (p process) Publisher() message.Publisher   { return p.Client.Publisher() }
func (p process) Kill()                          { p.line.Cut() }

func (m *testHarness) open(_ testing.TB, cfg adaptertest.Config) (adaptertest.Service, error) {
	l := m.fake(cfg.Origin).Connect("")
	c, err := openOn(l, Config{Policy: cfg.Policy, Sink: cfg.Sink, MaxInFlight: cfg.MaxInFlight, VisibilityTimeout: 5 * time.Second, WaitTime: time.Second})
	return process{c, l}, err
}

func (m *testHarness) put(t testing.TB, origin string, msgs ...adaptertest.Message) {
	t.Helper()
	for _, one := range msgs {
		msg := message.NewMessage(one.ID, one.Body)
		for _, h := range one.Headers {
			msg.Metadata[h.Name] = string(h.Value)
		}
		body, attributes, err := DefaultMarshaler{}.Marshal(origin, msg)
		if err != nil {
			t.Fatal(err)
		}
		all := make(map[string]sqsfake.Attribute)
		for name, v := range attributes {
			all[name] = sqsfake.Attribute{Type: *v.DataType, Value: []byte(*v.StringValue)}
		}
		group := ""
		if m.fifo {
			group = "id-" + one.ID
			if one.Key != nil {
				group = "key-" + hex.EncodeToString(one.Key)
			}
		}
		m.fake(origin).put(origin, one.ID, body, group, all)
	}
}

func seenBy(msg *message.Message) adaptertest.Message {
	native := MessageFromContext(msg.Context())
	again, err := DefaultMarshaler{}.Unmarshal(native)
	if err != nil {
		panic(err)
	}
	out := adaptertest.Message{ID: again.UUID, Body: again.Payload, Key: keyOf(native.Attributes[wire.GroupID])}
	for _, name := range slices.Sorted(maps.Keys(again.Metadata)) {
		out.Headers = append(out.Headers, adaptertest.Header{Name: name, Value: []byte(again.Metadata[name])})
	}
	return out
}

func keyOf(group string) (key []byte) {
	if text, ok := strings.CutPrefix(group, "key-"); ok {
		key, _ = hex.DecodeString(text)
	}
	return key
}

func (m *testHarness) deadLetters(t testing.TB, origin, _ string) (deadletter.Queue, func()) {
	t.Helper()
	l := m.fake(origin).Connect("")
	c, err := openOn(l, Config{Sink: redeliver.SinkFunc(func(redeliver.Event) {})})
	if err != nil {
		t.Fatal(err)
	}
	q, err := c.Operations().DeadLetters(context.Background(), mq.DeadLetterConfig{Topic: origin, Lease: 6 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	return keyedQueue{q}, l.Cut
}

// keyedQueue shows messages with the keys of the kit.
type keyedQueue struct{ deadletter.Queue }

func (k keyedQueue) Unwrap() deadletter.Queue { return k.Queue }

func (k keyedQueue) Scan(ctx context.Context, from deadletter.From) (deadletter.Scan, error) {
	s, err := k.Queue.Scan(ctx, from)
	return keyedScan{s}, err
}

type keyedScan struct{ deadletter.Scan }

func (s keyedScan) Next(ctx context.Context, want func(*deadletter.Message) bool) (*deadletter.Message, error) {
	return s.Scan.Next(ctx, func(m *deadletter.Message) bool {
		m.Key = keyOf(string(m.Key))
		return want == nil || want(m)
	})
}
