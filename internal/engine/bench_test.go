package engine_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/driver"
	"github.com/redeliver/redeliver/internal/engine"
)

// benchSource is a cheap source of records in memory. It is also the codec and the store.
type benchSource struct {
	in   chan *record
	done chan struct{} // closed when all are settled
	left int
}

func newBenchSource(n int) *benchSource {
	s := &benchSource{in: make(chan *record, n), done: make(chan struct{}), left: n}
	rec := &record{id: "a", body: []byte("payload")}
	for range n {
		s.in <- rec
	}
	return s
}

func (s *benchSource) Messages() <-chan *record                             { return s.in }
func (s *benchSource) Lost() <-chan struct{}                                { return nil }
func (s *benchSource) Accept(int)                                           {}
func (s *benchSource) Commit()                                              {}
func (s *benchSource) Stop() <-chan struct{}                                { return nil }
func (s *benchSource) Flush(context.Context)                                {}
func (s *benchSource) Parse(*driver.Message[*record]) error                 { return nil }
func (s *benchSource) Return(*driver.Message[*record], time.Duration, bool) {}
func (s *benchSource) Key(*driver.Message[*record]) []byte                  { return nil }
func (s *benchSource) Body(m *driver.Message[*record]) []byte               { return m.Record.body }
func (s *benchSource) Headers(*driver.Message[*record]) redeliver.Headers   { return message.Metadata{} }
func (s *benchSource) Age(*driver.Message[*record]) (st *redeliver.State, created, expires time.Time) {
	return nil, time.Time{}, time.Time{}
}

func (s *benchSource) Settle(*driver.Message[*record]) {
	if s.left--; s.left == 0 {
		close(s.done)
	}
}

func (s *benchSource) State(m *driver.Message[*record], st *redeliver.State) {
	st.ID, st.Group, st.Origin = m.Record.id, "billing", "orders"
}

func (s *benchSource) Write(_ context.Context, _ driver.Place, _ *driver.Message[*record], _ *redeliver.State, done driver.Done) {
	done.Confirmed("orders.billing.retry", nil)
}

// benchmark runs b.N messages through a lane.
func benchmark(b *testing.B, p redeliver.Policy, h func(context.Context, *record) error) {
	b.Helper()
	s := newBenchSource(b.N)
	b.ReportAllocs()
	s.run(p, engine.Options[*record]{Handle: h}, b.ResetTimer, b.StopTimer)
}

// run runs all records through a lane, between start and stop.
func (s *benchSource) run(p redeliver.Policy, opt engine.Options[*record], start, stop func()) {
	opt.Sub = &engine.Subscription{Origin: "orders", Group: "billing", Policy: p.WithDefaults(), MaxInFlight: 100, MaxRetriesInFlight: 100}
	opt.Codec, opt.Store = s, s
	e := engine.New(opt)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	start()
	go func() {
		defer close(ended)
		e.RunLane(ctx, context.Background(), s, engine.LaneOptions[*record]{DrainTimeout: time.Second}, nil)
	}()
	<-s.done
	stop()
	cancel()
	<-ended
	e.Close()
}

// BenchmarkSuccess measures the engine alone for a message whose handler succeeds.
func BenchmarkSuccess(b *testing.B) {
	benchmark(b, redeliver.Policy{MaxRetries: 3}, succeed)
}

// BenchmarkGuards measures a message that succeeds under each guard.
func BenchmarkGuards(b *testing.B) {
	for name, p := range guards() {
		b.Run(name, func(b *testing.B) { benchmark(b, p, succeed) })
	}
}

func succeed(context.Context, *record) error { return nil }

// guards are policies with no guard, one and both.
func guards() map[string]redeliver.Policy {
	return map[string]redeliver.Policy{
		"none":   {},
		"outage": {},
		"all":    {DeadLetterRate: redeliver.DeadLetterRate{Max: 100}},
	}
}

// A message that succeeds costs only its share of an allocation for many entries, or for a batch, and no id is composed. Guards and
// a Timeout allocate no more.
func TestASuccessAllocatesLittle(t *testing.T) {
	const n, most = 20_000, 0.4
	optionsOf := map[string]engine.Options[*record]{"records": {Handle: succeed}, "batches": {
		BatchConfig: redeliver.BatchConfig{Size: 100, Timeout: time.Hour}.WithDefaults(),
		Batch: func(_ *engine.Batch, all []*engine.BatchMember[*record]) error {
			for _, m := range all[:len(all)/2] {
				m.Answer(nil) // the rest is acked by its end
			}
			return nil
		},
	}}
	for kind, opt := range optionsOf {
		for name, p := range guards() {
			p.Timeout = time.Hour
			s := newBenchSource(n)
			var before, after runtime.MemStats
			s.run(p, opt, func() { runtime.ReadMemStats(&before) }, func() { runtime.ReadMemStats(&after) })
			if each := float64(after.Mallocs-before.Mallocs) / n; each > most {
				t.Errorf("%s with the guards %s: %.2f allocations for each, want at most %.2f", kind, name, each, most)
			}
		}
	}
}

// BenchmarkFailure measures a message that fails, is written to a level and settled.
func BenchmarkFailure(b *testing.B) {
	err := errors.New("declined")
	benchmark(b, redeliver.Policy{MaxRetries: 3}, func(context.Context, *record) error { return err })
}

// keyedSource is a benchSource whose messages have keys. It has as many ready as the lane accepts.
type keyedSource struct {
	*benchSource
	rec    *record
	unsent int
	keys   uint64
	next   uint64
}

func (s *keyedSource) Accept(n int) {
	for s.unsent > 0 && len(s.in) < min(n, cap(s.in)) {
		s.in <- s.rec
		s.unsent--
	}
}

func (s *keyedSource) Parse(m *driver.Message[*record]) error {
	if s.keys > 0 {
		m.Key = s.next%s.keys + 1
		s.next++
	}
	return nil
}

// BenchmarkKeys measures the engine for messages that succeed and have one of a few keys. All others of a key wait meanwhile.
func BenchmarkKeys(b *testing.B) {
	options := map[string]engine.Options[*record]{"single": {Handle: succeed}, "batches": {
		BatchConfig: redeliver.BatchConfig{Size: 100, Timeout: time.Second}.WithDefaults(),
		Batch:       func(*engine.Batch, []*engine.BatchMember[*record]) error { return nil },
	}}
	for kind, opt := range options {
		for _, keys := range []uint64{0, 1, 5, 50, 10_000} {
			b.Run(fmt.Sprintf("%s/%d", kind, keys), func(b *testing.B) {
				s := &keyedSource{&benchSource{in: make(chan *record, 4096), done: make(chan struct{}), left: b.N}, &record{id: "a"}, b.N, keys, 0}
				b.ReportAllocs()
				opt.Sub = &engine.Subscription{Origin: "orders", Group: "billing", Policy: redeliver.Policy{MaxRetries: 3}.WithDefaults(), MaxInFlight: 200, MaxRetriesInFlight: 200}
				opt.Codec, opt.Store = s, s
				e := engine.New(opt)
				ctx, cancel := context.WithCancel(context.Background())
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					e.RunLane(ctx, context.Background(), s, engine.LaneOptions[*record]{DrainTimeout: time.Second}, nil)
				}()
				<-s.done
				b.StopTimer()
				cancel()
				<-ended
				e.Close()
			})
		}
	}
}
