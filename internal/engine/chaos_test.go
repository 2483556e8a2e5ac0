package engine_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/driver"
	"github.com/redeliver/redeliver/internal/binding"
	"github.com/redeliver/redeliver/internal/engine"
	"github.com/redeliver/redeliver/observe"
)

// chaosQueue is a queue in memory that many lanes of one subscription read, some of them at the same time. A message that is
// lost, returned or written goes to another lane. Everything fails at random.
type chaosQueue struct {
	t    *testing.T
	sub  *engine.Subscription
	seed uint64
	n    atomic.Int64

	mu      sync.Mutex
	free    []*chaosMessage // for the next reader
	ends    map[string]int  // commits and dead letters by id
	blocks  bool
	healthy bool // nothing fails any more
	last    bool // the lane that runs now is not lost
}

// chaosMessage is a copy of a message on the queue.
type chaosMessage struct {
	id, key string
	state   *redeliver.State
	m       *driver.Message[*chaosMessage]
}

func (s *chaosQueue) random(n int) int {
	return rand.New(rand.NewPCG(s.seed, uint64(s.n.Add(1)))).IntN(n)
}

func (s *chaosQueue) isHealthy() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.healthy
}

func (s *chaosQueue) put(d *chaosMessage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free = append(s.free, d)
}

// chaosSource is the source of one lane.
type chaosSource struct {
	*chaosQueue
	in      chan *chaosMessage
	lost    chan struct{}
	stop    chan struct{}
	stopped chan struct{}
	lane    driver.Lane[*chaosMessage]
	more    atomic.Int64
	left    map[*chaosMessage]bool // not settled, guarded by chaosQueue.mu
}

func newChaosSource(s *chaosQueue) *chaosSource {
	st := &chaosSource{chaosQueue: s, in: make(chan *chaosMessage, 5), lost: make(chan struct{}), stop: make(chan struct{}), stopped: make(chan struct{}), left: make(map[*chaosMessage]bool)}
	go st.feed()
	return st
}

func (s *chaosSource) feed() {
	defer close(s.stopped)
	for {
		select {
		case <-s.stop:
			return
		case <-time.After(10 * time.Millisecond):
		}
		for s.more.Load() > 0 {
			s.mu.Lock()
			if len(s.free) == 0 {
				s.mu.Unlock()
				break
			}
			d := s.free[0]
			s.free = s.free[1:]
			s.left[d] = true
			s.mu.Unlock()
			s.more.Add(-1)
			select {
			case s.in <- d:
			case <-s.stop:
				s.release(d, d.state)
				return
			}
		}
	}
}

// release makes a message available to other lanes, with its state. The old lane may still read it.
func (s *chaosSource) release(d *chaosMessage, st *redeliver.State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.left[d] {
		delete(s.left, d)
		s.free = append(s.free, &chaosMessage{id: d.id, key: d.key, state: st})
	}
}

func (s *chaosSource) Messages() <-chan *chaosMessage { return s.in }
func (s *chaosSource) Lost() <-chan struct{}          { return s.lost }
func (s *chaosSource) Accept(n int)                   { s.more.Store(int64(n)) }
func (s *chaosSource) Commit()                        {}
func (s *chaosSource) Flush(context.Context)          {}
func (s *chaosSource) Stop() <-chan struct{}          { close(s.stop); return s.stopped }

func (s *chaosSource) Parse(m *driver.Message[*chaosMessage]) error {
	d := m.Record
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.left[d] {
		return driver.ErrSettled
	}
	d.m = m
	for _, c := range d.key {
		m.Key = m.Key*31 + uint64(c)
	}
	if s.blocks {
		m.Key = 1
	}
	if d.state != nil {
		m.Key, m.Retry, m.Until, m.Displaced = m.Key*31+1, true, d.state.Due, true
	}
	return nil
}

func (s *chaosSource) Settle(m *driver.Message[*chaosMessage]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.left[m.Record] {
		s.t.Errorf("%s was settled but is not in hand", m.Record.id)
	}
	delete(s.left, m.Record)
}

