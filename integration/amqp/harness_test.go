package amqp_test

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/ThreeDotsLabs/watermill/message"
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/amqp"
	"github.com/redeliver/redeliver/driver"
	"github.com/redeliver/redeliver/integration/brokers"
	"github.com/redeliver/redeliver/internal/adaptertest"
	"github.com/redeliver/redeliver/mq"
)

// features are the features of RabbitMQ.
var features = adaptertest.Features{
	BinaryHeaders: true, ForeignHeaders: true, CountsCrashes: true, ManyGroups: true, Refuse: true,
	KeepsAttempts: true, DelayedPublish: true, MessageTimes: true, NoHeadOfLineBlocking: true, OrderBlocking: true, KeepsAttemptsInPlace: true, OrderThroughRetries: true, GroupPause: true, NewPause: true,
}

// keyHeader is the header with a message's key, because RabbitMQ's messages have none.
const keyHeader = "kit-key"

// harness is adapters/amqp on one broker for the conformance kit. Its own client is amqp091.
type harness struct {
	url            string
	admin          *admin
	declares, uses *reconnectingConn // separate, because a declaration or deletion may end its connection
	refused        sync.Map          // names or prefixes of queues that refuse messages
	single         sync.Map          // names of queues with a single active consumer
	exchanges      sync.Map          // origins that are exchanges
	unlimited      sync.Map          // channels opened before the size limit was lowered, by origin
}

// newHarness needs its own virtual host, because each test lists all queues at its end.
func newHarness(t *testing.T, b *brokers.Rabbit) adaptertest.Harness {
	t.Helper()
	_, kit := newHarnesses(t, b)
	return kit
}

func newHarnesses(t *testing.T, b *brokers.Rabbit) (*harness, adaptertest.Harness) {
	t.Helper()
	h := &harness{url: b.URL(), admin: newAdmin(t, b), declares: &reconnectingConn{url: b.URL()}, uses: &reconnectingConn{url: b.URL()}}
	t.Cleanup(h.declares.close)
	t.Cleanup(h.uses.close)
	return h, adaptertest.Harness{
		Name: "RabbitMQ", Features: features, ReadsAhead: true, MaxCrashesBeside: 15, MaxHeaders: 5000, // more would not fit into a frame
		Oversized: map[adaptertest.Place]func(testing.TB, string, string) adaptertest.Message{
			adaptertest.Levels: func(testing.TB, string, string) adaptertest.Message { // leaves no room in a frame of 128 KiB
				return adaptertest.Message{Body: []byte("v"), Headers: []adaptertest.Header{{Name: "long", Value: bytes.Repeat([]byte("x"), 128<<10-3000)}}}
			},
		},
		ForgeHeaders: func(redeliver.State) []adaptertest.Header {
			return []adaptertest.Header{
				{Name: amqp.HeaderExchange, Value: []byte("bank")}, {Name: amqp.HeaderRoutingKey, Value: []byte("payments")},
				{Name: amqp.HeaderExpiration, Value: []byte("1")}, {Name: amqp.HeaderUserID, Value: []byte("root")},
				{Name: amqp.HeaderUntil, Value: []byte("2999-01-01T00:00:00Z")}, {Name: amqp.HeaderRaw, Value: []byte("raw")},
			}
		},
		Origin: h.origin, Open: h.open, Consume: h.consume(), ConsumeBatch: h.consumeBatch, Put: h.put, PutRetries: h.putBack, DeadLetters: h.dead, Received: seen, Refuse: h.refuse,
		DLQTopic: func(_, group string) (topic, reader string) { return group + ".dlq", group + ".dlq" },
	}
}

// origin creates a queue, or a fanout exchange with a queue for each group.
func (h *harness) origin(t testing.TB, n int) (string, []string) {
	t.Helper()
	origin := "kit-" + strings.ToLower(rand.Text()[:12])
	if n == 1 {
		h.declare(t, origin, func(ch *amqp091.Channel) error {
			_, err := ch.QueueDeclare(origin, true, false, false, false, amqp091.Table{amqp091.QueueTypeArg: amqp091.QueueTypeQuorum})
			return err
		})
		return origin, []string{origin}
	}
	h.exchanges.Store(origin, true)
	h.declare(t, origin, func(ch *amqp091.Channel) error {
		return ch.ExchangeDeclare(origin, amqp091.ExchangeFanout, true, false, false, false, nil)
	})
	groups := make([]string, n)
	for i := range groups {
		groups[i] = fmt.Sprintf("%s_%d", origin, i)
		h.declare(t, groups[i], func(ch *amqp091.Channel) error {
			_, err := ch.QueueDeclare(groups[i], true, false, false, false, amqp091.Table{amqp091.QueueTypeArg: amqp091.QueueTypeQuorum})
			return errors.Join(err, ch.QueueBind(groups[i], "", origin, false, nil))
		})
	}
	return origin, groups
}

