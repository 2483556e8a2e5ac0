package reader

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/IBM/sarama"

	"github.com/redeliver/redeliver/adapters/kafka/internal/cluster"
	"github.com/redeliver/redeliver/adapters/kafka/internal/settle"
	"github.com/redeliver/redeliver/internal/engine"
)

// staticClaim is a partition and its session with a fixed number of records. It ends when all are marked.
type staticClaim struct {
	sarama.ConsumerGroupSession
	messages chan *sarama.ConsumerMessage
	ctx      context.Context
	n        int
	upTo     int64
	all      chan struct{}
}

func (s *staticClaim) Topic() string                            { return "orders" }
func (s *staticClaim) Partition() int32                         { return 0 }
func (s *staticClaim) InitialOffset() int64                     { return 0 }
func (s *staticClaim) HighWaterMarkOffset() int64               { return s.upTo }
func (s *staticClaim) Messages() <-chan *sarama.ConsumerMessage { return s.messages }
func (s *staticClaim) Context() context.Context                 { return s.ctx }
func (s *staticClaim) Claims() map[string][]int32               { return nil }
func (s *staticClaim) ResetOffset(string, int32, int64, string) {}
func (s *staticClaim) MarkOffset(_ string, _ int32, n int64, _ string) {
	if n == s.upTo {
		select {
		case s.all <- struct{}{}:
		default: // an ending lane marks once more
		}
	}
}

// run reads the partition without suspects. Commits succeed at once.
func (s *staticClaim) run(r *Reader) {
	commits := settle.NewCommitter(settle.CommitterConfig{
		Commit: func(_ sarama.ConsumerGroupSession, all []cluster.OffsetCommit) []error {
			for _, c := range all {
				s.MarkOffset(c.Topic, c.Partition, c.Offset, c.Metadata)
			}
			return make([]error, len(all))
		},
		Interval: 10 * time.Millisecond, FencedAfter: time.Minute, SaramaCommits: true,
	})
	defer commits.Stop()
	from := s.upTo - int64(s.n)
	newSource(&Session{reader: r, commits: commits, hurry: context.Background()}, s, s, from, claimMeta{offset: from}).run(s.ctx)
}

// noPauseGroup is a group whose Pause and Resume do nothing.
type noPauseGroup struct{ sarama.ConsumerGroup }

func (noPauseGroup) Pause(map[string][]int32)  {}
func (noPauseGroup) Resume(map[string][]int32) {}

// laneOf returns a function that makes r read n records of one partition, with the given number of keys.
func laneOf(tb testing.TB, r *Reader, opt engine.Options[*sarama.ConsumerMessage], n, keys int) (run func()) {
	tb.Helper()
	r.startEngine(opt)
	tb.Cleanup(r.engine.Close)
	var next int64
	all := make([]*sarama.ConsumerMessage, 0, n)
	for i := range n {
		all = append(all, &sarama.ConsumerMessage{Topic: "orders", Key: fmt.Append(nil, "customer", i%keys), Value: []byte("order")})
	}
	return func() {
		s := &staticClaim{messages: make(chan *sarama.ConsumerMessage, 256), ctx: context.Background(), n: n, upTo: next + int64(n), all: make(chan struct{}, 1)}
		done := make(chan struct{})
		go func() {
			defer close(done)
			s.run(r)
		}()
		for _, m := range all {
			m.Offset = next
			next++
			s.messages <- m
		}
		<-s.all
		close(s.messages)
		<-done
	}
}

// A record makes no allocations of its own between claim and mark. Allocations that a lane shares are fewer than one
// per twenty records.
func TestConsumeAllocatesNothingOnSuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 20_000
		handled := make(chan struct{}, n)
		run := laneOf(t, offlineReader(nil), engine.Options[*sarama.ConsumerMessage]{Handle: func(context.Context, *sarama.ConsumerMessage) error {
			handled <- struct{}{}
			return nil
		}}, n, 1000)
		per := 1.
		for range 3 { // the runtime's own allocations vary
			per = min(per, testing.AllocsPerRun(1, func() {
				run()
				for range n {
					<-handled
				}
			})/n)
		}
		if per > 1./20 {
			t.Errorf("%.3f allocations for a record", per)
		}
	})
}

func BenchmarkConsumeSuccess(b *testing.B) {
	const n = 20_000
	succeed := func(context.Context, *sarama.ConsumerMessage) error { return nil }
	run := laneOf(b, offlineReader(nil), engine.Options[*sarama.ConsumerMessage]{Handle: succeed}, n, 1000)
	b.ReportAllocs()
	for b.Loop() {
		run()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/record")
}