func (s *chaosSource) Return(m *driver.Message[*chaosMessage], _ time.Duration, _ bool) {
	s.mu.Lock()
	held := s.left[m.Record]
	s.mu.Unlock()
	if !held {
		s.t.Errorf("%s was returned but is not in hand", m.Record.id)
	}
	s.release(m.Record, cmp.Or(m.State, m.Record.state))
}

// loseSome abandons some messages of the lane.
func (s *chaosSource) loseSome() {
	s.lane.Post(func() {
		s.mu.Lock()
		var all []*chaosMessage
		for d := range s.left {
			if d.m != nil {
				all = append(all, d)
			}
		}
		s.mu.Unlock()
		for _, d := range all {
			if s.random(3) == 0 {
				s.release(d, d.state)
				m := d.m
				d.m = nil
				s.lane.Abandon(m, engine.ErrLost)
			}
		}
	})
}

// chaosGater refuses at random.
type chaosGater struct {
	*chaosSource
	begun int
}

func (g *chaosGater) Begin(*driver.Message[*chaosMessage]) engine.Admission {
	admission := engine.Admission(max(0, g.random(6)-3))
	if admission != engine.Begins {
		time.AfterFunc(time.Duration(g.random(300))*time.Millisecond, func() { g.lane.Post(func() {}) })
		return admission
	}
	g.begun++
	return admission
}

func (g *chaosGater) HandlerEnded(*driver.Message[*chaosMessage]) {}

func (g *chaosGater) End(*driver.Message[*chaosMessage], engine.Ending) {
	if g.begun--; g.begun < 0 {
		g.t.Error("an End without a Begin")
	}
}

// route replaces a Router with middleware.Retry. Its handlers may ack or nack their Watermill messages themselves.
func (s *chaosQueue) route(out <-chan *message.Message) {
	for msg := range out {
		go func() {
			d := engine.FromContext(msg.Context())
			record := d.Record().(*chaosMessage)
			_, err := binding.Run(d, func(msg *message.Message) ([]*message.Message, error) {
				err := s.handle(msg.Context(), record)
				switch s.random(8) {
				case 0:
					msg.Ack()
				case 1:
					if !s.isHealthy() {
						msg.Nack()
					}
				}
				return nil, err
			}, msg)
			if err == nil {
				msg.Ack()
			} else {
				msg.Nack()
			}
		}()
	}
}

type chaosCodec struct{}

func (chaosCodec) Key(m *driver.Message[*chaosMessage]) []byte { return []byte(m.Record.key) }
func (chaosCodec) Body(*driver.Message[*chaosMessage]) []byte  { return []byte("v") }
func (chaosCodec) Headers(*driver.Message[*chaosMessage]) redeliver.Headers {
	return message.Metadata{}
}
func (chaosCodec) Age(m *driver.Message[*chaosMessage]) (state *redeliver.State, created, expires time.Time) {
	return m.Record.state, time.Time{}, time.Time{}
}

func (chaosCodec) State(m *driver.Message[*chaosMessage], st *redeliver.State) {
	if m.Record.state != nil {
		*st = *m.Record.state
		return
	}
	st.ID, st.Group, st.Origin = m.Record.id, "billing", "orders"
}

func (s *chaosQueue) Truncates() bool { return true }

func (s *chaosQueue) Write(_ context.Context, to driver.Place, m *driver.Message[*chaosMessage], st *redeliver.State, done driver.Done) {
	kind := s.random(20)
	if s.isHealthy() {
		kind = 19
	}
	id, key, kept := m.Record.id, m.Record.key, *st
	write := func() {
		switch {
		case kind < 3:
			done.Confirmed(fmt.Sprint(to), errors.New("no broker"))
		case kind < 5 && kept.Truncated == "":
			done.Confirmed(fmt.Sprint(to), fmt.Errorf("%w: too large", driver.ErrRefused))
		case kind < 7:
			done.Confirmed(fmt.Sprint(to), fmt.Errorf("%w: who knows", driver.ErrDoubtful))
		case kind < 9 && to == driver.PlaceLevel:
			done.Confirmed("orders", driver.ErrStay)
		case to == driver.PlaceDLQ:
			s.mu.Lock()
			s.ends[id]++
			s.mu.Unlock()
			done.Confirmed("dlq", nil)
		default:
			s.put(&chaosMessage{id: id, key: key, state: &kept})
			done.Confirmed("level", nil)
		}
	}
	switch s.random(3) {
	case 0:
		write()
	case 1:
		go write()
	default:
		time.AfterFunc(time.Duration(s.random(3000))*time.Millisecond, write)
	}
}

