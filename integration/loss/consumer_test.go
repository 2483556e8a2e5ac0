package loss

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
	"os"
	"runtime"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/integration/consumer"
)

// envConsumer makes this test binary a consumer. Its value is a consumerConfig.
const envConsumer = "REDELIVER_LOSS_CONSUMER"

func TestMain(m *testing.M) {
	consumer.Main(envConsumer, consume)
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		// Each test mostly waits for sessions to end and brokers to start. Two tests at a time leave half of two cores
		// idle.
		_ = flag.Set("test.parallel", strconv.Itoa(runtime.GOMAXPROCS(0)+1)) // it accepts any int
	}
	os.Exit(m.Run())
}

// consumerConfig is the configuration of a consumer process.
type consumerConfig struct {
	Broker  string   `json:"broker"` // key of the connector
	Addrs   []string `json:"addrs"`
	Topic   string   `json:"topic"`
	Group   string   `json:"group"`
	Journal string   `json:"journal"`
	// Work makes a handler take some time, as real handlers do. Without it a handler answers at once.
	Work bool `json:"work"`
	// EarlyAck removes "confirm before ack": a failed message is acked before its next hop is written.
	EarlyAck bool `json:"earlyAck"`
	// Variant is specific to the connector, such as the group's balance strategy.
	Variant string `json:"variant"`
	// Instance makes it a static member, if the broker supports that.
	Instance string          `json:"instance"`
	Steps    []time.Duration `json:"steps"`
	Load     load            `json:"load"`
}

func (c consumerConfig) policy() redeliver.Policy {
	return redeliver.Policy{Outage: redeliver.Outage{Off: true}, MaxRetries: maxRetries, Backoff: redeliver.Steps(c.Steps...), Levels: c.Steps}
}

// connector opens a broker's adapter in a consumer, with a client whose traffic the watcher sees.
type connector func(ctx context.Context, cfg consumerConfig, s *watcher) (consumer.Client, error)

var connectors = map[string]connector{"kafka": connectKafka, "kafkashare": connectKafkaShare, "rabbitmq": connectRabbitMQ, "sqs": connectSQS, "redis": connectRedis}

// consume runs a consumer. It ends gracefully on SIGTERM or when its parent has ended.
func consume(ctx context.Context, cfg consumerConfig) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	j, err := openJournal(cfg.Journal)
	if err != nil {
		return err
	}
	s := newWatcher(j)
	go s.watch()
	go consumer.ReadCommands(s.readOrder, cancel)
	client, err := connectors[cfg.Broker](ctx, cfg, s)
	if err != nil {
		return err
	}
	var sub message.Subscriber = client
	var besides []message.HandlerMiddleware
	if cfg.EarlyAck {
		besides = append(besides, ackEarly)
		sub = earlyAcker{sub}
	}
	sub = leavingSubscriber{sub, s}
	h := &handler{watcher: s, work: cfg.Work, takes: cfg.Load.Takes}
	if err := consumer.Route(ctx, cfg.Topic, sub, h.handle, besides...); err != nil {
		return err
	}
	end, cancelEnd := context.WithTimeout(context.Background(), toEnd)
	defer cancelEnd()
	return client.End(end)
}

// leavingSubscriber delivers no more messages when the process ends, as a service's own loop would. The Router would continue
// until its subscriber closes the channel, and run a handler for every available message.
type leavingSubscriber struct {
	message.Subscriber
	watcher *watcher
}

func (s leavingSubscriber) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	in, err := s.Subscriber.Subscribe(ctx, topic)
	if err != nil {
		return nil, err
	}
	out := make(chan *message.Message)
	go func() {
		defer close(out)
		for {
			select {
			case <-s.watcher.stopping:
				<-ctx.Done() // a closed channel would end the Router before SIGTERM does
				return
			case msg, ok := <-in:
				if !ok {
					return
				}
				out <- msg // the Router takes it at once
			}
		}
	}()
	return out, nil
}

