package sidecar

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/redeliver/redeliver"
)

// part is a range of a batch that one request posts. to is exclusive.
type part struct{ from, to int }

// parts divides a batch. A message in its last attempt is posted alone, so that a bad message, which makes its whole
// batch fail, sends no others to the DLQ.
func (h *HTTP) parts(all []*Message) (parts []part) {
	begin := 0
	for i, m := range all {
		if h.c.Retries <= 0 || m.State.Attempts < h.c.Retries {
			continue
		}
		if begin < i {
			parts = append(parts, part{begin, i})
		}
		parts = append(parts, part{i, i + 1})
		begin = i + 1
	}
	if begin < len(all) {
		parts = append(parts, part{begin, len(all)})
	}
	return parts
}

// singly returns one part per message.
func (p part) singly() (parts []part) {
	for i := p.from; i < p.to; i++ {
		parts = append(parts, part{i, i + 1})
	}
	return parts
}

// errNoTurn is the error of a postponed message that was not posted in time.
var errNoTurn = errors.New("other messages of its batch used up the time before it was sent")

// turns are the remaining parts of a batch, which are posted one after another with one common timeout. When a third of
// the time is left, the remaining messages are postponed, because they have not failed.
type turns struct {
	answer func(i int, err error)

	mu   sync.Mutex
	todo []part
	over bool
}

// until ends the turns after two thirds of the time from begin to ctx's end. Then stop returns false.
func (t *turns) until(ctx context.Context, begin time.Time) (stop func() bool) {
	end, ok := ctx.Deadline()
	if !ok {
		return func() bool { return true }
	}
	left := time.Until(end) - end.Sub(begin)/3
	if left <= 0 {
		t.end()
		return func() bool { return false }
	}
	return time.AfterFunc(left, t.end).Stop
}

func (t *turns) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.over = true
	t.putAside(t.todo)
	t.todo = nil
}

func (t *turns) putAside(parts []part) {
	for _, p := range parts {
		for i := p.from; i < p.to; i++ {
			t.answer(i, redeliver.Postpone(errNoTurn))
		}
	}
}

// next returns the next part, and false if there is none.
func (t *turns) next() (p part, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.todo) == 0 {
		return part{}, false
	}
	p, t.todo = t.todo[0], t.todo[1:]
	return p, true
}

// first puts parts before all others.
func (t *turns) first(parts []part) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over {
		t.putAside(parts)
		return
	}
	t.todo = append(parts, t.todo...)
}

// postParts posts a batch in parts. begin is the time from which the timeout counts.
func (h *HTTP) postParts(ctx context.Context, begin time.Time, all []*Message, todo []part, answer func(i int, err error)) error {
	t := &turns{answer: answer, todo: todo}
	stop := t.until(ctx, begin)
	defer stop()
	for {
		p, ok := t.next()
		if !ok {
			return nil
		}
		answered := make([]bool, p.to-p.from)
		err := h.postBatch(ctx, all[p.from:p.to], func(i int, err error) {
			answered[i] = true
			answer(p.from+i, err)
		})
		_, unreached := errors.AsType[*UnreachedError](err)
		switch {
		case err == nil: // also if the time is over now
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case unreached && p.from == 0 && stop():
			return err // nothing has been answered, so the whole batch can be tried again
		case unreached: // it disconnected during the batch
			err = redeliver.Postpone(err)
		case len(answered) > 1 && errors.Is(err, redeliver.ErrPermanent):
			t.first(p.singly())
			continue
		}
		for i, done := range answered {
			if !done {
				answer(p.from+i, err)
			}
		}
	}
}
