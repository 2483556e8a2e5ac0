// Package enginetest has a queue in memory that costs an engine next to nothing: for tests that measure what a message costs,
// and for those that need a subscription without a sink. What it is for else, package redelivertest does.
package enginetest

import (
	"context"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/driver"
	"github.com/redeliver/redeliver/internal/engine"
)

// maxReady bounds the messages that are put and not read, or settled and not waited for.
const maxReady = 1 << 16

// Queue is source, codec and store of an engine. All its messages are equal. A copy that the engine writes is confirmed and
// noted, and does not come back. Set the fields before [Queue.Start].
type Queue struct {
	Sub *engine.Subscription
	// ID is the id of the messages.
	ID string
	// Metadata of the messages.
	Metadata message.Metadata
	// Context is the messages' own context, as a subscriber in the same process may keep that of a publisher. Nil for none.
	Context context.Context
	// Values has the values of the context of Subscribe.
	Values context.Context
	// Refuse returns why a write fails. Nil: none does.
	Refuse func() error

	in      chan struct{}
	out     chan *message.Message
	settled chan struct{}
	stopped chan struct{}
	lane    driver.Lane[struct{}]
	inHand  []*driver.Message[struct{}] // the oldest first; the lane's goroutine has it

	mu    sync.Mutex
	wrote []Written
}

// Written is a message as the engine wrote it.
type Written struct {
	To    driver.Place
	State redeliver.State
}

// New makes a queue. Its subscription has no sink and no tracer.
func New(p redeliver.Policy) *Queue {
	q := &Queue{
		Sub: &engine.Subscription{Origin: "orders", Group: "billing", Policy: p.WithDefaults(), MaxInFlight: 200, MaxRetriesInFlight: 200},
		ID:  "orders/0/1",
		in:  make(chan struct{}, maxReady), out: make(chan *message.Message), Values: context.Background(), settled: make(chan struct{}, maxReady), stopped: make(chan struct{}),
	}
	close(q.stopped) // nothing more comes by itself
	return q
}

// Start runs an engine over the queue, until the test ends.
func (q *Queue) Start(tb testing.TB) *Queue {
	tb.Helper()
	e := engine.New(engine.Options[struct{}]{Sub: q.Sub, Codec: codec{q}, Store: store{q}, Out: q.out})
	ctx, cancel := context.WithCancel(context.Background())
	began, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		e.RunLane(ctx, q.Values, source{q}, engine.LaneOptions[struct{}]{DrainTimeout: time.Second}, func(l driver.Lane[struct{}]) {
			q.lane = l
			close(began)
		})
		e.Close()
	}()
	<-began
	tb.Cleanup(func() {
		cancel()
		<-done
	})
	return q
}

// Put puts n messages on the queue.
func (q *Queue) Put(n int) {
	for range n {
		q.in <- struct{}{}
	}
}

// Deliver puts one message on the queue and returns it as a Router gets it.
func (q *Queue) Deliver() *message.Message {
	q.Put(1)
	return <-q.out
}

// WaitSettled returns when n more messages are settled.
func (q *Queue) WaitSettled(n int) {
	for range n {
		<-q.settled
	}
}

// Abandon takes the oldest message in hand from this process, as others may have it by now.
func (q *Queue) Abandon(cause error) {
	done := make(chan struct{})
	q.lane.Post(func() {
		m := q.inHand[0]
		q.remove(m)
		q.lane.Abandon(m, cause)
		close(done)
	})
	<-done
}

func (q *Queue) remove(m *driver.Message[struct{}]) {
	i := slices.Index(q.inHand, m)
	q.inHand = slices.Delete(q.inHand, i, i+1)
}

// Written is all that the engine has written, in order.
func (q *Queue) Written() []Written {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.Clone(q.wrote)
}

// Subscribe implements [message.Subscriber]. It may be called once.
func (q *Queue) Subscribe(context.Context, string) (<-chan *message.Message, error) {
	return q.out, nil
}

// Close implements [message.Subscriber].
func (q *Queue) Close() error { return nil }

type source struct{ q *Queue }

func (s source) Messages() <-chan struct{} { return s.q.in }
func (s source) Lost() <-chan struct{}     { return nil }
func (s source) Stop() <-chan struct{}     { return s.q.stopped }
func (s source) Accept(int)                {}
func (s source) Commit()                   {}
func (s source) Flush(context.Context)     {}

func (s source) Parse(m *driver.Message[struct{}]) error {
	s.q.inHand = append(s.q.inHand, m)
	return nil
}

func (s source) Settle(m *driver.Message[struct{}]) {
	s.q.remove(m)
	s.q.settled <- struct{}{}
}

func (s source) Return(m *driver.Message[struct{}], _ time.Duration, _ bool) { s.q.remove(m) }

type codec struct{ q *Queue }

func (c codec) ID(*driver.Message[struct{}]) string                 { return c.q.ID }
func (c codec) Key(*driver.Message[struct{}]) []byte                { return nil }
func (c codec) Body(*driver.Message[struct{}]) []byte               { return []byte("payload") }
func (c codec) Headers(*driver.Message[struct{}]) redeliver.Headers { return c.q.Metadata }

func (c codec) Message(*driver.Message[struct{}]) (*message.Message, error) {
	msg := message.NewMessage(c.q.ID, []byte("payload"))
	maps.Copy(msg.Metadata, c.q.Metadata)
	if c.q.Context != nil {
		msg.SetContext(c.q.Context)
	}
	return msg, nil
}

func (c codec) State(_ *driver.Message[struct{}], st *redeliver.State) {
	st.ID, st.Group, st.Origin = c.q.ID, c.q.Sub.Group, c.q.Sub.Origin
	st.Source = redeliver.Source{Known: true, Offset: 1}
}

type store struct{ q *Queue }

func (s store) Write(_ context.Context, to driver.Place, _ *driver.Message[struct{}], st *redeliver.State, done driver.Done) {
	if s.q.Refuse != nil {
		if err := s.q.Refuse(); err != nil {
			done.Confirmed("orders.billing.retry", err)
			return
		}
	}
	s.q.mu.Lock()
	s.q.wrote = append(s.q.wrote, Written{to, *st})
	s.q.mu.Unlock()
	done.Confirmed("orders.billing.retry", nil)
}

var _ message.Subscriber = (*Queue)(nil)
