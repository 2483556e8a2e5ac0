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
	// fill makes the broker refuse messages. The broker may die of it.
	fill(ctx context.Context) error
	// empty makes room again.
	empty(ctx context.Context) error
}

// fill raises the free space that RabbitMQ requires, so that it blocks all publishers.
func (r *rabbitSystem) fill(ctx context.Context) error {
	_, err := r.broker.RunCtl(ctx, "set_disk_free_limit", "900000000000000")
	return err
}

func (r *rabbitSystem) empty(ctx context.Context) error {
	_, err := r.broker.RunCtl(ctx, "set_disk_free_limit", "50MB")
	return err
}

// fill lowers the memory that Redis may use, so that it refuses commands that need more.
func (r *redisSystem) fill(ctx context.Context) error {
	return r.client.ConfigSet(ctx, "maxmemory", "1").Err()
}

func (r *redisSystem) empty(ctx context.Context) error {
	return r.client.ConfigSet(ctx, "maxmemory", "0").Err()
}

// fill prevents Kafka's files from growing. Kafka shuts itself down, because its only disk has failed.
func (k *kafkaSystem) fill(ctx context.Context) error {
	if err := k.broker.LimitFiles(16 << 10); err != nil {
		return err
	}
	for k.broker.Ended() == nil {
		if !consumer.Pause(ctx, 20*time.Millisecond) {
			return fmt.Errorf("kafka still runs although its disk is full: %w", context.Cause(ctx))
		}
	}
	return nil
}

func (k *kafkaSystem) empty(ctx context.Context) error { return k.broker.Start(ctx) }

// TestOverloadKafkaFullDisk is the part of TestOverload for a broker that does not survive a full disk.
func TestOverloadKafkaFullDisk(t *testing.T) {
	t.Parallel()
	own := brokers.OwnKafka(t, brokers.KafkaOptions{})
	if err := own.LimitFiles(1 << 40); errors.Is(err, brokers.ErrNoLimit) { // larger than any of its files
		t.Skip(err)
	}
	fullBroker(t, overloads[0], newKafka(t, own.Addrs(), own, "full", 6))
}

// fullBroker makes the broker refuse messages during traffic, and kills a consumer meanwhile. A message that was acked
// before its next hop was confirmed would be lost with that consumer. The others report that they have paused, and
// continue when there is room.
func fullBroker(t *testing.T, o overloaded, sys system) {
	// The last is written 20 s after the first. A consumer without writes does not notice that the broker is full, and
	// rabbitmqctl has taken 10 s to report the full disk.
	const rate = 100
	p := overload(t, o, 2000, 300, 20, load{SendTimeout: time.Second})
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
	if !c.until(ctx, func() bool { return c.numPausedLocked(from, o.name == "kafka") == p.consumers }) {
		t.Errorf("not every consumer has reported a paused intake: %v", context.Cause(ctx))
	}
	target := workers[0]
	target.kill()
	_ = target.await(toEnd) // the end of the run reports how it ended
	c.mu.Lock()
	c.killedWorkers = append(c.killedWorkers, target.number)
	c.mu.Unlock()
	c.start("")                        // it connects to a broker that is full
	consumer.Pause(ctx, 2*time.Second) // meanwhile writes fail and are tried again
	full := time.Since(from)           // including the time until the broker is full
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
	if begun > 12 { // one for each queue or partition may have been under way
		t.Errorf("%d handlers began while the intake was paused", begun)
	}
}

// numPausedLocked returns how many consumers have reported since that time that they are paused. If the broker dies, they
// report that until their sessions end. Then they report that they join again, not necessarily at the same time.
func (c *chaos) numPausedLocked(since time.Time, dies bool) int {
	closed := make(map[int]bool)
	for _, l := range c.lines {
		switch {
		case l.kind != changed:
		case l.text == intakePaused && l.at.After(since), dies && l.text == disconnected && l.at.After(since):
			closed[l.process] = true
		case l.text == intakeResumed && !dies:
			delete(closed, l.process)
		}
	}
	return len(closed)
}
