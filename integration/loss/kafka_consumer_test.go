package loss

import (
	"cmp"
	"context"
	"encoding/binary"
	"log"
	"net"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/IBM/sarama"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka"
	"github.com/redeliver/redeliver/driver"
	"github.com/redeliver/redeliver/integration/consumer"
)

// The ways in which a group of the suite balances.
const (
	eager       = "eager"
	cooperative = "cooperative"
)

// The group's session timeouts: the maximum time until a dead member is removed. That of a static member is so long
// that a restart within a second does not depend on it.
const (
	kafkaSession       = 2 * time.Second
	kafkaStaticSession = 20 * time.Second
)

// connectKafka opens the adapter with a client whose sent records, fetched records and requests the watcher sees.
func connectKafka(ctx context.Context, cfg consumerConfig, s *watcher) (consumer.Client, error) {
	if os.Getenv("REDELIVER_LOSS_DEBUG") != "" {
		sarama.Logger = log.New(os.Stderr, "sarama ", log.Ltime|log.Lmicroseconds)
		sarama.DebugLogger = sarama.Logger
	}
	sc := sarama.NewConfig()
	sc.Version = sarama.V2_8_0_0
	sc.Consumer.Offsets.Initial = sarama.OffsetOldest
	session := kafkaSession
	if cfg.Instance != "" {
		session = kafkaStaticSession
	}
	session = cmp.Or(cfg.Load.Missed, session)
	sc.Consumer.Group.Session.Timeout = session
	sc.Consumer.Group.Heartbeat.Interval = min(session, kafkaSession) / 4
	// By default sarama waits 2 s before it joins again when the group's leader died during a join, and sends no
	// heartbeats meanwhile. With such a short session the whole group would be removed.
	sc.Consumer.Group.Rebalance.Retry.Backoff = kafkaSession / 10
	sc.Consumer.Group.Rebalance.Retry.Max = 20
	if cfg.Variant == cooperative {
		sc.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{sarama.NewBalanceStrategyCooperativeSticky()}
	}
	sc.Producer.Interceptors = []sarama.ProducerInterceptor{onSend{s, cfg.Topic}}
	sc.Consumer.Interceptors = []sarama.ConsumerInterceptor{onConsume{s, cfg.Topic, cfg.Group}}
	sc.Net.Proxy.Enable = true
	sc.Net.Proxy.Dialer = dialer{s, cfg.Load}
	kc := kafka.Config{
		Brokers: cfg.Addrs, Group: cfg.Group, Policy: cfg.policy(), Sarama: sc, Sink: s, InstanceID: cfg.Instance,
		MaxInFlight: cmp.Or(cfg.Load.InFlight, 20), DrainTimeout: 2 * time.Second, SendTimeout: cfg.Load.SendTimeout,
	}
	if !cfg.Work {
		kc.MaxInFlight, kc.DrainTimeout = 500, 0
	}
	return consumer.Open(ctx, func() (consumer.Client, error) {
		client, err := kafka.Open(ctx, kc)
		if err != nil {
			return consumer.Client{}, err
		}
		return consumer.Client{Subscriber: client.Subscriber(), End: client.Close}, nil
	})
}

// onSend sees what the adapter has handed to its producer, before it is sent.
type onSend struct {
	watcher *watcher
	topic   string
}

// OnSend implements [sarama.ProducerInterceptor].
func (o onSend) OnSend(m *sarama.ProducerMessage) {
	if !strings.HasPrefix(m.Topic, o.topic+".") {
		return
	}
	var r run
	for _, h := range m.Headers {
		switch string(h.Key) {
		case headerID:
			r.id = string(h.Value)
		case redeliver.HeaderAttempt:
			r.attempt, _ = strconv.Atoi(string(h.Value))
		}
	}
	if r.id != "" { // sarama also sends internal markers through here
		o.watcher.send(r, m.Topic, nil)
	}
}

// onConsume sees fetched records before the adapter does.
type onConsume struct {
	watcher      *watcher
	topic, group string
}

// OnConsume implements [sarama.ConsumerInterceptor].
func (o onConsume) OnConsume(m *sarama.ConsumerMessage) {
	if !strings.HasPrefix(m.Topic, o.topic+".") {
		return
	}
	var r run
	var headers []driver.Header
	for _, h := range m.Headers {
		if string(h.Key) == headerID {
			r.id = string(h.Value)
		}
		headers = append(headers, driver.Header{Name: string(h.Key), Value: string(h.Value)})
	}
	st, _ := driver.ParseHeaders(o.group, headers)
	r.attempt = st.Attempt() // the next one
	o.watcher.setID(st.ID, r.id)
	o.watcher.addWaiting(r, st.Due)
}

// dialer makes connections that report certain requests to the watcher. sarama and franz-go write a request with one Write.
type dialer struct {
	watcher *watcher
	load    load
}

// Dial implements proxy.Dialer.
func (d dialer) Dial(network, addr string) (net.Conn, error) {
	c, err := net.DialTimeout(network, d.load.reach(addr), 5*time.Second)
	if err != nil {
		return nil, err
	}
	return &conn{Conn: c, watcher: d.watcher}, nil
}

// Kafka's API keys of the requests.
const (
	produceKey          = 0
	offsetCommitKey     = 8
	shareFetchKey       = 78 // carries acks
	shareAcknowledgeKey = 79
)

type conn struct {
	net.Conn
	watcher *watcher
	produce atomic.Bool // a produce request was sent and is not answered
}

func (c *conn) Write(b []byte) (int, error) {
	if len(b) >= 6 {
		switch binary.BigEndian.Uint16(b[4:6]) {
		case produceKey:
			c.produce.Store(true)
		case offsetCommitKey, shareFetchKey, shareAcknowledgeKey:
			c.watcher.commit()
		}
	}
	return c.Conn.Write(b)
}

func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 && c.produce.CompareAndSwap(true, false) {
		c.watcher.answer()
	}
	return n, err
}
