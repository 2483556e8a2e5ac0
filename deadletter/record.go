package deadletter

import (
	"fmt"
	"slices"
	"time"
)

// Record is what is remembered of a DLQ besides its messages where there is no log
// to keep it in: on RabbitMQ and SQS it is one message in a queue of its own. It is
// plain data, and is kept as JSON. An adapter changes it under a lock; where a
// process that dies in between may leave two, Merge makes one of them.
type Record struct {
	// Claim is who may write; Look who reads, where that is a lease, too.
	Claim *Lease `json:"claim,omitempty"`
	Look  *Lease `json:"look,omitempty"`
	// Tasks is the history, the oldest first.
	Tasks []Task               `json:"tasks,omitempty"`
	Wants map[string]Wish      `json:"wants,omitempty"` // by task
	Marks map[Position]Outcome `json:"marks,omitempty"`
	// Missed are marks whose messages no runner has met that saw the whole DLQ, and
	// since when. See Forget.
	Missed map[Position]time.Time `json:"missed,omitempty"`
	// Met is how often a message of a DLQ with a delivery limit was delivered at most.
	Met int `json:"met,omitempty"`
}

// Wish is what a task was asked to do, and when.
type Wish struct {
	Wanted Wanted    `json:"wanted"`
	At     time.Time `json:"at"`
}

// Lease is a right that somebody has until it runs out. Until is zero where a
// connection holds it.
type Lease struct {
	Token string    `json:"token,omitempty"`
	Who   string    `json:"who"`
	Task  string    `json:"task"`
	Since time.Time `json:"since"`
	Until time.Time `json:"until,omitzero"`
}

// Holder is who has the lease; of none, somebody whom the record does not name yet.
func (l *Lease) Holder() Holder {
	if l == nil {
		return Holder{Who: "somebody who has just taken it", Task: "unknown", Since: now()}
	}
	return Holder{Who: l.Who, Task: l.Task, Since: l.Since, Until: l.Until}
}

// Held tells whether somebody has a lease that runs out.
func (l *Lease) Held(at time.Time) bool { return l != nil && at.Before(l.Until) }

// Put records a task in place of what was recorded of it before. The oldest tasks
// that have ended are forgotten, and of an edit or import that is recorded as running
// while another is put, its process has died.
func (r *Record) Put(t Task) {
	if i := slices.IndexFunc(r.Tasks, func(was Task) bool { return was.ID == t.ID }); i >= 0 {
		r.Tasks[i] = t
		return
	}
	r.Tasks = append(r.Tasks, t)
	for i := 0; len(r.Tasks) > keptTasks && i < len(r.Tasks)-1; {
		if was := &r.Tasks[i]; was.Open() && was.Kind.fixed() == "" {
			i++
			continue
		}
		delete(r.Wants, r.Tasks[i].ID)
		r.Tasks = slices.Delete(r.Tasks, i, i+1)
	}
}

// Want notes what a task is asked to do.
func (r *Record) Want(task string, w Wanted) {
	if r.Wants == nil {
		r.Wants = make(map[string]Wish)
	}
	r.Wants[task] = Wish{Wanted: w, At: now()}
}

// Mark notes what became of messages that stay; "" forgets it. Where there would be
// more than [MaxMarks] nothing is noted, and the error is [ErrFull].
func (r *Record) Mark(marks map[Position]Outcome) error {
	fresh, gone := 0, 0
	for at, o := range marks {
		switch _, known := r.Marks[at]; {
		case known && o == "":
			gone++
		case !known && o != "":
			fresh++
		}
	}
	if n := len(r.Marks) - gone; fresh > 0 && n+fresh > MaxMarks {
		return fmt.Errorf("%w: %d messages have one, and %d more would be more than %d", ErrFull, n, fresh, MaxMarks)
	}
	for at, o := range marks {
		r.mark(at, o)
	}
	return nil
}

func (r *Record) mark(at Position, o Outcome) {
	delete(r.Missed, at)
	if o == "" {
		delete(r.Marks, at)
		return
	}
	if r.Marks == nil {
		r.Marks = make(map[Position]Outcome)
	}
	r.Marks[at] = o
}

// Forget drops the marks of messages that have gone by themselves, or that somebody else
// has taken away: those that no runner has met in a whole look for 14 days. met are the
// marked messages that one has met now. One that was not seen once may only be in other
// hands.
func (r *Record) Forget(met map[Position]bool, now time.Time) {
	for at := range r.Missed {
		if _, marked := r.Marks[at]; !marked || met[at] {
			delete(r.Missed, at)
		}
	}
	for at := range r.Marks {
		since, missed := r.Missed[at]
		switch {
		case met[at]:
		case missed && now.Sub(since) >= missedFor:
			delete(r.Marks, at)
			delete(r.Missed, at)
		case !missed && len(r.Missed) < maxMissed:
			if r.Missed == nil {
				r.Missed = make(map[Position]time.Time)
			}
			r.Missed[at] = now.UTC().Truncate(time.Second)
		}
	}
}

// Merge adds what another record knows: of two words on one thing the later counts.
func (r *Record) Merge(o *Record) {
	r.Claim, r.Look = laterLease(r.Claim, o.Claim), laterLease(r.Look, o.Look)
	for _, t := range o.Tasks {
		if !slices.ContainsFunc(r.Tasks, func(mine Task) bool { return mine.ID == t.ID && !mine.Updated.Before(t.Updated) }) {
			r.Put(t)
		}
	}
	for task, w := range o.Wants {
		if mine, ok := r.Wants[task]; !ok || mine.At.Before(w.At) {
			if r.Wants == nil {
				r.Wants = make(map[string]Wish)
			}
			r.Wants[task] = w
		}
	}
	for at, mark := range o.Marks { // of two states none is forgotten, whatever their number
		r.mark(at, mark)
	}
	for at, since := range o.Missed {
		if mine, missed := r.Missed[at]; !missed || mine.Before(since) {
			if r.Missed == nil {
				r.Missed = make(map[Position]time.Time)
			}
			r.Missed[at] = since
		}
	}
	r.Met = max(r.Met, o.Met)
}

func laterLease(x, y *Lease) *Lease {
	if x == nil || y != nil && (y.Since.After(x.Since) || y.Since.Equal(x.Since) && y.Until.After(x.Until)) {
		return y
	}
	return x
}
