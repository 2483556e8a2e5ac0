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
	"github.com/redeliver/redeliver/internal/engine"
)

// storm is a queue in memory that many lanes of one subscription read, some of them at the same time. A message that is
// lost, returned or written goes to another lane. Everything fails at random.
type storm struct {
	t    *testing.T
	sub  *engine.Subscription
	seed uint64
	n    atomic.Int64

	mu     sync.Mutex
	free   []*drop        // for the next reader
	ends   map[string]int // commits and dead letters by id
	blocks bool
	calm   bool // nothing fails any more
	last   bool // the lane that runs now is not lost
}

// drop is a copy of a message on the queue.
type drop struct {
	id, key string
	state   *redeliver.State
	m       *driver.Message[*drop]
}

func (s *storm) roll(n int) int {
	return rand.New(rand.NewPCG(s.seed, uint64(s.n.Add(1)))).IntN(n)
}

func (s *storm) isCalm() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calm
}

func (s *storm) put(d *drop) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free = append(s.free, d)
}

// stream is one source of a storm.
type stream struct {
	*storm
	in      chan *drop
	lost    chan struct{}
	stop    chan struct{}
	stopped chan struct{}
	lane    driver.Lane[*drop]
	more    atomic.Int64
	left    map[*drop]bool // not settled, guarded by storm.mu
}

func newStream(s *storm) *stream {
	st := &stream{storm: s, in: make(chan *drop, 5), lost: make(chan struct{}), stop: make(chan struct{}), stopped: make(chan struct{}), left: make(map[*drop]bool)}
	go st.feed()
	return st
}

