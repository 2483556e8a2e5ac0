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
	p := &play{s: s.withDefaults(), began: time.Unix(0, 0).UTC()}
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
			p.attempt(flight{id: uint32(i), born: at, due: at})
			i++
			continue
		}
		f, _ := heap.Pop(&p.waiting).(*flight)
		p.attempt(*f)
		p.spare = append(p.spare, f)
	}
	p.res.finish()
	return p.res, nil
}

// play is the state of a run.
type play struct {
	s       Scenario
	began   time.Time // when the first message arrived, by the clock of the policy
	ladder  delayqueue.Ladder
	waiting queue
	spare   []*flight
	free    slots
	res     *Result
	dec     redeliver.Decision
}

// flight is a message that waits, or has just arrived. There may be millions of them.
type flight struct {
	id        uint32
	attempts  int32
	failed    bool          // whether it has failed before
	born, due time.Duration // since began
	first     time.Duration // time of its first failure
	postponed time.Duration // when it was postponed, plus 1; 0 if it is not
}

// attempt runs a message that is due, and follows the policy until the message succeeds, waits, or is in the DLQ.
func (p *play) attempt(f flight) {
	start := p.free.next(f.due)
	if !p.mayRun(&f, start) {
		return
	}
	p.free.take(f.due, p.s.HandlerTime)
	for {
		failure := p.s.Fails(f.id, int(f.attempts)+1, start)
		end := start + p.s.HandlerTime
		p.res.attempt(start, end, f.failed, failure)
		if failure == nil {
			p.res.succeed(end-f.born, f.failed)
			return
		}
		f.failed = true
		p.decide(&f, failure, end)
		switch st := &p.dec.State; p.dec.Action {
		case redeliver.RetryNow:
			f.remember(p.began, st)
			if start = end; !p.mayRun(&f, start) {
				return
			}
		case redeliver.RetryLater, redeliver.Postponed:
			f.remember(p.began, st)
			f.due = st.Due.Sub(p.began)
			p.res.wait(end, f.due)
			p.park(f)
			return
		default:
			p.res.bury(end, st.Reason)
			return
		}
	}
}

// mayRun reports whether an attempt may begin at start. It sends an expired message to the DLQ.
func (p *play) mayRun(f *flight, start time.Duration) bool {
	if p.s.Policy.MaxAge <= 0 {
		return true
	}
	p.createState(f)
	if p.s.Policy.CheckExpired(&p.dec.State, p.began.Add(start)) == nil {
		return true
	}
	p.res.bury(start, redeliver.ReasonExpired)
	return false
}

// decide applies the policy, as a subscriber does.
func (p *play) decide(f *flight, failure error, now time.Duration) {
	p.createState(f)
	p.dec = p.s.Policy.Decide(p.dec.State, failure, p.began.Add(now))
}

// createState creates the state of a message.
func (p *play) createState(f *flight) {
	st := &p.dec.State
	*st = redeliver.State{
		ID: strconv.FormatUint(uint64(f.id), 10), Attempts: int(f.attempts),
		Source: redeliver.Source{Known: true, Timestamp: p.began.Add(f.born)},
	}
	if f.attempts > 0 {
		st.FirstFailed = p.began.Add(f.first)
	}
	if f.postponed > 0 {
		st.PostponedSince = p.began.Add(f.postponed - 1)
	}
}

func (f *flight) remember(began time.Time, st *redeliver.State) {
	f.attempts, f.postponed = int32(st.Attempts), 0
	if !st.FirstFailed.IsZero() {
		f.first = st.FirstFailed.Sub(began)
	}
	if !st.PostponedSince.IsZero() {
		f.postponed = st.PostponedSince.Sub(began) + 1
	}
}

func (p *play) park(f flight) {
	e := new(flight)
	if n := len(p.spare); n > 0 {
		e, p.spare = p.spare[n-1], p.spare[:n-1]
	}
	*e = f
	heap.Push(&p.waiting, e)
}

// queue is a heap of the waiting messages, by due time and then by age.
type queue []*flight

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
	f, _ := x.(*flight)
	*q = append(*q, f)
}

// Pop implements [heap.Interface].
func (q *queue) Pop() any {
	last := len(*q) - 1
	f := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	return f
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
