package redeliver

import "math"

// Rate bounds how many attempts begin in a second in one process, first attempts and retries together. Messages that must wait do
// so in the process; that counts as no attempt. In a batch each message counts. A suspect, which runs alone, does not wait.
type Rate struct {
	// PerSecond is the average number of attempts that begin in a second. It may be a fraction. Default 0, no bound.
	PerSecond float64
	// Burst is the number of attempts that may begin at once after a pause. Default: a tenth of PerSecond, at least 1.
	Burst int
}

// maxRate is the largest rate and the largest burst.
const maxRate = 1_000_000

func (r Rate) withDefaults() Rate {
	if r != (Rate{}) && r.Burst == 0 && r.PerSecond <= maxRate {
		r.Burst = int(max(1, math.Ceil(r.PerSecond/10)))
	}
	return r
}

func (r Rate) check(ps *problems, field string) {
	if r == (Rate{}) {
		return
	}
	if !(r.PerSecond >= 1e-6 && r.PerSecond <= maxRate) {
		ps.Add(field+".PerSecond", r.PerSecond, "must be from 0.000001 to 1000000, or 0 without a Burst for no bound")
	}
	checkRange(ps, field+".Burst", r.Burst, 1, maxRate)
}