// handle is a handler that chooses at random among everything that a handler may do.
func (s *chaosQueue) handle(ctx context.Context, d *chaosMessage) error {
	if st, _ := redeliver.FromContext(ctx); time.Now().Before(st.Due) {
		s.t.Errorf("%s is early", d.id)
	}
	behaviour := s.random(12)
	if s.isHealthy() {
		behaviour = 11
	}
	<-time.After(time.Duration(s.random(400)) * time.Millisecond)
	switch behaviour {
	case 0:
		panic("a bug")
	case 1:
		runtime.Goexit()
	case 2:
		<-ctx.Done()
		return ctx.Err()
	case 3:
		<-time.After(8 * time.Second) // beyond its timeout, even if its context has ended
	case 4:
		return redeliver.Permanent(errors.New("bad"))
	case 5:
		return redeliver.Postpone(errors.New("later"))
	case 6, 7, 8:
		return errors.New("no bank")
	}
	return nil
}

// While everything fails and lanes end or are lost at random, no message is lost or settled twice, and all slots, probes and closes of
// the gate are released.
func TestRandomFailuresLoseNothing(t *testing.T) {
	for seed := range uint64(15) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testRandomFailures(t, seed) })
		})
	}
}

func testRandomFailures(t *testing.T, seed uint64) {
	s := newChaosQueue(t, seed)
	opt := engine.Options[*chaosMessage]{Sub: s.sub, Codec: chaosCodec{}, Store: s}
	s.setHandler(&opt)
	e := engine.New(opt)
	const messages = 40
	for i := range messages {
		s.put(&chaosMessage{id: fmt.Sprint(i), key: fmt.Sprint("k", i%7)})
	}
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			for range 6 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(s.random(10_000))*time.Millisecond)
				s.runLane(ctx, e, time.Duration(s.random(5000))*time.Millisecond)
				cancel()
			}
		})
	}
	s.runSuspects()
	all.Wait()
	for i := range messages {
		s.put(&chaosMessage{id: fmt.Sprint("late", i), key: fmt.Sprint("k", i%7)})
	}
	ctx, cancel := context.WithCancel(t.Context())
	s.mu.Lock()
	s.last = true
	s.mu.Unlock()
	all.Go(func() { s.runLane(ctx, e, time.Minute) })
	<-time.After(10 * time.Second)
	s.mu.Lock()
	s.healthy = true
	s.mu.Unlock()
	<-time.After(30 * time.Minute)
	synctest.Wait()
	s.mu.Lock()
	if len(s.free) > 0 || len(s.ends) != 2*messages {
		t.Errorf("%d messages are still on the queue; %d of %d have ended", len(s.free), len(s.ends), 2*messages)
	}
	s.mu.Unlock()
	cancel()
	all.Wait()
	e.Close()
	<-time.After(time.Hour)
	synctest.Wait()
	s.wantNothingInUse()
}

