package engine_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/driver"
	"github.com/redeliver/redeliver/internal/engine"
)

// benchSource is a source that costs next to nothing, of records that are in memory; codec and store, too.
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
func (s *benchSource) Flush(context.Context)                                {}
func (s *benchSource) Parse(*driver.Message[*record]) error                 { return nil }
func (s *benchSource) Return(*driver.Message[*record], time.Duration, bool) {}
func (s *benchSource) ID(m *driver.Message[*record]) string                 { return m.Record.id }
func (s *benchSource) Key(*driver.Message[*record]) []byte                  { return nil }
func (s *benchSource) Body(m *driver.Message[*record]) []byte               { return m.Record.body }
func (s *benchSource) Headers(*driver.Message[*record]) redeliver.Headers   { return message.Metadata{} }
func (s *benchSource) Message(*driver.Message[*record]) (*message.Message, error) {
	return nil, errors.ErrUnsupported
}

func (s *benchSource) Stop() <-chan struct{} {
	done := make(chan struct{})
	close(done)
	return done
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
func benchmark(b *testing.B, h func(context.Context, *record) error) {
	b.Helper()
	sub := &engine.Subscription{Origin: "orders", Group: "billing", Policy: redeliver.Policy{MaxRetries: 3}.WithDefaults(), MaxInFlight: 100, MaxRetriesInFlight: 100}
	s := newBenchSource(b.N)
	e := engine.New(engine.Options[*record]{Sub: sub, Codec: s, Store: s, Handle: h})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	b.ReportAllocs()
	b.ResetTimer()
	go func() {
		defer close(ended)
		e.RunLane(ctx, context.Background(), s, engine.LaneOptions[*record]{DrainTimeout: time.Second}, nil)
	}()
	<-s.done
	b.StopTimer()
	cancel()
	<-ended
	e.Close()
}

// BenchmarkSuccess is what the engine alone costs for a message whose handler succeeds.
func BenchmarkSuccess(b *testing.B) {
	benchmark(b, func(context.Context, *record) error { return nil })
}

// BenchmarkFailure is what it costs for a message that fails, is written to a level and settled.
func BenchmarkFailure(b *testing.B) {
	err := errors.New("declined")
	benchmark(b, func(context.Context, *record) error { return err })
}
