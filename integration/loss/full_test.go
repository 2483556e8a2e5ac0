//go:build prove

package loss

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redeliver/redeliver/integration/brokers"
	"github.com/redeliver/redeliver/integration/consumer"
)

// filler is a system whose broker can be full.
type filler interface {
	// fill lets the broker take no more; it may die of that.
	fill(ctx context.Context) error
	// empty gives it room again.
	empty(ctx context.Context) error
}

// fill raises the free space that RabbitMQ insists on: it blocks all publishers.
func (r *rabbitSystem) fill(ctx context.Context) error {
	_, err := r.broker.RunCtl(ctx, "set_disk_free_limit", "900000000000000")
	return err
}

func (r *rabbitSystem) empty(ctx context.Context) error {
	_, err := r.broker.RunCtl(ctx, "set_disk_free_limit", "50MB")
	return err
}

// fill lowers the memory that Redis may have: it refuses what would take more.
func (r *redisSystem) fill(ctx context.Context) error {
	return r.client.ConfigSet(ctx, "maxmemory", "1").Err()
}

func (r *redisSystem) empty(ctx context.Context) error {
	return r.client.ConfigSet(ctx, "maxmemory", "0").Err()
}

// fill lets no file of Kafka's grow, and Kafka, with its only disk gone, shuts itself down.
func (k *kafkaSystem) fill(ctx context.Context) error {
	if err := k.broker.LimitFiles(16 << 10); err != nil {
		return err
	}
	for k.broker.Ended() == nil {
		if !consumer.Pause(ctx, 20*time.Millisecond) {
			return fmt.Errorf("kafka lives on a disk that is full: %w", context.Cause(ctx))
		}
	}
	return nil
}

func (k *kafkaSystem) empty(ctx context.Context) error { return k.broker.Start(ctx) }

// TestOverloadKafkaFullDisk does what TestOverload does to the brokers that survive a full disk.
func TestOverloadKafkaFullDisk(t *testing.T) {
	t.Parallel()
	own := brokers.OwnKafka(t, brokers.KafkaOptions{})
	if err := own.LimitFiles(1 << 40); errors.Is(err, brokers.ErrNoLimit) { // more than it has
		t.Skip(err)
	}
	fullBroker(t, overloads[0], newKafka(t, own.Addrs(), own, "full", 6))
}

// fullBroker has the broker take no more in the midst of traffic, and a consumer killed meanwhile. Nothing is acked
// then whose next hop is not confirmed: it would be lost with the consumer. The others say that they take nothing in,
// and go on when there is room.
func fullBroker(t *testing.T, o overloaded, sys system) {
	// The last is written 20 s after the first: who has nothing to write does not notice that nothing can be written, and
	// rabbitmqctl has taken 10 s to say that the disk is full.
	const rate = 100
	p := overload(t, o, 2000, 300, 20, strain{SendTimeout: time.Second})
	p.consumers = 3
	c, ctx := begin(t, sys, p)
	var workers []*worker
	for range p.consumers {
		workers = append(workers, c.start(""))
	}
	if !c.until(ctx, func() bool { return len(c.joined) == p.consumers }) {
		t.Fatal(context.Cause(ctx))
	}
	written := make(chan error, 1)
	go func() { written <- steady(ctx, sys, p.items, rate, 20*time.Millisecond, nil) }()
	if !c.until(ctx, func() bool { return len(c.done) > rate }) {
		t.Fatal(context.Cause(ctx))
	}

	from := time.Now()
	if err := sys.(filler).fill(ctx); err != nil {
		t.Fatal(err)
	}
	if !c.until(ctx, func() bool { return c.shut(from, o.name == "kafka") == p.consumers }) {
		t.Errorf("not every consumer has said that it takes nothing in: %v", context.Cause(ctx))
	}
	victim := workers[0]
	victim.kill()
	_ = victim.await(toEnd) // the run's end tells how it ended
	c.mu.Lock()
	c.victims = append(c.victims, victim.number)
	c.mu.Unlock()
	c.start("")                        // it comes to a broker that is full
	consumer.Pause(ctx, 2*time.Second) // tries to write are given up and made again meanwhile
	full := time.Since(from)           // with what it takes the broker to say so
	if err := sys.(filler).empty(ctx); err != nil {
		t.Fatal(err)
	}
	c.mu.Lock()
	c.outages = append(c.outages, outage{from, time.Now()})
	c.mu.Unlock()
	if err := <-written; err != nil {
		t.Errorf("the writer: %v", err)
	}
	out := c.end(ctx)
	most := o.bound(p, out, sys)
	v := wantWhole(t, p, out, most)
	begun := begunWhile(runsOf(out.journal), closedTimes(out.journal))
	t.Logf("report: full: %s: for %.1f s, one of %d consumers killed meanwhile: %d messages, %d lost, %d early, %d runs and %d dead letters again (at most %d are explained); %d writes were refused, %d handlers began while the intake was paused; %.1f s",
		o.name, full.Seconds(), p.consumers, len(p.items), len(v.lost), len(v.early), v.rerun, v.deadAgain, most, count(out.journal, refused, ""), begun, out.took.Seconds())
	if begun > 12 { // one for each queue or partition may have been on its way
		t.Errorf("%d handlers began while the intake was paused", begun)
	}
}

// shut is how many consumers take nothing in, and have said so since then. Where the broker dies, they say so until
// their sessions end, and then that they join again: no two need be at it at the same time. The lock is held.
func (c *chaos) shut(since time.Time, dies bool) int {
	closed := make(map[int]bool)
	for _, l := range c.lines {
		switch {
		case l.kind != told:
		case l.text == intakePaused && l.at.After(since), dies && l.text == disconnected && l.at.After(since):
			closed[l.process] = true
		case l.text == intakeResumed && !dies:
			delete(closed, l.process)
		}
	}
	return len(closed)
}
