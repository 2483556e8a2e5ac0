package engine

import (
	"hash/maphash"
	"time"

	"github.com/redeliver/redeliver"
)

// decide asks the policy about the failure of this delivery, and the guards that the policy asks for. They count the failure,
// so it must be called once for each, by the caller that then does what it says.
func (d *Delivery) decide(err error, now time.Time) *redeliver.Decision {
	dec := &redeliver.Decision{} // the one allocation: the state is read into it, and it is what is written
	d.readState(&dec.State)
	st := dec.State
	*dec = d.sub.decide(st, err, now)
	if d.sub.slots.guard != nil && d.judge(dec, &st, err, now) {
		*dec = d.sub.postpone(st, err, now)
	}
	return dec
}

// judge shows a failure under the state before to the guards, and reports whether the message is to be postponed.
func (d *Delivery) judge(dec *redeliver.Decision, before *redeliver.State, err error, now time.Time) (postpone bool) {
	f := failure{
		err: err, id: maphash.String(keySeed, before.ID), probe: d.isProbe(),
		dependency: signalOf(dec, err) == signalFailure, sparable: dec.Sparable(),
	}
	if f.dependency {
		f.cause, f.key = dec.State.Cause(), d.keyHash(before.ID)
		f.failedBefore, f.sinceFirst = before.Attempts > 0 && before.PostponedSince.IsZero(), now.Sub(before.FirstFailed)
	}
	return d.sub.slots.judge(&f)
}

// signal is what the end of a message says of what its handler depends on.
type signal uint8

const (
	signalNone signal = iota // nothing: the message is to blame, or it was lost
	signalSuccess
	signalFailure
)

// signalOf is what a decision about a failure says of the dependency. A fault of the message itself says nothing.
func signalOf(dec *redeliver.Decision, cause error) signal {
	if dec.Action != redeliver.DeadLetter {
		return signalFailure
	}
	if _, old := cause.(*redeliver.ExpiredError); old { //nolint:errorlint // it is the engine's own: no handler ran
		return signalNone
	}
	switch dec.State.Reason {
	case redeliver.ReasonExhausted, redeliver.ReasonTimeout, redeliver.ReasonPanic, redeliver.ReasonExpired, redeliver.ReasonUnschedulable:
		return signalFailure
	default:
		return signalNone
	}
}

var keySeed = maphash.MakeSeed()

// keyHash is what stands for a message's key, or its id where it has none.
func (d *Delivery) keyHash(id string) uint64 {
	if key := d.c.key(); key != nil {
		return maphash.Bytes(keySeed, key)
	}
	return maphash.String(keySeed, id)
}