func (s *stream) feed() {
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

// release gives a message with its state to another lane. The old lane may still read it.
func (s *stream) release(d *drop, st *redeliver.State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.left[d] {
		delete(s.left, d)
		s.free = append(s.free, &drop{id: d.id, key: d.key, state: st})
	}
}

func (s *stream) Messages() <-chan *drop { return s.in }
func (s *stream) Lost() <-chan struct{}  { return s.lost }
func (s *stream) Accept(n int)           { s.more.Store(int64(n)) }
func (s *stream) Commit()                {}
func (s *stream) Flush(context.Context)  {}
func (s *stream) Stop() <-chan struct{}  { close(s.stop); return s.stopped }

func (s *stream) Parse(m *driver.Message[*drop]) error {
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

func (s *stream) Settle(m *driver.Message[*drop]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.left[m.Record] {
		s.t.Errorf("%s was settled but is not in hand", m.Record.id)
	}
	delete(s.left, m.Record)
}

func (s *stream) Return(m *driver.Message[*drop], _ time.Duration, _ bool) {
	s.mu.Lock()
	held := s.left[m.Record]
	s.mu.Unlock()
	if !held {
		s.t.Errorf("%s was returned but is not in hand", m.Record.id)
	}
	s.release(m.Record, cmp.Or(m.State, m.Record.state))
}

// loseSome abandons some messages of the lane.
func (s *stream) loseSome() {
	s.lane.Post(func() {
		s.mu.Lock()
		var all []*drop
		for d := range s.left {
			if d.m != nil {
				all = append(all, d)
			}
		}
		s.mu.Unlock()
		for _, d := range all {
			if s.roll(3) == 0 {
				s.release(d, d.state)
				m := d.m
				d.m = nil
				s.lane.Abandon(m, engine.ErrLost)
			}
		}
	})
}

// stormGate refuses at random.
type stormGate struct {
	*stream
	begun int
}

func (g *stormGate) Begin(*driver.Message[*drop]) engine.Admission {
	word := engine.Admission(max(0, g.roll(6)-3))
	if word != engine.Begins {
		time.AfterFunc(time.Duration(g.roll(300))*time.Millisecond, func() { g.lane.Post(func() {}) })
		return word
	}
	g.begun++
	return word
}

func (g *stormGate) HandlerEnded(*driver.Message[*drop]) {}

func (g *stormGate) End(*driver.Message[*drop], engine.Ending) {
	if g.begun--; g.begun < 0 {
		g.t.Error("an End without a Begin")
	}
}

// stormTask is the task of a handler that may ack or nack its Watermill message itself.
type stormTask struct {
	s   *storm
	msg *message.Message
	d   *drop
}

func (t *stormTask) Handle(ctx context.Context) error {
	err := t.s.handle(ctx, t.d)
	switch t.s.roll(8) {
	case 0:
		t.msg.Ack()
	case 1:
		if !t.s.isCalm() {
			t.msg.Nack()
		}
	}
	return err
}
func (t *stormTask) Describe() (redeliver.Headers, []byte) { return t.msg.Metadata, t.msg.Payload }
func (t *stormTask) Answered() bool {
	select {
	case <-t.msg.Acked():
	case <-t.msg.Nacked():
	default:
		return false
	}
	return true
}
func (t *stormTask) Expired(err error) error { return err }
func (t *stormTask) Settled()                { t.msg.Ack() }

// route replaces a Router with middleware.Retry.
func (s *storm) route(out <-chan *message.Message) {
	for msg := range out {
		go func() {
			d := engine.FromContext(msg.Context())
			if ok, err := d.Run(msg.Context(), &stormTask{s, msg, d.Record().(*drop)}); ok || err == nil {
				msg.Ack()
			} else {
				msg.Nack()
			}
		}()
	}
}

type stormCodec struct{}

func (stormCodec) Message(m *driver.Message[*drop]) (*message.Message, error) {
	return message.NewMessage(m.Record.id, nil), nil
}
func (stormCodec) Key(m *driver.Message[*drop]) []byte              { return []byte(m.Record.key) }
func (stormCodec) Body(*driver.Message[*drop]) []byte               { return []byte("v") }
func (stormCodec) Headers(*driver.Message[*drop]) redeliver.Headers { return message.Metadata{} }
func (stormCodec) Age(m *driver.Message[*drop]) (state *redeliver.State, created, expires time.Time) {
	return m.Record.state, time.Time{}, time.Time{}
}

func (stormCodec) State(m *driver.Message[*drop], st *redeliver.State) {
	if m.Record.state != nil {
		*st = *m.Record.state
		return
	}
	st.ID, st.Group, st.Origin = m.Record.id, "billing", "orders"
}

func (s *storm) Truncates() bool { return true }

func (s *storm) Write(_ context.Context, to driver.Place, m *driver.Message[*drop], st *redeliver.State, done driver.Done) {
	kind := s.roll(20)
	if s.isCalm() {
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
		case kind < 9 && to == driver.Level:
			done.Confirmed("orders", driver.ErrStay)
		case to == driver.DLQ:
			s.mu.Lock()
			s.ends[id]++
			s.mu.Unlock()
			done.Confirmed("dlq", nil)
		default:
			s.put(&drop{id: id, key: key, state: &kept})
			done.Confirmed("level", nil)
		}
	}
	switch s.roll(3) {
	case 0:
		write()
	case 1:
		go write()
	default:
		time.AfterFunc(time.Duration(s.roll(3000))*time.Millisecond, write)
	}
}

// handle is a handler that chooses at random among everything that a handler may do.
func (s *storm) handle(ctx context.Context, d *drop) error {
	if st, _ := redeliver.FromContext(ctx); time.Now().Before(st.Due) {
		s.t.Errorf("%s is early", d.id)
	}
	what := s.roll(12)
	if s.isCalm() {
		what = 11
	}
	<-time.After(time.Duration(s.roll(400)) * time.Millisecond)
	switch what {
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
// the gate are given back.
func TestRandomFailuresLoseNothing(t *testing.T) {
	for seed := range uint64(15) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { runStorm(t, seed) })
		})
	}
}

