package delayqueue

import (
	"iter"

	"github.com/redeliver/redeliver"
)

// Member is an adapter's message in the broker's own form on its way through
// batches.
type Member interface {
	// Describe is as for a [Task].
	Describe() (headers redeliver.Headers, body []byte)
	// Report tells the lane that the message has ended: Acked or Abandoned. What has
	// moved on is told to the delivery's Mover. It may be told twice of a message.
	Report(how Ending)
	// Again makes a new Place for the message, which runs once more: what its batch
	// function has kept of the attempt before must not speak for this one.
	Again() *Place
}

// Place is the place of a message in a batch, and its attempt there: what an
// adapter embeds in what a batch function is shown. Its zero value is ready for
// Give. No goroutine waits for it, so a message that succeeds costs none.
type Place struct {
	Batched
	attempt Attempt
	root    *Delivery // the first; a retry in place has another
	crew    *BatchWorkers
	member  Member
	heard   bool // an answer, which is in err
	err     error
}

// BatchWorkers take messages through their attempts in batches, as [Work] does
// with one at a time: they gather, call the batch function and do what each answer
// asks for. Safe for concurrent use.
type BatchWorkers struct {
	queue   *Batches
	workers *Workers[*Place] // of what takes its time: failures, and Policy.Invalid
}

// NewBatchWorkers makes those of a subscription. config has its defaults and was
// checked.
func NewBatchWorkers(config BatchConfig, sub *Subscription, call BatchCall) *BatchWorkers {
	return &BatchWorkers{queue: NewBatches(config, sub, call), workers: NewWorkers((*Place).work)}
}

// Give has the message of d, which has a payload of so many bytes, wait for its
// batch. It does not block.
func (w *BatchWorkers) Give(p *Place, d *Delivery, m Member, bytes int) {
	p.crew, p.member, p.root, p.bytes = w, m, d, bytes
	p.enter(d)
}

// Close lets go of goroutines that have nothing to do. It does not wait.
func (w *BatchWorkers) Close() { w.workers.Close() }

// Members are the messages of a batch, all of one type.
func Members[M Member](all []*Batched) iter.Seq[M] {
	return func(yield func(M) bool) {
		for _, m := range all {
			if p, ok := m.who.(*Place); ok {
				if e, ok := p.member.(M); ok && !yield(e) {
					return
				}
			}
		}
	}
}

// Attempt is the context of the attempt.
func (p *Place) Attempt() *Attempt { return &p.attempt }

// State is the message's state before the attempt that runs now.
func (p *Place) State() redeliver.State { return p.attempt.d.State() }

// enter begins an attempt of d, which is root or follows it.
func (p *Place) enter(d *Delivery) {
	session := d.Session()
	if d == p.root {
		p.attempt.Enter(d, d, p)
	} else {
		p.attempt.Enter(d.Under(p.root), d, p)
	}
	p.Init(session, p, &p.attempt, d, p.bytes)
	if d.Sub.Policy.Invalid != nil {
		p.crew.workers.Give(p)
		return
	}
	p.join()
}

func (p *Place) join() {
	q := p.crew.queue
	q.Lock()
	defer q.Unlock()
	q.Join(&p.Batched)
}

// work is what a worker does: it asks whether the message may run, or does what
// the answer asks for.
func (p *Place) work() {
	d := p.attempt.d
	switch {
	case p.heard:
		p.end(p.attempt.Answer(p.err))
	case d.Lost(): // it lay ready when its session ended, and comes back
		p.member.Report(Abandoned)
	default:
		if err := d.Invalid(p.Describe()); err != nil {
			p.end(d.Fail(err))
			return
		}
		p.join()
	}
}

// end goes on after an attempt.
func (p *Place) end(o Outcome, next *Delivery, err error) {
	switch {
	case o == Succeeded:
		p.member.Report(Acked)
	case o == Again:
		n := p.member.Again()
		n.crew, n.member, n.root, n.bytes = p.crew, p.member, p.root, p.bytes
		n.enter(next)
	case o == Moved && err != nil:
		p.member.Report(Abandoned) // the Mover may have been told, too
	}
}

// Verdict implements [BatchWaiter]. A success, the one answer that comes without the
// queue's lock, is settled at once: there is nothing to wait for.
func (p *Place) Verdict(err error) {
	if err == nil && p.attempt.succeeded() {
		p.member.Report(Acked)
		return
	}
	p.heard, p.err = true, err
	p.crew.workers.Give(p)
}

// Handle implements [Task]. A batch function handles the message.
func (p *Place) Handle(*Attempt) error { return nil }

// Describe implements [Task].
func (p *Place) Describe() (redeliver.Headers, []byte) { return p.member.Describe() }

// Answered implements [Task].
func (p *Place) Answered() bool { return false }

// Expired implements [Task].
func (p *Place) Expired(err error) error { return p.Batched.Expired(err) }

// Settle implements [Task].
func (p *Place) Settle(acked bool) {
	switch {
	case !acked:
		p.member.Report(Abandoned)
	case !p.root.Forwarded(): // of a batch that was acked as a whole
		p.member.Report(Acked)
	}
}
