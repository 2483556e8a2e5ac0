package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/amqp"
	"github.com/redeliver/redeliver/delayqueue"
	"github.com/redeliver/redeliver/driver"
)

// rabbit is the RabbitMQ that all of its rows share, seen through bare amqp091-go.
type rabbit struct {
	url    string
	conn   *amqp091.Connection
	prefix string // of all queues of this run of the program
	serial int
}

func dialRabbit(url string) (*rabbit, error) {
	conn, err := amqp091.Dial(url)
	if err != nil {
		return nil, fmt.Errorf("rabbitmq: %w", err)
	}
	return &rabbit{url: url, conn: conn, prefix: "bench-" + strconv.FormatInt(time.Now().UnixMilli(), 36)}, nil
}

func (r *rabbit) close() { _ = r.conn.Close() }

func (r *rabbit) addresses() []string { return []string{r.url} }

func (r *rabbit) version(context.Context) string {
	return fmt.Sprintf("%v %v", r.conn.Properties["product"], r.conn.Properties["version"])
}

// fresh only returns a name: the side that reads the queue declares it.
func (r *rabbit) fresh(_ context.Context, row string) (names, error) {
	r.serial++
	queue := fmt.Sprintf("%s-%s-%d", r.prefix, row, r.serial)
	return names{topic: queue, ours: queue, peer: queue}, nil
}

// unconfirmed is the maximum number of messages that wait for the broker's confirm.
const unconfirmed = 2000

// publisher writes persistent messages to a queue.
type publisher struct {
	channel  *amqp091.Channel
	queue    string
	state    *redeliver.State // of messages that already wait; nil for new ones
	writer   *writer
	waiting  [unconfirmed]*amqp091.DeferredConfirmation
	confirms int // how many of them were waited for
}

func (r *rabbit) publisher(queue string) (*publisher, error) {
	channel, err := r.conn.Channel()
	if err != nil {
		return nil, err
	}
	return &publisher{channel: channel, queue: queue, writer: newWriter()}, channel.Confirm(false)
}

func (p *publisher) close() { _ = p.channel.Close() }

// write writes the message of an id; ids count from 0.
func (p *publisher) write(ctx context.Context, id int) error {
	if id >= unconfirmed {
		if err := p.confirm(ctx); err != nil {
			return err
		}
	}
	headers := amqp091.Table{uuidHeader: string(uuidOf(uint64(id)))}
	if p.state != nil {
		st := *p.state
		st.ID = string(uuidOf(uint64(id)))
		for _, h := range driver.AppendStateHeaders(st, nil) {
			headers[h.Name] = h.Value
		}
		headers[amqp.HeaderExchange], headers[amqp.HeaderRoutingKey] = "", st.Origin
	}
	c, err := p.channel.PublishWithDeferredConfirm("", p.queue, false, false, amqp091.Publishing{
		Headers: headers, DeliveryMode: amqp091.Persistent, Body: p.writer.value(uint64(id)),
	})
	p.waiting[id%unconfirmed] = c
	return err
}

// confirm waits for the oldest confirm.
func (p *publisher) confirm(ctx context.Context) error {
	ok, err := p.waiting[p.confirms%unconfirmed].WaitContext(ctx)
	if err != nil || !ok {
		return fmt.Errorf("writing message %d to %s: not confirmed: %w", p.confirms, p.queue, errors.Join(err, ctx.Err()))
	}
	p.confirms++
	return nil
}

// finish waits for the rest of the confirms.
func (p *publisher) finish(ctx context.Context) (written, error) {
	w := p.writer.written()
	for p.confirms < w.count {
		if err := p.confirm(ctx); err != nil {
			return written{}, err
		}
	}
	return w, nil
}

func (r *rabbit) preload(ctx context.Context, queue string, n int) (written, error) {
	return r.write(ctx, queue, nil, n)
}

// fillLevel writes n messages that failed just now and wait on a level until due.
func (r *rabbit) fillLevel(ctx context.Context, s spec, n int, level time.Duration, due time.Time) (written, error) {
	st := s.failedOnce(due)
	return r.write(ctx, s.Topic+".retry."+delayqueue.LevelName(level), &st, n)
}

