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
		ill: outcomeOf(dec, err) == ill, sparable: dec.Sparable(),
	}
	if f.ill {
		f.print, f.key = dec.State.Cause(), d.keyHash(before.ID)
		f.counted, f.since = before.Attempts > 0 && before.PostponedSince.IsZero(), now.Sub(before.FirstFailed)
	}
	return d.sub.slots.judge(&f)
}

// outcome is what the end of a message says of what its handler depends on.
type outcome uint8

const (
	silent outcome = iota // nothing: the message is to blame, or it was lost
	well
	ill
)

// outcomeOf is what a decision about a failure says of the dependency. A fault of the message itself says nothing.
func outcomeOf(dec *redeliver.Decision, cause error) outcome {
	if dec.Action != redeliver.DeadLetter {
		return ill
	}
	if _, old := cause.(*redeliver.ExpiredError); old { //nolint:errorlint // it is the engine's own: no handler ran
		return silent
	}
	switch dec.State.Reason {
	case redeliver.ReasonExhausted, redeliver.ReasonTimeout, redeliver.ReasonPanic, redeliver.ReasonExpired, redeliver.ReasonUnschedulable:
		return ill
	default:
		return silent
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
