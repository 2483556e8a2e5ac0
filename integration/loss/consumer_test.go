package loss

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/middleware"
)

// envConsumer makes this test binary a consumer: its value is a consumerConfig.
const envConsumer = "REDELIVER_LOSS_CONSUMER"

func TestMain(m *testing.M) {
	if text := os.Getenv(envConsumer); text != "" {
		os.Exit(consume(text))
	}
	os.Exit(m.Run())
}

// consumerConfig is what a consumer process is told.
type consumerConfig struct {
	Broker  string   `json:"broker"` // whose connector
	Addrs   []string `json:"addrs"`
	Topic   string   `json:"topic"`
	Group   string   `json:"group"`
	Journal string   `json:"journal"`
	// Work lets a handler take its time, as handlers do. Without it answers at once.
	Work bool `json:"work"`
	// EarlyAck takes out "confirm before ack": a failed message is acked before its next hop is written.
	EarlyAck bool `json:"earlyAck"`
	// Variant is the connector's own matter: the way in which a group balances, say.
	Variant string `json:"variant"`
	// Instance makes it a static member where the broker knows such.
	Instance string          `json:"instance"`
	Steps    []time.Duration `json:"steps"`
	Strain   strain          `json:"strain"`
}

func (c consumerConfig) policy() redeliver.Policy {
	return redeliver.Policy{MaxRetries: maxRetries, Backoff: redeliver.Steps(c.Steps...), Levels: c.Steps}
}

// connector opens a broker's adapter in a consumer, with a client whose traffic the spy sees.
type connector func(ctx context.Context, cfg consumerConfig, s *spy) (message.Subscriber, func(context.Context) error, error)

var connectors = map[string]connector{"kafka": connectKafka, "rabbitmq": connectRabbitMQ, "sqs": connectSQS, "redis": connectRedis}

// consume is a whole consumer: it ends in order, with 0, on SIGTERM or when its parent is gone.
func consume(text string) int {
	if err := consumer(text); err != nil {
		fmt.Fprintf(os.Stderr, "%s consumer: %v\n", clock(), err)
		return 1
	}
	return 0
}

func consumer(text string) error {
	var cfg consumerConfig
	if err := json.Unmarshal([]byte(text), &cfg); err != nil {
		return fmt.Errorf("reading %s: %w", envConsumer, err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	j, err := openJournal(cfg.Journal)
	if err != nil {
		return err
	}
	s := newSpy(j)
	go s.watch()
	go obey(s, cancel)

	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: 10 * time.Second}, watermill.NewSlogLogger(log))
	if err != nil {
		return err
	}
	router.AddMiddleware(middleware.Retry())
	sub, closeClient, err := connectors[cfg.Broker](ctx, cfg, s)
	if err != nil {
		return err
	}
	if cfg.EarlyAck {
		router.AddMiddleware(ackEarly)
		sub = earlyAcker{sub}
	}
	sub = leaver{sub, s}
	h := &handler{spy: s, work: cfg.Work, takes: cfg.Strain.Takes}
	router.AddConsumerHandler("loss", cfg.Topic, sub, h.handle)
	if err := router.Run(ctx); err != nil {
		return err
	}
	end, cancelEnd := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancelEnd()
	return closeClient(end)
}

// obey reads orders until the parent is gone.
func obey(s *spy, gone func()) {
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		o, err := parseOrder(in.Text())
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		s.arm(o)
	}
	gone()
}

// leaver takes nothing more when the process ends, as a service's own loop does that has left. The Router would go on
// until its subscriber closes the channel, and whatever lies ready would find a handler.
type leaver struct {
	message.Subscriber
	spy *spy
}

func (s leaver) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	in, err := s.Subscriber.Subscribe(ctx, topic)
	if err != nil {
		return nil, err
	}
	out := make(chan *message.Message)
	go func() {
		defer close(out)
		for {
			select {
			case <-s.spy.over:
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

// earlyAcker takes "confirm before ack" out. Retry and the Router get a copy of each message; ackEarly stands inside
// Retry and acks the adapter's own message when the handler has failed, so that the write of its next hop comes after.
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
	return func(msg *message.Message) ([]*message.Message, error) {
		produced, err := h(msg)
		if err != nil {
			msg.Context().Value(originalKey{}).(*message.Message).Ack()
		}
		return produced, err
	}
}

type handler struct {
	spy   *spy
	work  bool
	takes time.Duration // see strain
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
	h.spy.name(st.ID, id)
	h.spy.journal.write(line{kind: entered, id: id, attempt: r.attempt, at: now, due: st.Due, text: st.ID})
	h.spy.enter(r)
	defer h.spy.leave(r)
	if h.takes > 0 {
		if !pause(msg.Context(), h.takes) {
			return context.Cause(msg.Context())
		}
	} else if h.work {
		d := takes(r)
		time.Sleep(d / 2) //nolint:forbidigo // This is the work.
		if !h.spy.inside(msg.Context(), r) {
			return context.Cause(msg.Context())
		}
		time.Sleep(d / 2) //nolint:forbidigo // This is the work.
	} else if !h.spy.inside(msg.Context(), r) {
		return context.Cause(msg.Context())
	}
	rule := rule(msg.Metadata.Get(headerRule))
	if rule == always || rule == once && r.attempt == 1 {
		h.spy.journal.write(line{kind: failed, id: id, attempt: r.attempt, at: time.Now()})
		if after, err := time.ParseDuration(msg.Metadata.Get(headerAfter)); err == nil {
			return redeliver.RetryAfter(errRule, after)
		}
		return errRule
	}
	h.spy.journal.write(line{kind: succeeded, id: id, attempt: r.attempt, at: time.Now()})
	return nil
}

// slowest is the longest that a handler works.
const slowest = 250 * time.Millisecond

// takes is how long a handler works on a message: 1 to 15 ms, and one of a hundred a quarter of a second, so that later
// messages of its partition are settled before it.
func takes(r run) time.Duration {
	h := fnv.New32a()
	_, _ = h.Write(fmt.Appendf(nil, "%s/%d", r.id, r.attempt))
	n := h.Sum32()
	if n%100 == 0 {
		return slowest
	}
	return time.Duration(1+n/100%15) * time.Millisecond
}