// declare declares something, and deletes the queue of that name and those beside it at the end of the test.
func (h *harness) declare(t testing.TB, name string, what func(*amqp091.Channel) error) {
	t.Helper()
	if err := h.declares.do(t, what); err != nil {
		t.Fatalf("declaring %s: %v", name, err)
	}
	t.Cleanup(func() {
		if _, exchange := h.exchanges.Load(name); exchange {
			_ = h.declares.do(t, func(ch *amqp091.Channel) error { return ch.ExchangeDelete(name, false, false) })
			return
		}
		_ = h.declares.delete(t, h.admin.queues(t, name)...) // the rest is deleted with the virtual host
	})
}

// open starts a service whose connections can be cut.
func (h *harness) open(t testing.TB, cfg adaptertest.Config) (adaptertest.Service, error) {
	t.Helper()
	if cfg.Policy.Order == redeliver.OrderBlocking || cfg.Policy.Order == redeliver.OrderThroughRetries {
		h.oneAtATime(t, cfg.Group)
	}
	line := &cuttableDialer{refused: &h.refused}
	c, err := amqp.Open(context.Background(), amqp.Config{
		URLs: []string{h.url}, Policy: cfg.Policy, Sink: cfg.Sink, MaxInFlight: cfg.MaxInFlight, MinInFlight: cfg.MinInFlight, NackDelay: cfg.NackDelay,
		DrainTimeout: cfg.DrainTimeout, SendTimeout: cfg.SendTimeout, Marshaler: marshaler{}, AMQP: amqp091.Config{Dial: line.dial},
		Key: amqp.KeyHeader(keyHeader),
		Topology: amqp.Topology{
			Queue:    func(string) string { return cfg.Group },
			Exchange: func(topic string) string { return map[bool]string{true: "", false: topic}[cfg.Group == cfg.Origin] },
		},
	})
	if err != nil {
		return nil, err
	}
	return service{c, line}, nil
}

// oneAtATime declares a queue again, once, for an ordered policy.
func (h *harness) oneAtATime(t testing.TB, queue string) {
	t.Helper()
	if _, done := h.single.LoadOrStore(queue, true); done {
		return
	}
	err := h.declares.do(t, func(ch *amqp091.Channel) error {
		if _, err := ch.QueueDelete(queue, false, false, false); err != nil {
			return err
		}
		_, err := ch.QueueDeclare(queue, true, false, false, false, amqp091.Table{
			amqp091.QueueTypeArg: amqp091.QueueTypeQuorum, amqp091.SingleActiveConsumerArg: true, "x-delivery-limit": int32(1_000_000),
		})
		return err
	})
	if err != nil {
		t.Fatalf("declaring %s with a single active consumer: %v", queue, err)
	}
}

type service struct {
	*mq.Client
	line *cuttableDialer
}

func (s service) Subscriber() message.Subscriber { return s.Client.Subscriber() }
func (s service) Publisher() message.Publisher   { return s.Client.Publisher() }

// Kill cuts the connections, so that the broker returns unacked messages.
func (s service) Kill() { s.line.cut() }

// marshaler refuses the body that the kit defines as undecodable.
type marshaler struct{ amqp.DefaultMarshaler }

func (m marshaler) Unmarshal(d *amqp091.Delivery) (*message.Message, error) {
	if string(d.Body) == adaptertest.Undecodable {
		return nil, errors.New("no such schema")
	}
	return m.DefaultMarshaler.Unmarshal(d)
}

func (h *harness) put(t testing.TB, origin string, msgs ...adaptertest.Message) {
	t.Helper()
	if _, exchange := h.exchanges.Load(origin); exchange {
		h.write(t, origin, "", msgs)
		return
	}
	h.write(t, "", origin, msgs)
}

func (h *harness) putBack(t testing.TB, _, group string, msgs ...adaptertest.Message) {
	t.Helper()
	h.write(t, "", group+".retry", msgs)
}

