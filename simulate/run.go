package simulate

import (
	"container/heap"
	"context"
	"math"
	"strconv"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/delayqueue"
)

// Run runs a scenario until every message has succeeded or is in the DLQ. It returns an error if the scenario is
// invalid, or when ctx ends.
func Run(ctx context.Context, s Scenario) (*Result, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	p := &simulation{s: s.withDefaults(), began: time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)}
	p.ladder = delayqueue.NewLadder(p.s.Policy)
	p.free = make(slots, p.s.Concurrency)
	p.res = newResult(&p.s, p.ladder)
	n := p.s.messages()
	for i := 0; i < n || len(p.waiting) > 0; {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		// Process arrivals and ended waits in the order of time.
		at := time.Duration(math.Round(float64(i) / p.s.Rate * float64(time.Second)))
		if i < n && (len(p.waiting) == 0 || at <= p.waiting[0].due) {
			p.res.arrive(at)
			p.attempt(message{id: uint32(i), created: at, due: at})
			i++
			continue
		}
		m, _ := heap.Pop(&p.waiting).(*message)
		p.attempt(*m)
		p.spare = append(p.spare, m)
	}
	p.res.finish()
	return p.res, nil
}

// simulation is the state of a run.
type simulation struct {
	s       Scenario
	began   time.Time // when the first message arrived, by the clock of the policy
	ladder  delayqueue.Ladder
	waiting queue
	spare   []*message
	free    slots
	res     *Result
	dec     redeliver.Decision
}

// message is a message that waits, or has just arrived. There may be millions of them.
type message struct {
	id           uint32
	attempts     int32
	failed       bool          // whether it has failed before
	created, due time.Duration // since began
	first        time.Duration // time of its first failure
	postponed    time.Duration // when it was postponed, plus 1; 0 if it is not
}

// attempt runs a message that is due, and follows the policy until the message succeeds, waits, or is in the DLQ.
func (p *simulation) attempt(m message) {
	start := p.free.next(m.due)
	if !p.mayRun(&m, start) {
		return
	}
	p.free.take(m.due, p.s.HandlerTime)
	for {
		failure := p.s.Fails(m.id, int(m.attempts)+1, start)
		end := start + p.s.HandlerTime
		p.res.attempt(start, end, m.failed, failure)
		if failure == nil {
			p.res.succeed(end-m.created, m.failed)
			return
		}
		m.failed = true
		p.decide(&m, failure, end)
		switch st := &p.dec.State; p.dec.Action {
		case redeliver.ActionRetryNow:
			m.setState(p.began, st)
			if start = end; !p.mayRun(&m, start) {
				return
			}
		case redeliver.ActionRetryLater, redeliver.ActionPostpone:
			m.setState(p.began, st)
			m.due = st.Due.Sub(p.began)
			p.res.wait(end, m.due)
			p.addWaiting(m)
			return
		default:
			p.res.deadLetter(end, st.Reason)
			return
		}
	}
}

// mayRun reports whether an attempt may begin at start. It sends an expired message to the DLQ.
func (p *simulation) mayRun(m *message, start time.Duration) bool {
	if p.s.Policy.MaxAge <= 0 {
		return true
	}
	p.createState(m)
	if p.s.Policy.CheckExpired(&p.dec.State, p.began.Add(start)) == nil {
		return true
	}
	p.res.deadLetter(start, redeliver.ReasonExpired)
	return false
}

// decide applies the policy, as a subscriber does.
func (p *simulation) decide(m *message, failure error, now time.Duration) {
	p.createState(m)
	p.dec = p.s.Policy.Decide(p.dec.State, failure, p.began.Add(now))
}

// createState creates the state of a message.
func (p *simulation) createState(m *message) {
	st := &p.dec.State
	*st = redeliver.State{
		ID: strconv.FormatUint(uint64(m.id), 10), Attempts: int(m.attempts),
		Source: redeliver.Source{Known: true, Timestamp: p.began.Add(m.created)},
	}
	if m.attempts > 0 {
		st.FirstFailed = p.began.Add(m.first)
	}
	if m.postponed > 0 {
		st.PostponedSince = p.began.Add(m.postponed - 1)
	}
}

// setState takes from a state what the next attempt needs.
func (m *message) setState(began time.Time, st *redeliver.State) {
	m.attempts, m.postponed = int32(st.Attempts), 0
	if !st.FirstFailed.IsZero() {
		m.first = st.FirstFailed.Sub(began)
	}
	if !st.PostponedSince.IsZero() {
		m.postponed = st.PostponedSince.Sub(began) + 1
	}
}

func (p *simulation) addWaiting(m message) {
	e := new(message)
	if n := len(p.spare); n > 0 {
		e, p.spare = p.spare[n-1], p.spare[:n-1]
	}
	*e = m
	heap.Push(&p.waiting, e)
}

// queue is a heap of the waiting messages, by due time and then by age.
type queue []*message

func (q queue) Len() int { return len(q) }
func (q queue) Less(i, j int) bool {
	if q[i].due != q[j].due {
		return q[i].due < q[j].due
	}
	return q[i].id < q[j].id
}
func (q queue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }

// Push implements [heap.Interface].
func (q *queue) Push(x any) {
	m, _ := x.(*message)
	*q = append(*q, m)
}

// Pop implements [heap.Interface].
func (q *queue) Pop() any {
	last := len(*q) - 1
	m := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	return m
}

// slots is a heap of the times at which each slot for an attempt is free. An empty heap means no bound.
type slots []time.Duration

func (s slots) Len() int           { return len(s) }
func (s slots) Less(i, j int) bool { return s[i] < s[j] }
func (s slots) Swap(i, j int)      { s[i], s[j] = s[j], s[i] }

// Push implements [heap.Interface]. It is not used.
func (s *slots) Push(any) {}

// Pop implements [heap.Interface]. It is not used.
func (s *slots) Pop() any { return nil }

// next returns when an attempt can begin: at due, or later when a slot is free.
func (s slots) next(due time.Duration) time.Duration {
	if len(s) == 0 {
		return due
	}
	return max(due, s[0])
}

// take uses a slot, from next(due), for an attempt of the duration takes.
func (s slots) take(due, takes time.Duration) {
	if len(s) > 0 {
		s[0] = s.next(due) + takes
		heap.Fix(&s, 0)
	}
}
