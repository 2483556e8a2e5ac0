package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/IBM/sarama"
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/amqp"
	"github.com/redeliver/redeliver/adapters/kafka"
	"github.com/redeliver/redeliver/integration/bench/floor"
)

// nativeName is the way in which a side without Watermill consumes.
type nativeName string

const (
	dropIn   nativeName = "drop-in"  // kafka.Consume, amqp.Consume
	pooled   nativeName = "pool"     // a raw consumer with as many workers as ours has in flight
	called   nativeName = "called"   // a raw consumer that calls the handler itself
	multiple nativeName = "multiple" // the same on RabbitMQ, which acks a hundred at a time
	minimal  nativeName = "floor"    // the minimum that retries need, see package floor
)

// prefetched is the prefetch of both sides of rabbit-consume.
const prefetched = 1000

// consumeRow compares kafka.Consume with a raw consumer.
func consumeRow(raw nativeName, ratio float64) func(context.Context, *experiment) error {
	return func(ctx context.Context, e *experiment) error {
		n := e.scaled(500_000)
		e.notef("the raw consumer marks each record when its handler has returned, even if earlier ones still run: with workers it may lose some in a crash, and keeps no order of keys")
		return e.compare(ctx, native(n, raw, ratio, "sarama, "+string(raw), defaultInFlight))
	}
}

func rabbitConsumeRow(ctx context.Context, e *experiment) error {
	return e.compare(ctx, native(e.scaled(100_000), multiple, 0.9, "amqp091-go", prefetched))
}

// native compares a drop-in with what it replaces.
func native(n int, raw nativeName, ratio float64, name string, inFlight int) comparison {
	return comparison{
		ours: []sideConfig{{side: ours, name: "redeliver", messages: n, ratio: ratio}}, peer: sideConfig{side: peer, name: name, messages: n},
		within: 3 * time.Minute, inFlight: inFlight,
		spec: func(s *spec) {
			if s.Native = dropIn; s.Side == peer {
				s.Native = raw
			}
		},
	}
}

func consumeFailAllRow(ctx context.Context, e *experiment) error {
	return e.failAll(ctx, 20_000, func(s *spec) { s.Router, s.Native = false, dropIn })
}

func (s spec) openNative() (*consumer, error) {
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	c := &consumer{close: func() {
		stop()
		running.Wait()
	}}
	// run starts consume, which ends with ctx; close waits for it.
	run := func(failed func(error), consume func() error) {
		running.Go(func() {
			if err := consume(); err != nil && ctx.Err() == nil {
				failed(err)
			}
		})
	}
	switch {
	case s.System == onRabbit && s.Native == dropIn:
		c.settings = fmt.Sprintf("amqp.Consume, defaults, MaxInFlight (and so prefetch) %d", s.InFlight)
		cfg := amqp.Config{URLs: s.Brokers, Policy: s.policy(), MaxInFlight: s.InFlight}
		c.provision = func() error {
			client, err := amqp.Open(ctx, cfg)
			if err != nil {
				return err
			}
			return errors.Join(client.Subscriber().SubscribeInitialize(s.Topic), client.Close(ctx))
		}
		c.begin = func(h *handling, failed func(error)) error {
			cfg.Sink = h.sink()
			run(failed, func() error {
				return amqp.Consume(ctx, cfg, []string{s.Topic}, func(ctx context.Context, d amqp091.Delivery) error { return h.handleNative(ctx, d.Body) })
			})
			return nil
		}
	case s.System == onRabbit:
		return s.openRawRabbit(ctx, c, run)
	case s.Native == dropIn:
		c.settings = fmt.Sprintf("kafka.Consume, defaults, MaxInFlight %d", s.InFlight)
		c.begin = func(h *handling, failed func(error)) error {
			client, err := s.rawClient()
			if err != nil {
				return err
			}
			cfg := s.config(h.sink())
			cfg.Brokers = nil // the client knows them
			run(failed, func() error {
				return errors.Join(kafka.Consume(ctx, client, cfg, []string{s.Topic}, func(ctx context.Context, rec *sarama.ConsumerMessage) error {
					return h.handleNative(ctx, rec.Value)
				}), client.Close())
			})
			return nil
		}
	case s.Native == minimal:
		c.settings = "by hand: offset tracker, level reader, async producer"
		c.begin = func(h *handling, failed func(error)) error {
			run(failed, func() error { return floor.Run(ctx, s.floor(h)) })
			return nil
		}
	case s.Native == franz:
		c.settings = "franz-go's defaults, from the start, each record marked when it is handled"
		c.begin = func(h *handling, failed func(error)) error { return s.beginFranz(ctx, h, run, failed) }
	default:
		c.settings = fmt.Sprintf("sarama's defaults, Offsets.Initial oldest, %s", s.Native)
		c.begin = func(h *handling, failed func(error)) error { return s.beginRawKafka(ctx, h, run, failed) }
	}
	return c, nil
}