// earlyAcker removes "confirm before ack". Retry and the Router get a copy of each message. ackEarly runs inside Retry
// and acks the adapter's own message when the handler has failed, so that the write of its next hop comes after the
// ack.
type earlyAcker struct{ message.Subscriber }

type originalKey struct{}

func (s earlyAcker) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	in, err := s.Subscriber.Subscribe(ctx, topic)
	if err != nil {
		return nil, err
	}
	out := make(chan *message.Message)
	go func() {
		defer close(out)
		for original := range in {
			msg := original.Copy()
			msg.SetContext(context.WithValue(original.Context(), originalKey{}, original))
			go func() {
				select {
				case <-msg.Acked():
					original.Ack()
				case <-msg.Nacked():
					original.Nack()
				}
			}()
			out <- msg
		}
	}()
	return out, nil
}

func ackEarly(h message.HandlerFunc) message.HandlerFunc {
	var failed atomic.Int64
	return func(msg *message.Message) ([]*message.Message, error) {
		produced, err := h(msg)
		if err != nil {
			msg.Context().Value(originalKey{}).(*message.Message).Ack()
			if failed.Add(1)%earlyAckEvery == 0 {
				<-time.After(earlyAckLead)
			}
		}
		return produced, err
	}
}

// The subscriber and Retry compete for an acked message that has failed. For every nth failure Retry waits, so that the
// ack certainly counts. If it always did, nothing would be written, and no process would die while it writes.
const (
	earlyAckEvery = 50
	earlyAckLead  = 20 * time.Millisecond
)

type handler struct {
	watcher *watcher
	work    bool
	takes   time.Duration // see load
}

var errRule = errors.New("the message's rule says so")

func (h *handler) handle(msg *message.Message) error {
	now := time.Now()
	st, ok := redeliver.FromContext(msg.Context())
	id := msg.Metadata.Get(headerID)
	if !ok || id == "" {
		return redeliver.Permanent(fmt.Errorf("a message without a state or an id: %v %+v", msg.Metadata, st))
	}
	r := run{id, st.Attempt()}
	h.watcher.setID(st.ID, id)
	h.watcher.journal.write(line{kind: entered, id: id, attempt: r.attempt, at: now, due: st.Due, text: st.ID})
	h.watcher.enter(r)
	defer h.watcher.leave(r)
	if h.takes > 0 {
		if !consumer.Pause(msg.Context(), h.takes) {
			return context.Cause(msg.Context())
		}
	} else if h.work {
		d := takes(r)
		time.Sleep(d / 2) //nolint:forbidigo // This is the work.
		if !h.watcher.mayContinue(msg.Context(), r) {
			return context.Cause(msg.Context())
		}
		time.Sleep(d / 2) //nolint:forbidigo // This is the work.
	} else if !h.watcher.mayContinue(msg.Context(), r) {
		return context.Cause(msg.Context())
	}
	rule := rule(msg.Metadata.Get(headerRule))
	if rule == always || rule == once && r.attempt == 1 {
		h.watcher.journal.write(line{kind: failed, id: id, attempt: r.attempt, at: time.Now()})
		if after, err := time.ParseDuration(msg.Metadata.Get(headerAfter)); err == nil {
			return redeliver.RetryAfter(errRule, after)
		}
		return errRule
	}
	h.watcher.journal.write(line{kind: succeeded, id: id, attempt: r.attempt, at: time.Now()})
	return nil
}

// slowest is the maximum duration of a handler.
const slowest = 250 * time.Millisecond

// takes returns how long a handler works on a message: 1 to 15 ms, and for one of a hundred a quarter of a second, so
// that later messages of its partition are settled before it.
func takes(r run) time.Duration {
	h := fnv.New32a()
	_, _ = h.Write(fmt.Appendf(nil, "%s/%d", r.id, r.attempt))
	n := h.Sum32()
	if n%100 == 0 {
		return slowest
	}
	return time.Duration(1+n/100%15) * time.Millisecond
}
