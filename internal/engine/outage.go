package engine

import (
	"time"

	"github.com/redeliver/redeliver"
)

// outage is the judge of redeliver.Outage. A message goes through it like this: closed,
// its failure is counted in spread, and counts for the message. The failure that makes
// the causes spread trips the breaker: from then on, this one included, failures do not
// count. The messages that were in flight come back one after another, postponed. After
// the pause one message is let through. If it fails for what the others failed for, the
// next pause is longer. If it fails for something else, it may be poison, and says
// nothing of the others, unless several say the same; if it is the only one that fails
// any more, time after time, there is no outage. If it succeeds, so may the next.
//
// What fails again that failed while others succeeded is poison, as far as anybody can
// tell. When the others are done only that is left to run, and all of it fails: it says
// nothing, for as long as the others' successes are in the window.
type outage struct {
	breaker
	spread
	fine, bad rate
	voices    []voice // what messages say while it lasts
	last      uint64  // the message of the probe that failed last
	times     int     // how often in a row
	began     time.Duration
	probes    int
}

// voice is an error that probes have failed with.
type voice struct {
	what     uint64
	messages int
}

const (
	voicesMost = 16
	// chorus is how many probes' messages must fail with an error for it to be the outage's.
	chorus = 3
	// soloMost is how many probes in a row one message may fail before it is no outage.
	soloMost = 5
)

func newOutage(o redeliver.Outage) *outage {
	return &outage{
		breaker: breaker{first: o.Probe, most: o.MaxPause, need: o.Probes}, spread: newSpread(o),
		fine: newRate(o.Window), bad: newRate(o.Window),
	}
}

// ruling is what an outage makes of an attempt's end.
type ruling uint8

const (
	asEver  ruling = iota
	begins         // an outage
	lasts          // it does
	falters        // it lasts, although a probe has succeeded before
	mends          // a probe has succeeded, the first since one failed
	ends           // the outage
	isSolo         // it ends, because it is none
)

// failed is told of a failure that may be the dependency's.
func (o *outage) failed(f *failure, now time.Duration) ruling {
	if o.phase == closed {
		if f.counted && o.ownFault(f.since, now) {
			return asEver
		}
		o.bad.add(now)
		if !o.fail(f.print, f.key, now) {
			return asEver
		}
		o.trip(now)
		o.voices, o.last, o.times, o.began, o.probes = []voice{{f.print, chorus}}, 0, 0, now, 0
		return begins
	}
	if !f.probe {
		return lasts
	}
	o.probes++
	same := o.times > 0 && o.last == f.id
	if !same {
		o.times = 0
	}
	o.last = f.id
	o.times++
	if o.times >= soloMost {
		o.over()
		return isSolo
	}
	faltered := o.good > 0
	o.again(now, o.speaks(f.print, !same))
	if faltered && o.good == 0 {
		return falters
	}
	return lasts
}

// ownFault tells whether others have succeeded since a message failed first.
func (o *outage) ownFault(since, now time.Duration) bool {
	from := now - min(max(since, 0), o.window)
	well, bad := o.fine.since(from, now), o.bad.since(from, now)
	return well > 0 && float64(well) >= (1-o.share)*float64(well+bad)
}

// speaks counts a voice, and tells whether it is the outage's.
func (o *outage) speaks(what uint64, another bool) bool {
	for i := range o.voices {
		v := &o.voices[i]
		if v.what != what {
			continue
		}
		if another {
			v.messages++
		}
		return v.messages >= chorus
	}
	if len(o.voices) < voicesMost {
		o.voices = append(o.voices, voice{what, 1})
	}
	return false
}

// succeeded is told of a success.
func (o *outage) succeeded(probe bool, now time.Duration) ruling {
	switch {
	case o.phase == closed:
		o.succeed()
		o.fine.add(now)
		return asEver
	case !probe: // it began before
		return lasts
	}
	o.probes++
	o.times = 0
	first := o.good == 0
	switch {
	case o.well():
		o.over()
		return ends
	case first:
		return mends
	default:
		return lasts
	}
}

func (o *outage) over() {
	o.phase = closed
	o.reset()
}