// handleNative is handle for a handler of native records.
func (h *handling) handleNative(ctx context.Context, value []byte) error {
	now := time.Now()
	h.meter.enter(value)
	if h.spec.Failing.Every > 0 {
		st, ok := redeliver.FromContext(ctx)
		if !ok {
			return errNoState
		}
		if err := h.attempt(value, now, st.Attempts, st.Due); err != nil {
			return err
		}
	}
	h.meter.settle()
	return nil
}

func (s spec) rawClient() (sarama.Client, error) {
	cfg := sarama.NewConfig()
	cfg.Consumer.Offsets.Initial = sarama.OffsetOldest
	return sarama.NewClient(s.Brokers, cfg)
}

func (s spec) beginRawKafka(ctx context.Context, h *handling, run func(func(error), func() error), failed func(error)) error {
	client, err := s.rawClient()
	if err != nil {
		return err
	}
	group, err := sarama.NewConsumerGroupFromClient(s.Group, client)
	if err != nil {
		return err
	}
	raw := &rawGroup{h: h}
	if s.Native == pooled {
		raw.workers = s.InFlight
	}
	run(failed, func() error {
		var err error
		for ctx.Err() == nil && err == nil {
			err = group.Consume(ctx, []string{s.Topic}, raw)
		}
		return errors.Join(err, group.Close(), client.Close())
	})
	return nil
}

// rawGroup is a consumer as services write them. workers is for all partitions together; 0 calls the handler in the
// claim's own loop.
type rawGroup struct {
	h       *handling
	workers int
	jobs    chan rawJob
	busy    sync.WaitGroup
}

type rawJob struct {
	sess sarama.ConsumerGroupSession
	msg  *sarama.ConsumerMessage
}

func (r *rawGroup) Setup(sarama.ConsumerGroupSession) error {
	r.jobs = make(chan rawJob, r.workers)
	for range r.workers {
		r.busy.Go(func() {
			for j := range r.jobs {
				r.handle(j)
			}
		})
	}
	return nil
}

func (r *rawGroup) Cleanup(sarama.ConsumerGroupSession) error {
	close(r.jobs)
	r.busy.Wait()
	return nil
}

func (r *rawGroup) ConsumeClaim(sess sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for msg := range claim.Messages() {
		if r.workers == 0 {
			r.handle(rawJob{sess, msg})
		} else {
			r.jobs <- rawJob{sess, msg}
		}
	}
	return nil
}

func (r *rawGroup) handle(j rawJob) {
	if r.h.handleNative(j.sess.Context(), j.msg.Value) == nil {
		j.sess.MarkMessage(j.msg, "")
	}
}

// openRawRabbit acks a hundred messages at a time, or fewer after 10 ms.
func (s spec) openRawRabbit(ctx context.Context, c *consumer, run func(func(error), func() error)) (*consumer, error) {
	conn, err := amqp091.Dial(s.Brokers[0])
	if err != nil {
		return nil, err
	}
	stop := c.close
	c.close = func() {
		stop()
		_ = conn.Close()
	}
	ch, err := conn.Channel()
	if err != nil {
		return nil, err
	}
	c.settings = fmt.Sprintf("amqp091-go, prefetch %d, an ack with multiple for a hundred or after 10 ms", s.InFlight)
	c.provision = func() error {
		_, err := ch.QueueDeclare(s.Topic, true, false, false, false, amqp091.Table{amqp091.QueueTypeArg: amqp091.QueueTypeQuorum})
		return err
	}
	c.begin = func(h *handling, failed func(error)) error {
		if err := ch.Qos(s.InFlight, 0, false); err != nil {
			return err
		}
		in, err := ch.Consume(s.Topic, "", false, false, false, false, nil)
		if err != nil {
			return err
		}
		run(failed, func() error { return h.ackMany(ctx, ch, in) })
		return nil
	}
	return c, nil
}

func (h *handling) ackMany(ctx context.Context, ch *amqp091.Channel, in <-chan amqp091.Delivery) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	var open int
	var last uint64
	for {
		enough := 100
		select {
		case d, ok := <-in:
			if !ok {
				return errors.New("the channel is closed")
			}
			if err := h.handleNative(ctx, d.Body); err != nil {
				return err
			}
			open, last = open+1, d.DeliveryTag
		case <-tick.C:
			enough = 1
		case <-ctx.Done():
			return nil
		}
		if open >= enough {
			if err := ch.Ack(last, true); err != nil {
				return err
			}
			open = 0
		}
	}
}
