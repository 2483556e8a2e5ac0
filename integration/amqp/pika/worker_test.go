//go:build prove

package pika_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/amqp"
	"github.com/redeliver/redeliver/integration/brokers"
	"github.com/redeliver/redeliver/integration/fidelity"
	"github.com/redeliver/redeliver/mq"
)

func TestMain(m *testing.M) {
	code := m.Run()
	fidelity.EndPeers()
	os.Exit(code)
}

// onBoth runs a test on each RabbitMQ, with its own queue.
func onBoth(t *testing.T, test func(t *testing.T, b *fixture)) {
	t.Helper()
	t.Parallel()
	for version, r := range brokers.RequireRabbitMQs(t) {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			test(t, &fixture{T: t, version: version, rabbit: r, queue: fidelity.Unique("fidelity"), peer: newPeer(t, r.URL()), ch: channel(t, r.URL())})
		})
	}
}

// channel opens a channel for operations without pika.
func channel(t *testing.T, url string) *amqp091.Channel {
	t.Helper()
	conn, err := amqp091.Dial(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	if err := ch.Confirm(false); err != nil {
		t.Fatal(err)
	}
	return ch
}

// fixture is one test's broker, queue and clients.
type fixture struct {
	*testing.T
	version string // major version of RabbitMQ
	rabbit  *brokers.Rabbit
	queue   string
	peer    *peer
	ch      *amqp091.Channel

	events        fidelity.Events
	dials         atomic.Int32
	handler       message.NoPublishHandlerFunc // called before the attempt fails
	client        *mq.Client
	copiesNothing bool // the handler does not copy messages, because a copy has more headers
}

// policy waits on one level, and then with a hop and a hold.
var policy = redeliver.Policy{
	Outage: redeliver.Outage{Off: true}, MaxRetries: 2, Backoff: redeliver.Steps(100*time.Millisecond, 450*time.Millisecond),
	Levels: []time.Duration{100 * time.Millisecond, 300 * time.Millisecond},
}

// config returns the configuration of a worker.
func (b *fixture) config(p redeliver.Policy) amqp.Config {
	cfg := amqp.Config{URLs: []string{b.rabbit.URL()}, Policy: p, Sink: &b.events, DrainTimeout: 10 * time.Millisecond}
	cfg.AMQP.Dial = func(network, addr string) (net.Conn, error) {
		b.dials.Add(1)
		return amqp091.DefaultDial(10*time.Second)(network, addr)
	}
	return cfg
}

// start runs a worker whose handler copies its messages to the queue ".seen" and fails. stop ends it.
func (b *fixture) start(cfg amqp.Config) (stop func()) {
	b.Helper()
	b.declare(b.queue+".seen", nil)
	client, err := amqp.Open(context.Background(), cfg)
	if err != nil {
		b.Fatal(err)
	}
	b.client = client
	seen := channel(b.T, b.rabbit.URL())
	return fidelity.Consume(b.T, b.queue, client.Subscriber(), client.Close, func(msg *message.Message) error {
		if !b.copiesNothing {
			if err := b.copy(seen, msg); err != nil {
				b.Errorf("copying the handler's message: %v", err)
			}
		}
		if b.handler != nil {
			return b.handler(msg)
		}
		return fidelity.ErrDeclined
	})
}

// copy publishes the handler's message. Headers carry the properties that would affect the broker.
func (b *fixture) copy(ch *amqp091.Channel, msg *message.Message) error {
	d := amqp.DeliveryFromContext(msg.Context())
	st, _ := redeliver.FromContext(msg.Context())
	h := amqp091.Table{
		"seen-attempt": strconv.Itoa(st.Attempt()), "seen-id": st.ID, "seen-uuid": msg.UUID, "seen-exchange": d.Exchange, "seen-key": d.RoutingKey,
		"seen-body": bytes.Equal(msg.Payload, d.Body),
	}
	for name, v := range d.Headers {
		switch name {
		case "CC", "BCC", "x-death": // RabbitMQ 3 would interpret it
			h["seen-"+name] = v
		default:
			h[name] = v
		}
	}
	if d.Expiration != "" {
		h["seen-expiration"] = d.Expiration
	}
	if d.UserId != "" {
		h["seen-user_id"] = d.UserId
	}
	confirm, err := ch.PublishWithDeferredConfirm("", b.queue+".seen", true, false, amqp091.Publishing{
		Headers: h, ContentType: d.ContentType, ContentEncoding: d.ContentEncoding, DeliveryMode: d.DeliveryMode, Priority: d.Priority,
		CorrelationId: d.CorrelationId, ReplyTo: d.ReplyTo, MessageId: d.MessageId, Timestamp: d.Timestamp, Type: d.Type, AppId: d.AppId, Body: d.Body,
	})
	if err != nil {
		return err
	}
	if !confirm.Wait() {
		return errors.New("refused")
	}
	return nil
}

func (b *fixture) declare(queue string, args amqp091.Table) {
	b.Helper()
	if _, err := b.ch.QueueDeclare(queue, true, false, false, false, args); err != nil {
		b.Fatal(err)
	}
}

// checkNoFaults fails the test if a connection ended or a write failed.
func (b *fixture) checkNoFaults() {
	b.Helper()
	b.events.NoProblems(b.T)
	if n := b.dials.Load(); n != 2 {
		b.Errorf("the client dialled %d times, want 2", n)
	}
}

// user creates a user of the broker with all rights in the virtual host.
func (b *fixture) user(name string) {
	b.Helper()
	b.put("/api/users/"+name, `{"password":"`+name+`","tags":""}`)
	b.put("/api/permissions/%2F/"+name, `{"configure":".*","write":".*","read":".*"}`)
	b.Cleanup(func() { b.callAPI(http.MethodDelete, "/api/users/"+name, "") })
}

func (b *fixture) put(path, body string) { b.callAPI(http.MethodPut, path, body) }

func (b *fixture) callAPI(method, path, body string) {
	b.Helper()
	req, err := http.NewRequest(method, b.rabbit.Management()+path, strings.NewReader(body))
	if err != nil {
		b.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		b.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode >= 300 {
		b.Fatalf("%s %s: %s", method, path, res.Status)
	}
}