func (h *harness) write(t testing.TB, exchange, key string, msgs []adaptertest.Message) {
	t.Helper()
	var ch *amqp091.Channel
	if unlimited, ok := h.unlimited.LoadAndDelete(key); ok {
		ch = unlimited.(*amqp091.Channel)
	} else {
		ch = h.uses.channel(t)
	}
	defer ch.Close()
	if err := ch.Confirm(false); err != nil {
		t.Fatal(err)
	}
	for _, m := range msgs {
		p := amqp091.Publishing{Body: m.Body, DeliveryMode: amqp091.Persistent, Timestamp: time.Now(), Headers: amqp091.Table{}}
		if m.ID != "" {
			p.Headers[amqp.UUIDHeader] = m.ID
		}
		if m.Key != nil {
			p.Headers[keyHeader] = value(m.Key)
		}
		for _, header := range m.Headers {
			p.Headers[header.Name] = value(header.Value)
		}
		for _, header := range m.OwnHeaders {
			p.Headers[header.Name] = header.Value
		}
		confirmed(t, ch, exchange, key, p)
	}
}

// value returns text if possible, otherwise a byte array.
func value(v []byte) any {
	if utf8.Valid(v) {
		return string(v)
	}
	return v
}

func bytesOf(v any) []byte {
	switch v := v.(type) {
	case string:
		return []byte(v)
	case []byte:
		return bytes.Clone(v)
	default:
		return fmt.Append(nil, v)
	}
}

// dead gets all messages of the DLQ and returns them with the channel.
func (h *harness) dead(t testing.TB, _, group string, n int) []adaptertest.Message {
	t.Helper()
	timer := time.NewTimer(adaptertest.Timeout)
	defer timer.Stop()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		msgs := h.readDLQ(t, group+".dlq")
		if len(msgs) >= n {
			return msgs
		}
		select {
		case <-tick.C:
		case <-timer.C:
			return msgs
		}
	}
}

func (h *harness) readDLQ(t testing.TB, queue string) (msgs []adaptertest.Message) {
	t.Helper()
	ch := h.uses.channel(t)
	defer ch.Close()
	for {
		d, ok, err := ch.Get(queue, false)
		if err != nil {
			t.Fatalf("reading %s: %v", queue, err)
		}
		if !ok {
			return msgs
		}
		m := adaptertest.Message{Body: d.Body}
		for name, v := range d.Headers {
			switch {
			case name == amqp.HeaderForeign:
				for name, v := range v.(amqp091.Table) {
					m.Headers = append(m.Headers, adaptertest.Header{Name: name, Value: bytesOf(v)})
				}
			case strings.HasPrefix(name, "redeliver-amqp-"), strings.HasPrefix(name, "x-"):
			case strings.HasPrefix(name, redeliver.HeaderPrefix):
				m.OwnHeaders = append(m.OwnHeaders, driver.Header{Name: name, Value: string(bytesOf(v))})
			default:
				add(&m, name, v)
			}
		}
		msgs = append(msgs, sorted(m))
	}
}

func seen(msg *message.Message) adaptertest.Message {
	return seenDelivery(amqp.DeliveryFromContext(msg.Context()))
}

func seenDelivery(d *amqp091.Delivery) adaptertest.Message {
	m := adaptertest.Message{Body: bytes.Clone(d.Body)}
	for name, v := range d.Headers {
		if !strings.HasPrefix(name, "x-") { // the broker's own
			add(&m, name, v)
		}
	}
	return sorted(m)
}

func add(m *adaptertest.Message, name string, v any) {
	switch name {
	case amqp.UUIDHeader:
		m.ID = string(bytesOf(v))
		return
	case keyHeader:
		m.Key = bytesOf(v)
		return
	}
	m.Headers = append(m.Headers, adaptertest.Header{Name: name, Value: bytesOf(v)})
}

// sorted sorts headers, which have no order here.
func sorted(m adaptertest.Message) adaptertest.Message {
	slices.SortFunc(m.Headers, func(a, b adaptertest.Header) int { return cmp.Compare(a.Name, b.Name) })
	return m
}

// refuse cuts the connection of each publish to the queues of a place. A full quorum queue would accept a few more,
// because its limit is soft.
func (h *harness) refuse(t testing.TB, _, group string, what adaptertest.Place) func() {
	t.Helper()
	queue := group + ".retry"
	if what == adaptertest.DLQ {
		queue = group + ".dlq"
	}
	h.refused.Store(queue, true)
	return func() { h.refused.Delete(queue) }
}
