package kafka

// Bounds of the bytes that all lanes of a Subscribe have read ahead: keys, values and
// headers of what has not begun. They bound large messages, as readAhead and
// holdSoft bound small ones.
const (
	aheadBytes = 32 << 20 // of all: above it a lane pauses that has its own part of them
	aheadLeast = 1 << 20  // which is so much: the heavy ones must not stop the others
)

// headerBytes is what a header takes in memory beside its name and value: its pointer and two slices.
const headerBytes = 64

// weigh notes what a record that was read takes in memory.
func (l *lane) weigh(e *entry) {
	e.weight = len(e.rec.Key) + len(e.rec.Value)
	for _, h := range e.rec.Headers {
		e.weight += len(h.Key) + len(h.Value) + headerBytes
	}
	l.weight += e.weight
	l.r.weight.Add(int64(e.weight))
}

// lift takes an entry off the weight that begins, or is settled without.
func (l *lane) lift(e *entry) {
	l.weight -= e.weight
	l.r.weight.Add(-int64(e.weight))
	e.weight = 0
}

// unload is lift for all that a lane has at its end.
func (l *lane) unload() {
	l.r.weight.Add(-int64(l.weight))
	l.weight = 0
}

// heavy tells whether the lane must not read on because of the bytes.
func (l *lane) heavy() bool { return l.weight >= aheadLeast && l.r.weight.Load() >= aheadBytes }

// light tells whether a lane that was heavy may, with some distance as in roomy.
func (l *lane) light() bool { return l.weight <= aheadLeast/2 || l.r.weight.Load() <= aheadBytes/2 }

// settle marks an entry as settled that is not in flight.
func (l *lane) settle(e *entry) {
	l.lift(e)
	l.moved = l.track.settle(e.number) || l.moved
}
