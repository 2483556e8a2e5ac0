package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/amqp"
)

const (
	// brokersLevel is the shortest round level that the broker itself hands on: up to a
	// minute the subscriber reads it.
	brokersLevel = 61 * time.Second
	// perQueue is the rate that mq.Plan gives for a queue.
	perQueue = 2500
)

// rabbitLevelRow fills the queue of a level as our client declares it, faster than the broker can
// empty it, and reads where its messages come back.
func rabbitLevelRow(ctx context.Context, e *experiment) error {
	r, ok := e.broker.(*rabbit)
	if !ok {
		return fmt.Errorf("%s is not a row of RabbitMQ", e.row.name)
	}
	n := e.scaled(40_000)
	e.notef("%s messages on a level of %s; from the first that comes back until the last has; the reader is bare amqp091-go", count(n), brokersLevel)
	for run := range e.options.runs {
		rate, filled, err := r.measureForwarding(ctx, e.row.name, n)
		if err != nil {
			return err
		}
		e.sayf("run %d: %.0f msg/s handed on, written at %.0f msg/s", run+1, rate, filled)
		if filled < rate {
			e.problemf("run %d: written at %.0f msg/s, handed on at %.0f: this measures the writer", run+1, filled, rate)
			continue
		}
		e.add("handed on", "msg/s", atLeast(perQueue), rate)
	}
	return nil
}

// measureForwarding returns how many messages came back in a second, and at what rate they had been written.
func (r *rabbit) measureForwarding(ctx context.Context, row string, n int) (rate, filled float64, err error) {
	t, err := r.fresh(ctx, row)
	if err != nil {
		return 0, 0, err
	}
	client, err := amqp.Open(ctx, amqp.Config{URLs: []string{r.url}, Policy: redeliver.Policy{
		MaxRetries: 1, Backoff: redeliver.Fixed(brokersLevel), Levels: []time.Duration{brokersLevel},
	}})
	if err != nil {
		return 0, 0, err
	}
	err = errors.Join(client.Subscriber().SubscribeInitialize(t.topic), client.Close(ctx))
	defer func() { err = errors.Join(err, r.drop(context.WithoutCancel(ctx), t)) }()
	if err != nil {
		return 0, 0, err
	}
	begun := time.Now()
	w, err := r.preload(ctx, t.topic+".retry.1m1s", n)
	if err != nil {
		return 0, 0, err
	}
	filled = float64(n) / time.Since(begun).Seconds()
	ctx, cancel := context.WithTimeout(ctx, brokersLevel+5*time.Minute)
	defer cancel()
	back, took, err := r.readReturned(ctx, t.topic+".retry", n)
	if err != nil {
		return 0, 0, err
	}
	if back.records != n || back.sum != w.sum {
		return 0, 0, fmt.Errorf("%d of %d messages came back from the level, or other ones", back.records, n)
	}
	return float64(n-1) / took.Seconds(), filled, nil
}

// readReturned reads n messages of a queue, and returns the time from the first to the last.
func (r *rabbit) readReturned(ctx context.Context, queue string, n int) (*contents, time.Duration, error) {
	channel, err := r.conn.Channel()
	if err != nil {
		return nil, 0, err
	}
	defer func() { _ = channel.Close() }()
	if err := channel.Qos(1000, 0, false); err != nil {
		return nil, 0, err
	}
	deliveries, err := channel.ConsumeWithContext(ctx, queue, "", false, false, false, false, nil)
	if err != nil {
		return nil, 0, fmt.Errorf("reading %s: %w", queue, err)
	}
	found := &contents{distinct: make(map[uint64]int)}
	var first time.Time
	for found.records < n {
		var d amqp091.Delivery
		var ok bool
		select {
		case d, ok = <-deliveries:
		case <-ctx.Done():
		}
		if !ok {
			return found, 0, fmt.Errorf("reading %s: %d of %d messages came: %w", queue, found.records, n, context.Cause(ctx))
		}
		if found.records == 0 {
			first = time.Now()
		}
		found.add(d.Body)
		if found.records%100 == 0 || found.records == n {
			if err := d.Ack(true); err != nil {
				return found, 0, err
			}
		}
	}
	return found, time.Since(first), nil
}
