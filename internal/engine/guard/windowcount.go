package guard

import "time"

// windowParts is the number of parts of a window. A window moves by one part at a time.
const windowParts = 10

// windowCount counts events within a moving window. The length of the window is exact to a tenth.
type windowCount struct {
	part   time.Duration // the length of a part
	counts [windowParts]int64
	sum    int64
	last   int64 // the number of the latest part
}

func newWindowCount(window time.Duration) windowCount { return windowCount{part: window / windowParts} }

// advance drops the events before the window that ends now.
func (w *windowCount) advance(now time.Duration) {
	at := int64(now / w.part)
	for i := max(w.last+1, at-windowParts+1, 0); i <= at; i++ {
		w.sum -= w.counts[i%windowParts]
		w.counts[i%windowParts] = 0
	}
	w.last = max(w.last, at)
}

// since returns the number of events since from, a time within the window, rounded down to a part.
func (w *windowCount) since(from, now time.Duration) (n int64) {
	w.advance(now)
	for i := max(int64(max(from, 0)/w.part), w.last-windowParts+1, 0); i <= w.last; i++ {
		n += w.counts[i%windowParts]
	}
	return n
}

// add counts one event now, and returns the number in the window.
func (w *windowCount) add(now time.Duration) int64 {
	w.advance(now)
	w.counts[w.last%windowParts]++
	w.sum++
	return w.sum
}