func (r *rabbit) write(ctx context.Context, queue string, st *redeliver.State, n int) (written, error) {
	p, err := r.publisher(queue)
	if err != nil {
		return written{}, err
	}
	defer p.close()
	p.state = st
	for id := range n {
		if err := p.write(ctx, id); err != nil {
			return written{}, err
		}
	}
	return p.finish(ctx)
}

func (r *rabbit) steady(ctx context.Context, queue string, rate int, d time.Duration) (written, error) {
	p, err := r.publisher(queue)
	if err != nil {
		return written{}, err
	}
	defer p.close()
	err = steadily(ctx, rate, d, func(first, end int) error {
		for id := first; id < end; id++ {
			if err := p.write(ctx, id); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return written{}, err
	}
	return p.finish(ctx)
}

// queuesOf returns a queue and all queues that either side may have made for it, except the DLQ.
func queuesOf(queue string) []string {
	all := []string{queue, queue + ".retry", queue + ".retry.suspects", grmqRetryQueue(queue)}
	for _, level := range []string{"1s", "5s", "15s", "1m", "1m1s", "10m", "1h"} {
		all = append(all, queue+".retry."+level)
	}
	return all
}

// dlqOf returns the name of a side's DLQ.
func dlqOf(s spec) string {
	if s.Side == peer {
		return grmqDLQ(s.Topic)
	}
	return s.Topic + ".dlq"
}

// unsettled counts the messages in the queues, after the side's unacked messages have come back.
func (r *rabbit) unsettled(ctx context.Context, s spec) (int64, error) {
	before := int64(-1)
	again := time.NewTicker(200 * time.Millisecond)
	defer again.Stop()
	for {
		var now int64
		for _, queue := range queuesOf(s.Topic) {
			n, err := r.depth(queue)
			if err != nil {
				return 0, err
			}
			now += int64(n)
		}
		if now == before {
			return now, nil
		}
		before = now
		select {
		case <-again.C:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

// depth returns the number of messages that are ready in a queue, 0 for a missing queue.
func (r *rabbit) depth(queue string) (int, error) {
	channel, err := r.conn.Channel()
	if err != nil {
		return 0, err
	}
	defer func() { _ = channel.Close() }()
	q, err := channel.QueueDeclarePassive(queue, true, false, false, false, nil)
	if e, ok := errors.AsType[*amqp091.Error](err); ok && e.Code == amqp091.NotFound {
		return 0, nil
	}
	return q.Messages, err
}

// dead reads the DLQ until nothing has come for a second: grmq's is filled by the broker, a little later.
func (r *rabbit) dead(ctx context.Context, s spec) (*contents, error) {
	channel, err := r.conn.Channel()
	if err != nil {
		return nil, err
	}
	defer func() { _ = channel.Close() }()
	queue := dlqOf(s)
	if err := channel.Qos(1000, 0, false); err != nil {
		return nil, err
	}
	deliveries, err := channel.ConsumeWithContext(ctx, queue, "", false, false, false, false, nil)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", queue, err)
	}
	found := &contents{distinct: make(map[uint64]int)}
	quiet := time.NewTimer(time.Second)
	defer quiet.Stop()
	for {
		select {
		case d, ok := <-deliveries:
			if !ok {
				return found, fmt.Errorf("reading %s: the channel was closed: %w", queue, ctx.Err())
			}
			found.add(d.Body)
			if err := d.Ack(false); err != nil {
				return found, err
			}
			quiet.Reset(time.Second)
		case <-quiet.C:
			return found, nil
		}
	}
}

func (r *rabbit) drop(_ context.Context, n names) error {
	channel, err := r.conn.Channel()
	if err != nil {
		return err
	}
	defer func() { _ = channel.Close() }()
	for _, queue := range append(queuesOf(n.topic), n.topic+".dlq", grmqDLQ(n.topic)) {
		if _, err := channel.QueueDelete(queue, false, false, false); err != nil {
			return err
		}
	}
	return nil
}
