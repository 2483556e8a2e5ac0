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

// split returns one part per message.
func (p part) split() (parts []part) {
	for i := p.from; i < p.to; i++ {
		parts = append(parts, part{i, i + 1})
	}
	return parts
}

// errNotSent is the error of a postponed message that was not posted in time.
var errNotSent = errors.New("other messages of its batch used up the time before it was sent")

// pendingParts are the parts of a batch that are not posted yet. They are posted one after another, with the timeout of
// the batch. When a third of it is left, the messages of the other parts are postponed, because they have not failed.
type pendingParts struct {
	answer func(i int, err error)

	mu    sync.Mutex
	todo  []part
	ended bool
}

// endAfterTwoThirds ends the parts after two thirds of the time from begin to ctx's end. Then stop returns false.
func (t *pendingParts) endAfterTwoThirds(ctx context.Context, begin time.Time) (stop func() bool) {
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

func (t *pendingParts) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended = true
	t.postponeParts(t.todo)
	t.todo = nil
}

func (t *pendingParts) postponeParts(parts []part) {
	for _, p := range parts {
		for i := p.from; i < p.to; i++ {
			t.answer(i, redeliver.Postpone(errNotSent))
		}
	}
}

// next returns the next part, and false if there is none.
func (t *pendingParts) next() (p part, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.todo) == 0 {
		return part{}, false
	}
	p, t.todo = t.todo[0], t.todo[1:]
	return p, true
}

// prepend puts parts before all others.
func (t *pendingParts) prepend(parts []part) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended {
		t.postponeParts(parts)
		return
	}
	t.todo = append(parts, t.todo...)
}

// postParts posts a batch in parts. begin is the time from which the timeout counts.
func (h *HTTP) postParts(ctx context.Context, begin time.Time, all []*Message, todo []part, answer func(i int, err error)) error {
	t := &pendingParts{answer: answer, todo: todo}
	stop := t.endAfterTwoThirds(ctx, begin)
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
			t.prepend(p.split())
			continue
		}
		for i, done := range answered {
			if !done {
				answer(p.from+i, err)
			}
		}
	}
}