func runStorm(t *testing.T, seed uint64) {
	p := redeliver.Policy{MaxRetries: 6, Immediate: 2, Backoff: redeliver.Fixed(time.Second), Timeout: 3 * time.Second}
	if seed%3 == 0 {
		p.Outage = redeliver.Outage{MinKeys: 3, Share: 0.5, Window: time.Minute, Probe: time.Second, MaxPause: 5 * time.Second, Probes: 2}
	}
	if seed%3 == 1 {
		p.DeadLetterRate = redeliver.DeadLetterRate{Max: 5, Window: 10 * time.Second, Pause: time.Second, Probes: 3}
	}
	s := &storm{t: t, seed: seed, ends: make(map[string]int)}
	if s.blocks = seed%7 == 6; s.blocks {
		p.Order = redeliver.Blocking
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
	opt := engine.Options[*drop]{Sub: s.sub, Codec: stormCodec{}, Store: s}
	switch seed % 5 {
	case 3:
		opt.Out = make(chan *message.Message)
		go s.route(opt.Out)
	case 4:
		opt.BatchConfig = engine.BatchConfig{Size: 3, Timeout: 500 * time.Millisecond}.WithDefaults()
		opt.Batch = func(b *engine.Batch, all []*engine.BatchMember[*drop]) error {
			for _, m := range all[:len(all)/2] {
				m.Answer([]error{nil, errors.New("no bank")}[s.roll(2)])
			}
			return s.handle(b, all[0].Record)
		}
	default:
		opt.Handle = s.handle
	}
	e := engine.New(opt)
	const messages = 40
	for i := range messages {
		s.put(&drop{id: fmt.Sprint(i), key: fmt.Sprint("k", i%7)})
	}
	lane := func(ctx context.Context, drain time.Duration) *stream {
		src := newStream(s)
		e.RunLane(ctx, context.Background(), src, engine.LaneOptions[*drop]{MaxAhead: 8, MaxWaiting: 10, DrainTimeout: drain, Gaters: []engine.Gater[*drop]{&stormGate{stream: src}}}, func(l driver.Lane[*drop]) {
			src.lane = l
			go func() {
				for ctx.Err() == nil {
					<-time.After(700 * time.Millisecond)
					if !s.isCalm() {
						src.loseSome()
					}
				}
			}()
			if s.roll(3) == 0 && !s.last {
				time.AfterFunc(time.Duration(s.roll(9000))*time.Millisecond, func() { close(src.lost) })
			}
		})
		s.mu.Lock()
		var lost []*drop
		for d := range src.left {
			lost = append(lost, d)
		}
		s.mu.Unlock()
		for _, d := range lost { // of a lane that was lost, or that ended first
			src.release(d, d.state)
		}
		return src
	}
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			for range 6 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(s.roll(10_000))*time.Millisecond)
				lane(ctx, time.Duration(s.roll(5000))*time.Millisecond)
				cancel()
			}
		})
	}
	for range 5 { // suspects
		<-time.After(time.Duration(s.roll(8000)) * time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
		if s.sub.Turn.Take(ctx, &s.sub.Gate) {
			<-time.After(time.Second)
			s.sub.Turn.Give()
		}
		cancel()
	}
	all.Wait()
	for i := range messages {
		s.put(&drop{id: fmt.Sprint("late", i), key: fmt.Sprint("k", i%7)})
	}
	ctx, cancel := context.WithCancel(t.Context())
	s.mu.Lock()
	s.last = true
	s.mu.Unlock()
	all.Go(func() { lane(ctx, time.Minute) })
	<-time.After(10 * time.Second)
	s.mu.Lock()
	s.calm = true
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
	if slots, n, probes, closes := s.sub.InUse(); slots != [2]int{} || n != 0 || probes != 0 || closes != 0 || s.sub.Turn.Busy() != 0 {
		t.Errorf("in use: slots %v, %d in flight, %d probes, %d closes of the gate, %d in the turn", slots, n, probes, closes, s.sub.Turn.Busy())
	}
	if l := s.sub.Load(); l != (redeliver.Load{}) {
		t.Errorf("load %+v", l)
	}
}
