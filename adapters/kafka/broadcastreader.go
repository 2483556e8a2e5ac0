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
		sub: &delayqueue.Subscription{Origin: topic, Policy: b.policy, Sink: b.cfg.Sink, MaxInFlight: b.cfg.MaxInFlight},
	}
	r.air = delayqueue.NewBroadcast(ctx, r.sub)
	numbers, err := consumer.Partitions(topic)
	if err != nil {
		return nil, fmt.Errorf("kafka: asking for the partitions of %s: %w; it must exist", topic, err)
	}
	for _, number := range numbers {
		p, err := r.partition(number, b.cfg.Sarama.Consumer.Offsets.Initial)
		if err != nil {
			for _, p := range r.first {
				_ = p.in.Close() // nothing of it was read
			}
			return nil, fmt.Errorf("kafka: %w", err)
		}
		r.first = append(r.first, p)
	}
	return r, nil
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
	return p, p.begin()
}

func (p *broadcastPartition) begin() (err error) {
	if p.in, err = p.r.consumer.ConsumePartition(p.r.topic, p.number, p.next); err != nil {
		return fmt.Errorf("reading %s/%d from offset %d: %w", p.r.topic, p.number, p.next, err)
	}
	return nil
}

// run reads until ctx ends, then waits for what is in hand.
func (r *broadcastReader) run(ctx context.Context) {
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
				for _, number := range r.newPartitions(known) {
					// What stands there was written after Subscribe.
					p, err := r.partition(number, sarama.OffsetOldest)
					if err != nil {
						continue // with the next look
					}
					known = append(known, number)
					r.tell("consuming", fmt.Sprintf("a new partition, %s/%d", r.topic, number), nil)
					all.Go(func() { p.keep(ctx) })
				}
			case <-ctx.Done():
				all.Wait()
				return
			}
		}
	})
}

// newPartitions are the partitions of the topic that are not known.
func (r *broadcastReader) newPartitions(known []int32) []int32 {
	if r.b.client.RefreshMetadata(r.topic) != nil {
		return nil // the readers of the others tell what is wrong
	}
	all, err := r.consumer.Partitions(r.topic)
	if err != nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(all), func(n int32) bool { return slices.Contains(known, n) })
}

// keep reads a partition until ctx ends. sarama tries again what fails, but for an
// offset that the broker does not have any more.
func (p *broadcastPartition) keep(ctx context.Context) {
	pause := backoff.NewExponentialBackOff(backoff.WithInitialInterval(20*time.Millisecond),
		backoff.WithMaxInterval(5*time.Second), backoff.WithMaxElapsedTime(0))
	for {
		if p.in != nil {
			p.read(ctx)
			p.in.AsyncClose()
			for range p.in.Messages() { // read again, or not at all
				continue
			}
			for range p.in.Errors() {
				continue
			}
			p.in = nil
		}
		timer := time.NewTimer(pause.NextBackOff())
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
		err := p.place()
		if err == nil {
			err = p.begin()
		}
		p.found(err)
	}
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
