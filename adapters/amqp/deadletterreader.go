package amqp

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/internal/deadletter/driver"
)

// metKey is the key of the state for how often a message of a DLQ with a delivery limit was
// delivered at most.
const metKey = "met"

// deadReader reads as many messages as lay ready when it was opened. It implements
// [driver.Reader].
type deadReader struct {
	s     *deadSession
	h     *hand
	all   int // messages that lay ready
	left  int // of them, not read yet
	until int // deliveries of a message at which it is left alone; 0 for any
	met   int // the most deliveries of a message
}

// Next implements [driver.Reader].
func (r *deadReader) Next(ctx context.Context, want func(*deadletter.Message) bool) (*deadletter.Message, error) {
	if r.left == 0 {
		return nil, io.EOF
	}
	d, ok, err := r.h.next(ctx, r.left)
	if err != nil {
		return nil, r.s.lost(err)
	}
	if !ok { // they were deleted, have expired, or another reader has them
		r.left = 0
		return nil, io.EOF
	}
	r.left--
	count, _ := deliveryCount(d.Headers)
	if r.met = max(r.met, count); r.until > 0 && r.met >= r.until {
		return nil, r.s.q.worn(r.met)
	}
	m := r.s.q.message(&d, r.h)
	if want != nil && !want(m) {
		return nil, nil //nolint:nilnil // that is how Next says it
	}
	return m, nil
}

// Arrived implements [driver.Arriver]. It is counted, not looked at: where nothing has come
// nothing is read.
func (r *deadReader) Arrived(context.Context) (int, error) {
	if err := r.h.pause(); err != nil {
		return 0, r.s.lost(err)
	}
	ready, _, err := certain(r.h.ask, r.h.queue)
	if err != nil {
		return 0, r.s.lost(err)
	}
	return ready - (r.all - r.h.all), nil
}

// HoldsFor implements [driver.Holding].
func (r *deadReader) HoldsFor() time.Duration { return r.s.q.c.cfg.ConsumerTimeout }

// Close implements [driver.Reader].
func (r *deadReader) Close(ctx context.Context) error {
	err := r.h.back(ctx)
	if r.s.conn.IsClosed() {
		return nil // the broker has all back, and the fence is down
	}
	if err == nil && r.s.q.limit > 0 {
		err = r.s.q.meet(ctx, r.met+1, r.left == 0) // handing it back counts
	}
	return err
}

// met is how often a message of the DLQ was delivered at most, as far as it was noted.
func (q *deadLetters) metBefore(ctx context.Context) (met int, err error) {
	state, err := q.Load(ctx)
	if err == nil && state[metKey] != nil {
		_ = json.Unmarshal(state[metKey], &met) // what is no number was not noted
	}
	return met, err
}

// unworn refuses to look where a look might end a message.
func (q *deadLetters) unworn(ctx context.Context, until int) error {
	if until == 0 {
		return nil
	}
	met, err := q.metBefore(ctx)
	if err == nil && met >= until {
		err = q.worn(met)
	}
	return err
}

func (q *deadLetters) worn(met int) error {
	return fmt.Errorf("amqp: %s is not looked at: a message in it was delivered %d times, and the broker takes it away at %d (its delivery limit); %d deliveries are left for a replay or a purge. "+
		"Raise the limit, by a policy or the queue's arguments, or set DeliveryLimit if it is higher", q.info.DLQ, met, q.limit, max(0, q.limit-2-met))
}

// meet notes that: the next look is refused before it begins where that is too often. Whoever has
// seen the whole DLQ knows better than who was there before.
func (q *deadLetters) meet(ctx context.Context, met int, whole bool) error {
	before, err := q.metBefore(ctx)
	if err != nil || met == before || met < before && !whole {
		return err
	}
	return q.Append(ctx, driver.Entry{Key: metKey, Value: fmt.Append(nil, met)})
}

var (
	_ driver.Arriver = (*deadReader)(nil)
	_ driver.Holding = (*deadReader)(nil)
)
