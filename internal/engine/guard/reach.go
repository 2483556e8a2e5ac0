package guard

import "time"

// reach finds out whether the program that handles the messages is there, see redeliver.Class.Unreachable. An answer shows it, but
// only for the time when its attempt began: a program that ends still answers what it has begun, while nothing reaches it any more.
//
// A failure that seems to show the opposite is a sign if its attempt began after the sign before. So the messages that are in flight
// together when one of them ends the program are one sign, and so is a batch.
type reach struct {
	wasThere time.Duration // the program was there then
	signs    int
	lastSign time.Duration
}

// minSigns is the number of signs without an answer in between that are an outage.
const minSigns = 3

func newReach() reach { return reach{wasThere: -1} }

// answered counts an answer of the program, to an attempt that began then.
func (r *reach) answered(began time.Duration) { r.wasThere = max(r.wasThere, began) }

// wasThereSince reports whether the program was there at a time or later.
func (r *reach) wasThereSince(at time.Duration) bool { return at >= 0 && r.wasThere >= at }

// addSign counts a failure. It reports whether the signs are an outage now.
func (r *reach) addSign(began, now time.Duration) bool {
	switch {
	case r.signs == 0 || r.wasThere >= r.lastSign:
		r.signs = 0
	case began < r.lastSign:
		return false
	}
	r.signs++
	r.lastSign = now
	if r.signs < minSigns {
		return false
	}
	r.signs = 0
	return true
}