// newChaosQueue returns a queue without messages. The policy and the subscription depend on the seed.
func newChaosQueue(t *testing.T, seed uint64) *chaosQueue {
	p := redeliver.Policy{MaxRetries: 6, Immediate: 2, Backoff: redeliver.Fixed(time.Second), Timeout: 3 * time.Second}
	if seed%3 == 0 {
		p.Outage = redeliver.Outage{MinKeys: 3, Share: 0.5, Window: time.Minute, Probe: time.Second, MaxPause: 5 * time.Second, Probes: 2}
	}
	if seed%3 == 1 {
		p.DeadLetterRate = redeliver.DeadLetterRate{Max: 5, Window: 10 * time.Second, Pause: time.Second, Probes: 3}
	}
	s := &chaosQueue{t: t, seed: seed, ends: make(map[string]int)}
	if s.blocks = seed%7 == 6; s.blocks {
		p.Order = redeliver.OrderBlocking
	}
	s.sub = &engine.Subscription{
		KeepsPlace: s.blocks,
		Origin:     "orders", Group: "billing", Policy: p.WithDefaults(), MaxInFlight: 4, MaxRetriesInFlight: 2, Turn: engine.NewTurn(),
	}
	s.sub.Sink = redeliver.SinkFunc(func(e redeliver.Event) {
		if c, ok := e.(redeliver.Committed); ok {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.ends[c.State.ID]++
		}
	})
	if seed%2 == 0 {
		s.sub.MinInFlight = 1
	}
	return s
}

// setHandler sets a Watermill handler, a batch function or a handler of records, depending on the seed.
func (s *chaosQueue) setHandler(opt *engine.Options[*chaosMessage]) {
	switch s.seed % 5 {
	case 3:
		router := binding.New(func(m *driver.Message[*chaosMessage]) (*message.Message, error) {
			return message.NewMessage(m.Record.id, nil), nil
		})
		opt.Handler = router
		go s.route(router.Messages())
	case 4:
		opt.BatchConfig = redeliver.BatchConfig{Size: 3, Timeout: 500 * time.Millisecond}.WithDefaults()
		opt.Batch = func(b *engine.Batch, all []*engine.BatchMember[*chaosMessage]) error {
			for _, m := range all[:len(all)/2] {
				m.Answer([]error{nil, errors.New("no bank")}[s.random(2)])
			}
			return s.handle(b, all[0].Record)
		}
	default:
		opt.Handle = s.handle
	}
}

// runLane runs a lane until ctx ends. The lane loses messages at random, and may be lost itself.
func (s *chaosQueue) runLane(ctx context.Context, e *engine.Engine[*chaosMessage], drain time.Duration) {
	src := newChaosSource(s)
	opt := engine.LaneOptions[*chaosMessage]{MaxAhead: 8, MaxWaiting: 10, DrainTimeout: drain, Gaters: []engine.Gater[*chaosMessage]{&chaosGater{chaosSource: src}}}
	e.RunLane(ctx, context.Background(), src, opt, func(l driver.Lane[*chaosMessage]) {
		src.lane = l
		go func() {
			for ctx.Err() == nil {
				<-time.After(700 * time.Millisecond)
				if !s.isHealthy() {
					src.loseSome()
				}
			}
		}()
		if s.random(3) == 0 && !s.last {
			time.AfterFunc(time.Duration(s.random(9000))*time.Millisecond, func() { close(src.lost) })
		}
	})
	s.mu.Lock()
	var lost []*chaosMessage
	for d := range src.left {
		lost = append(lost, d)
	}
	s.mu.Unlock()
	for _, d := range lost { // the lane was lost, or ended first
		src.release(d, d.state)
	}
}

// runSuspects takes the Turn five times, as for messages that run alone.
func (s *chaosQueue) runSuspects() {
	for range 5 {
		<-time.After(time.Duration(s.random(8000)) * time.Millisecond)
		ctx, cancel := context.WithTimeout(s.t.Context(), 40*time.Second)
		if s.sub.Turn.Take(ctx, &s.sub.Gate) {
			<-time.After(time.Second)
			s.sub.Turn.Give()
		}
		cancel()
	}
}

func (s *chaosQueue) wantNothingInUse() {
	if slots, n, probes, closes := s.sub.InUse(); slots != [2]int{} || n != 0 || probes != 0 || closes != 0 || s.sub.Turn.Busy() != 0 {
		s.t.Errorf("in use: slots %v, %d in flight, %d probes, %d closes of the gate, %d in the turn", slots, n, probes, closes, s.sub.Turn.Busy())
	}
	if l := s.sub.Load(); l != (observe.Load{}) {
		s.t.Errorf("load %+v", l)
	}
}
