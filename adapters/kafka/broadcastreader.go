package kafka

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/IBM/sarama"
	"github.com/cenkalti/backoff/v4"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/delayqueue"
)

// lookForPartitions is how often a broadcast consumer asks for partitions that its
// topic did not have before.
const lookForPartitions = time.Minute

// broadcastReader is one Subscribe of a Broadcast: it reads every partition.
type broadcastReader struct {
	b        *Broadcast
	topic    string
	consumer sarama.Consumer
	sub      *delayqueue.Subscription
	air      *delayqueue.Broadcast
	first    []*broadcastPartition // those that the topic has at the start
	calls    sync.WaitGroup        // of sarama, which are not waited for when it ends

	lost atomic.Int64 // partitions that cannot be read
}

// broadcastPartition is one of them. It belongs to the goroutine that reads it.
type broadcastPartition struct {
	r      *broadcastReader
	number int32
	next   int64 // the offset that is read next
	in     sarama.PartitionConsumer
	lost   bool
}

// reader makes what reads a topic, and settles where it begins.
func (b *Broadcast) reader(ctx context.Context, topic string) (*broadcastReader, error) {
	consumer, err := sarama.NewConsumerFromClient(b.client)
	if err != nil {
		return nil, fmt.Errorf("kafka: reading %s: %w", topic, err)
	}
	r := &broadcastReader{
		b: b, topic: topic, consumer: consumer,
		sub: &delayqueue.Subscription{Origin: topic, Policy: b.policy, Sink: b.cfg.Sink, Tracer: b.cfg.Tracer, MaxInFlight: b.cfg.MaxInFlight},
	}
	r.air = delayqueue.NewBroadcast(ctx, r.sub)
	numbers, err := consumer.Partitions(topic)
	if err != nil {
		r.close()
		return nil, fmt.Errorf("kafka: asking for the partitions of %s: %w; it must exist", topic, err)
	}
	for _, number := range numbers {
		p, err := r.partition(number, b.cfg.Sarama.Consumer.Offsets.Initial)
		if err != nil {
			r.close()
			return nil, fmt.Errorf("kafka: %w", err)
		}
		r.first = append(r.first, p)
	}
	return r, nil
}

// close ends a reader that nobody runs.
func (r *broadcastReader) close() {
	shutAll(r.first)
	_ = r.consumer.Close() // always nil: the client is not its own
}

// partition begins to read a partition at an offset, or at the oldest or newest.
func (r *broadcastReader) partition(number int32, from int64) (*broadcastPartition, error) {
	p := &broadcastPartition{r: r, number: number, next: from}
	if from < 0 {
		var err error
		if p.next, err = r.b.client.GetOffset(r.topic, number, from); err != nil {
			return nil, fmt.Errorf("asking where %s/%d begins or ends: %w", r.topic, number, err)
		}
	}
	var err error
	p.in, err = p.begin()
	return p, err
}

func (p *broadcastPartition) begin() (sarama.PartitionConsumer, error) {
	in, err := p.r.consumer.ConsumePartition(p.r.topic, p.number, p.next)
	if err != nil {
		return nil, fmt.Errorf("reading %s/%d from offset %d: %w", p.r.topic, p.number, p.next, err)
	}
	return in, nil
}

// shut ends the reading of a partition, and returns when sarama has let go of it: when
// the fetch that is under way has been answered.
func shut(in sarama.PartitionConsumer) {
	in.AsyncClose()
	for range in.Messages() { // read again, or not at all
		continue
	}
	for range in.Errors() {
		continue
	}
}

func shutAll(all []*broadcastPartition) {
	for _, p := range all {
		p.in.AsyncClose() // at once
	}
	for _, p := range all {
		shut(p.in)
	}
}

// run reads until ctx ends, then waits for what is in hand. What sarama does meanwhile,
// and takes no context, is left to end by itself.
func (r *broadcastReader) run(ctx context.Context) {
	defer r.b.calls.Go(func() {
		r.calls.Wait()
		_ = r.consumer.Close() // always nil: the client is not its own
	})
	r.tell("consuming", fmt.Sprintf("%d partitions, as a broadcast consumer", len(r.first)), nil)
	r.air.Run(ctx, r.b.cfg.DrainTimeout, func(ctx context.Context) {
		var all sync.WaitGroup
		known := make([]int32, 0, len(r.first))
		for _, p := range r.first {
			known = append(known, p.number)
			all.Go(func() { p.keep(ctx) })
		}
		tick := time.NewTicker(r.b.lookEvery)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				found, _ := until(ctx, r.calls.Go, func() ([]*broadcastPartition, error) { return r.newPartitions(known), nil }, shutAll)
				for _, p := range found {
					known = append(known, p.number)
					r.tell("consuming", fmt.Sprintf("a new partition, %s/%d", r.topic, p.number), nil)
					all.Go(func() { p.keep(ctx) })
				}
			case <-ctx.Done():
				all.Wait()
				return
			}
		}
	})
}

