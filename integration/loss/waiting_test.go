//go:build prove

package loss

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/delayqueue"
	"github.com/redeliver/redeliver/driver"
	"github.com/redeliver/redeliver/integration/brokers"
)

// waitingKafka is a Kafka with messages that wait longer than a run takes. They must be there at its end.
type waitingKafka struct {
	*kafkaSystem
	waiting int64
}

// unsettled returns the number of other messages that the group has not settled. The result is wrong if the group has
// settled some of the waiting ones.
func (k *waitingKafka) unsettled(ctx context.Context) (int64, string, error) {
	n, detail, err := k.kafkaSystem.unsettled(ctx)
	if err == nil && n < k.waiting {
		err = fmt.Errorf("%d are unsettled, and %d wait for an hour: %s", n, k.waiting, detail)
	}
	return n - k.waiting, detail, err
}

// park writes n messages that failed just now to a level on which they wait for an hour.
func (k *waitingKafka) park(ctx context.Context, policy redeliver.Policy, n int) error {
	now := time.Now().UTC()
	topic := k.base() + ".retry." + delayqueue.LevelName(time.Hour)
	// A fetch, which the client bounds in bytes, would contain fifty times as many messages if they compressed well.
	rng := rand.NewChaCha8([32]byte{2})
	var failed error
	for i := range n {
		id := fmt.Sprintf("w%07d", i)
		st := redeliver.State{
			ID: id, Group: k.group(), Origin: k.topic, Attempts: 1, Due: now.Add(time.Hour), FirstFailed: now, LastFailed: now,
			Error: errRule.Error(), ErrorType: "*errors.errorString", Policy: delayqueue.Fingerprint(policy),
			Source: redeliver.Source{Known: true, Partition: int32(i % 4), Offset: int64(i / 4), Timestamp: now},
		}
		value := make([]byte, 512)
		_, _ = rng.Read(value) // never fails
		rec := &kgo.Record{Topic: topic, Key: []byte(id), Value: value, Headers: []kgo.RecordHeader{{Key: headerID, Value: []byte(id)}}}
		for _, h := range driver.AppendStateHeaders(st, nil) {
			rec.Headers = append(rec.Headers, kgo.RecordHeader{Key: h.Name, Value: []byte(h.Value)})
		}
		k.client.Produce(ctx, rec, func(_ *kgo.Record, err error) { // one after another
			failed = errors.Join(failed, err)
		})
	}
	if err := k.client.Flush(ctx); err != nil {
		return err
	}
	k.waiting = int64(n)
	return failed
}

// TestMillionWaiting runs a consumer while many messages wait on a level: a million with REDELIVER_SOAK. Its memory
// does not depend on them, none of them runs, and all are there afterwards.
func TestMillionWaiting(t *testing.T) {
	t.Parallel()
	n := 150_000
	if os.Getenv("REDELIVER_SOAK") != "" {
		n = 1_000_000
	}
	p := overload(t, overloads[0], 2000, 100, 10, load{Missed: 20 * time.Second})
	p.steps = append(slices.Clone(steps), time.Hour)
	sys := &waitingKafka{kafkaSystem: newKafka(t, brokers.RequireKafka(t), nil, fmt.Sprintf("million-%d", time.Now().UnixNano()), 4)}
	c, ctx := begin(t, sys, p)
	// The first consumer creates the topics.
	maker := c.start("")
	if !c.until(ctx, func() bool { return c.joined[maker.number] }) {
		t.Fatal(context.Cause(ctx))
	}
	maker.mayEnd.Store(true)
	maker.terminate()
	if err := maker.await(toEnd); err != nil {
		t.Fatalf("the first consumer: %v", err)
	}
	if err := sys.park(ctx, consumerConfig{Steps: p.steps}.policy(), n); err != nil {
		t.Fatal(err)
	}

	w := c.start("")
	if !c.until(ctx, func() bool { return c.joined[w.number] }) {
		t.Fatal(context.Cause(ctx))
	}
	c.write(ctx)
	out := c.end(ctx)
	v := wantWhole(t, p, out, 0)
	t.Logf("report: waiting: %d wait for an hour: %d other messages, %d lost, %d runs again; retries late p50 %s p99 %s max %s; peak memory %.0f MiB; %.1f s",
		n, len(p.items), len(v.lost), v.rerun, quantile(v.late, 0.5), quantile(v.late, 0.99), quantile(v.late, 1), mib(w.peak), out.took.Seconds())
	if v.runs < len(p.items) {
		t.Errorf("%d runs of %d messages", v.runs, len(p.items))
	}
	wantMemory(t, w, 160<<20) // for 130 MiB of messages, or 900, which take twice as much
}
