// Package enginetest has a queue in memory that costs almost nothing. It is for tests that measure what a message
// costs, and for tests that need a subscription without a sink. Other tests use package redelivertest.
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
	"github.com/redeliver/redeliver/driver"
	"github.com/redeliver/redeliver/internal/binding"
	"github.com/redeliver/redeliver/internal/engine"
)

// maxReady bounds the messages that were put but not read, and those that were settled but not waited for.
const maxReady = 1 << 16

// Queue is a subscription of an engine, with its codec and its store, and the first partition of its origin. All its
// messages are equal. A copy that the engine writes is confirmed and recorded, and does not come back. Set the fields
// before [Queue.Start].
type Queue struct {
	*Partition

	Sub *engine.Subscription
	// ID is the id of the messages.
	ID string
	// Metadata of the messages.
	Metadata message.Metadata
	// Context is the messages' own context, like that of a publisher in the same process. Nil means none.
	Context context.Context
	// Values has the values of the context of Subscribe.
	Values context.Context
	// Refuse returns why a write fails. If it is nil, all writes succeed.
	Refuse func() error

	engine  *engine.Engine[struct{}]
	ctx     context.Context // of the lanes
	cancel  context.CancelFunc
	lanes   sync.WaitGroup
	stop    func()
	router  *binding.Handler[struct{}]
	settled chan struct{}

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
		ID:  "orders/0/1", Values: context.Background(), settled: make(chan struct{}, maxReady),
	}
	q.router = binding.New(codec{q}.message)
	return q
}

// Start runs an engine over the queue, until the test ends.
func (q *Queue) Start(tb testing.TB) *Queue {
	tb.Helper()
	q.ctx, q.cancel = context.WithCancel(context.Background())
	q.engine = engine.New(engine.Options[struct{}]{Sub: q.Sub, Codec: codec{q}, Store: store{q}, Handler: q.router})
	q.stop = sync.OnceFunc(func() {
		q.cancel()
		q.lanes.Wait()
		q.engine.Close()
	})
	tb.Cleanup(q.stop)
	q.Partition = q.Open()
	return q
}

// WaitSettled returns when n more messages are settled.
func (q *Queue) WaitSettled(n int) {
	for range n {
		<-q.settled
	}
}

// Partition is a source of messages, which a lane of the engine runs.
type Partition struct {
	q      *Queue
	in     chan struct{}
	lost   chan struct{}
	lane   driver.Lane[struct{}]
	inHand []*driver.Message[struct{}] // the oldest first; the lane's goroutine has it
}

// Open runs one more partition of the queue.
func (q *Queue) Open() *Partition {
	p := &Partition{q: q, in: make(chan struct{}, maxReady), lost: make(chan struct{})}
	began := make(chan struct{})
	q.lanes.Go(func() {
		q.engine.RunLane(q.ctx, q.Values, source{p}, engine.LaneOptions[struct{}]{DrainTimeout: time.Second}, func(l driver.Lane[struct{}]) {
			p.lane = l
			close(began)
		})
	})
	<-began
	return p
}

// Put adds n messages.
func (p *Partition) Put(n int) {
	for range n {
		p.in <- struct{}{}
	}
}

// Deliver adds a message and returns it as a Router receives it.
func (p *Partition) Deliver() *message.Message {
	p.Put(1)
	return <-p.q.router.Messages()
}

// Abandon abandons the oldest message in hand, as if another process had it by now.
func (p *Partition) Abandon(cause error) {
	done := make(chan struct{})
	p.lane.Post(func() {
		m := p.inHand[0]
		p.remove(m)
		p.lane.Abandon(m, cause)
		close(done)
	})
	<-done
}

// Lose ends the partition's source, as if another process had the partition.
func (p *Partition) Lose() { close(p.lost) }

func (p *Partition) remove(m *driver.Message[struct{}]) {
	i := slices.Index(p.inHand, m)
	p.inHand = slices.Delete(p.inHand, i, i+1)
}

// Written returns everything that the engine has written, in order.
func (q *Queue) Written() []Written {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.Clone(q.wrote)
}

// Subscribe implements [message.Subscriber]. It may be called once, after Start.
func (q *Queue) Subscribe(context.Context, string) (<-chan *message.Message, error) {
	return q.router.Messages(), nil
}

// Close implements [message.Subscriber].
func (q *Queue) Close() error {
	q.stop()
	return nil
}

type source struct{ *Partition }

func (s source) Messages() <-chan struct{} { return s.in }
func (s source) Lost() <-chan struct{}     { return s.lost }
func (s source) Accept(int)                {}
func (s source) Commit()                   {}
func (s source) Stop() <-chan struct{}     { return nil }
func (s source) Flush(context.Context)     {}

func (s source) Parse(m *driver.Message[struct{}]) error {
	s.inHand = append(s.inHand, m)
	return nil
}

func (s source) Settle(m *driver.Message[struct{}]) {
	s.remove(m)
	s.q.settled <- struct{}{}
}

func (s source) Return(m *driver.Message[struct{}], _ time.Duration, _ bool) { s.remove(m) }

type codec struct{ q *Queue }

func (c codec) Key(*driver.Message[struct{}]) []byte                { return nil }
func (c codec) Body(*driver.Message[struct{}]) []byte               { return []byte("payload") }
func (c codec) Headers(*driver.Message[struct{}]) redeliver.Headers { return c.q.Metadata }

func (c codec) Age(*driver.Message[struct{}]) (state *redeliver.State, created, expires time.Time) {
	return nil, time.Time{}, time.Time{}
}

func (c codec) message(*driver.Message[struct{}]) (*message.Message, error) {
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