// newPartitions begins to read the partitions of the topic that are not known.
func (r *broadcastReader) newPartitions(known []int32) (found []*broadcastPartition) {
	if r.b.client.RefreshMetadata(r.topic) != nil {
		return nil // the readers of the others tell what is wrong
	}
	all, err := r.consumer.Partitions(r.topic)
	if err != nil {
		return nil
	}
	for _, number := range all {
		if slices.Contains(known, number) {
			continue
		}
		// What stands there was written after Subscribe.
		if p, err := r.partition(number, sarama.OffsetOldest); err == nil { // or with the next look
			found = append(found, p)
		}
	}
	return found
}

// keep reads a partition until ctx ends. sarama tries again what fails, but for an
// offset that the broker does not have any more.
func (p *broadcastPartition) keep(ctx context.Context) {
	pause := backoff.NewExponentialBackOff(backoff.WithInitialInterval(20*time.Millisecond),
		backoff.WithMaxInterval(5*time.Second), backoff.WithMaxElapsedTime(0))
	for {
		if in := p.in; in != nil {
			p.read(ctx)
			p.in = nil
			if _, err := until(ctx, p.r.calls.Go, func() (struct{}, error) { shut(in); return struct{}{}, nil }, nil); err != nil {
				return
			}
		}
		timer := time.NewTimer(pause.NextBackOff())
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
		in, err := until(ctx, p.r.calls.Go, p.again, shut)
		if err != nil && ctx.Err() != nil {
			return // and p is the call's
		}
		p.in = in
		p.found(err)
	}
}

// again begins to read where it has ended.
func (p *broadcastPartition) again() (sarama.PartitionConsumer, error) {
	if err := p.place(); err != nil {
		return nil, err
	}
	return p.begin()
}

// read hands on what comes until ctx ends or the partition does.
func (p *broadcastPartition) read(ctx context.Context) {
	quiet := time.NewTimer(0)
	defer quiet.Stop()
	for {
		select {
		case <-quiet.C: // nothing to read is no error, and nobody says when the errors are over
			p.found(nil)
		case m, ok := <-p.in.Messages():
			if !ok || !p.r.take(ctx, m) {
				return
			}
			p.next = m.Offset + 1
			p.found(nil)
		case err, ok := <-p.in.Errors():
			if !ok {
				return
			}
			p.found(err.Err)
			quiet.Reset(p.r.b.quiet())
		case <-ctx.Done():
			return
		}
	}
}

// place moves to an offset that the broker has: what lies between was deleted before
// it was read.
func (p *broadcastPartition) place() error {
	oldest, err := p.r.b.client.GetOffset(p.r.topic, p.number, sarama.OffsetOldest)
	if err != nil {
		return fmt.Errorf("asking where %s/%d begins: %w", p.r.topic, p.number, err)
	}
	newest, err := p.r.b.client.GetOffset(p.r.topic, p.number, sarama.OffsetNewest)
	if err != nil {
		return fmt.Errorf("asking where %s/%d ends: %w", p.r.topic, p.number, err)
	}
	if to := min(max(p.next, oldest), newest); to != p.next {
		p.r.tell("missed", fmt.Sprintf("%s/%d goes on at offset %d", p.r.topic, p.number, to),
			fmt.Errorf("offset %d is not there any more", p.next))
		p.next = to
	}
	return nil
}

// take hands on a record. It is false when ctx has ended before.
func (r *broadcastReader) take(ctx context.Context, m *sarama.ConsumerMessage) bool {
	detach(m)
	a := delayqueue.Aired{
		Record: &record{ConsumerMessage: m, marshaler: r.b.cfg.Marshaler}, ID: uuidOf(m),
		Source: redeliver.Source{Known: true, Partition: m.Partition, Offset: m.Offset},
		Done:   func(bool) {}, // nobody is told
	}
	if m.Timestamp.UnixMilli() > 0 { // producers that have no clock write 0 or -1
		a.Source.Timestamp = m.Timestamp
	}
	if found := strangers(m.Headers); found != nil {
		r.sub.Tell(redeliver.HeadersIgnored{Topic: r.topic, ID: a.ID, Findings: found})
	}
	if m.Key != nil {
		a.Key, a.Keyed = maphash.Bytes(seed, m.Key), true
	}
	return r.air.Deliver(ctx, &a)
}

// quiet is how long there is no error when a broker is back: each try to fetch ends
// within that.
func (b *Broadcast) quiet() time.Duration {
	cfg := b.client.Config()
	return cfg.Consumer.Retry.Backoff + cfg.Net.DialTimeout + cfg.Net.ReadTimeout + cfg.Consumer.MaxWaitTime
}

// found tells once that partitions cannot be read, and once that all can be again.
func (p *broadcastPartition) found(err error) {
	if errors.Is(err, sarama.ErrOffsetOutOfRange) || (err != nil) == p.lost {
		return // place tells of the first
	}
	p.lost = err != nil
	switch {
	case p.lost && p.r.lost.Add(1) == 1:
		p.r.tell("disconnected", fmt.Sprintf("reading %s/%d; trying again", p.r.topic, p.number), err)
	case !p.lost && p.r.lost.Add(-1) == 0:
		p.r.tell("consuming", "", nil)
	}
}

func (r *broadcastReader) tell(change, detail string, err error) {
	r.sub.Tell(redeliver.SubscriptionChanged{Origin: r.topic, Change: change, Detail: detail, Err: err})
}
