package engine

import (
	"hash/maphash"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/engine/guard"
	"github.com/redeliver/redeliver/internal/errortext"
)

// decideAndCount asks the policy and the guard about the failure of this delivery. The guard counts the failure, so only the
// caller that carries out the decision may call it, once.
func (d *Delivery) decideAndCount(err error, now time.Time) *redeliver.Decision {
	dec := &redeliver.Decision{} // the only allocation: its State is read here and written later
	d.readState(&dec.State)
	st := dec.State
	*dec = d.sub.applyPolicy(st, err, now)
	if dec.Pause > 0 {
		d.sub.slots.pause(dec.Pause, err)
		return dec
	}
	if d.sub.slots.guard.Detects && d.countFailure(dec, &st, err, now) {
		*dec = d.sub.postpone(st, err, now)
	}
	return dec
}

// countFailure passes a failure to the guard, with the state before it. It reports whether the message is to be postponed.
func (d *Delivery) countFailure(dec *redeliver.Decision, before *redeliver.State, err error, now time.Time) (postpone bool) {
	switch {
	case signalOf(dec, err) != signalFailure:
		return false
	case dec.Action == redeliver.ActionPostpone && !dec.Unreachable && !d.isProbe():
		return false // the handler has decided to wait, perhaps for another message
	}
	f := d.sub.failure(dec, before, err, now)
	f.Key, f.Probe = d.keyHash(before.ID), d.isProbe()
	return d.sub.slots.countFailure(f, d.began)
}

// failure describes a failure for the guard, with the state before it.
func (s *Subscription) failure(dec *redeliver.Decision, before *redeliver.State, err error, now time.Time) *guard.Failure {
	f := &guard.Failure{
		Err: err, Cause: causeOf(&dec.State), ID: maphash.String(keySeed, before.ID), Postponable: isPostponable(dec),
		FailedBefore: before.Attempts > 0 && before.PostponedSince.IsZero(), SinceFirst: now.Sub(before.FirstFailed),
		Unreachable: dec.Unreachable, Before: -1,
	}
	if !before.LastFailed.IsZero() && (!before.PostponedSince.IsZero() || causeOf(before) == f.Cause) {
		f.Before = s.slots.at(before.LastFailed, now)
	}
	return f
}

// signal says what the end of a message shows about the dependencies of its handler.
type signal uint8

const (
	signalNone    signal = iota // no handler ran, or the message was lost
	signalMessage               // a handler ran, and the message is to blame
	signalSuccess
	signalFailure
)

func signalOf(dec *redeliver.Decision, cause error) signal {
	if dec.MessageAtFault {
		return signalMessage
	}
	if dec.Action != redeliver.ActionDeadLetter {
		return signalFailure
	}
	if _, old := cause.(*redeliver.ExpiredError); old { //nolint:errorlint // it is the engine's own: no handler ran
		return signalNone
	}
	switch dec.State.Reason {
	case redeliver.ReasonExhausted, redeliver.ReasonTimeout, redeliver.ReasonPanic, redeliver.ReasonExpired, redeliver.ReasonUnschedulable:
		return signalFailure
	case redeliver.ReasonPermanent, redeliver.ReasonRejected:
		return signalMessage
	default:
		return signalNone
	}
}

var keySeed = maphash.MakeSeed()

// keyHash returns the hash of the message's key, or of its id if it has no key. A batch that has failed as a whole counts for one
// key: one of its messages may be the only cause.
func (d *Delivery) keyHash(id string) uint64 {
	if batch := d.sharedBatch.Load(); batch != 0 {
		return batch
	}
	if key := d.entry.key(); key != nil {
		return maphash.Bytes(keySeed, key)
	}
	return maphash.String(keySeed, id)
}

// causeOf returns a hash of ErrorType and Error. Errors of one type whose texts differ only in numbers, ids and quotations have
// the same hash.
func causeOf(s *redeliver.State) uint64 {
	const offset, prime = 14695981039346656037, 1099511628211 // FNV-1a
	h := uint64(offset)
	for _, part := range [...]string{s.ErrorType, errortext.Normalise(s.Error)} {
		for i := range len(part) {
			h = (h ^ uint64(part[i])) * prime
		}
		h *= prime
	}
	return h
}

// isPostponable reports whether an outage would postpone the message instead: the dependency may have caused the failure,
// and the message has not exceeded a limit in time.
func isPostponable(d *redeliver.Decision) bool {
	if d.MessageAtFault {
		return false
	}
	switch d.Action {
	case redeliver.ActionRetryNow, redeliver.ActionRetryLater:
		return true
	case redeliver.ActionDeadLetter:
		return d.State.Reason == redeliver.ReasonExhausted || d.State.Reason == redeliver.ReasonTimeout || d.State.Reason == redeliver.ReasonPanic
	default:
		return false
	}
}
