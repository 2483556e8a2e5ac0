package amqp

// acks knows of each delivery of a channel whether it is settled, and what the
// broker must be told. Delivery tags count from 1 on every channel. It belongs to
// the channel's one goroutine.
type acks struct {
	ring  []slot // a power of two long
	first uint64 // the lowest tag that is not settled; all below are told
	next  uint64 // the tag that is delivered next
	late  []uint64
	n     int // settled deliveries that the broker was not told of
}

type slot struct {
	e    *entry
	what answered
}

type answered uint8

const (
	open    answered = iota // in hand
	settled                 // the broker is to be told
	told                    // acked or handed back
)

func newAcks() *acks { return &acks{first: 1, next: 1, ring: make([]slot, 256)} }

func (a *acks) at(tag uint64) *slot { return &a.ring[tag&uint64(len(a.ring)-1)] }

// add registers a delivery; its tag is the next.
func (a *acks) add(e *entry) {
	if a.next-a.first == uint64(len(a.ring)) {
		old := *a
		a.ring = make([]slot, 2*len(old.ring))
		for tag := a.first; tag < a.next; tag++ {
			*a.at(tag) = *old.at(tag)
		}
	}
	*a.at(a.next) = slot{e: e}
	a.next++
}

// settle notes that a delivery is settled.
func (a *acks) settle(tag uint64) {
	s := a.at(tag)
	if s.what != open {
		return
	}
	s.what = settled
	a.n++
	if tag != a.first {
		a.late = append(a.late, tag)
	}
}

// handedBack notes that the broker was given a delivery back.
func (a *acks) handedBack(tag uint64) { a.at(tag).what = told }

// flush tells the broker: the settled deliveries below the lowest open one with
// one ack, which never covers another; of the later ones each by itself, where
// there are enough of them or force says so.
func (a *acks) flush(enough int, force bool, ack func(tag uint64, multiple bool) error) error {
	last, n := uint64(0), 0 // of those to be acked
	for ; a.first < a.next; a.first++ {
		s := a.at(a.first)
		if s.what == open {
			break
		}
		if s.what == settled {
			last = a.first
			n++
		}
		*s = slot{}
	}
	if n > 0 {
		a.n -= n
		if err := ack(last, n > 1); err != nil {
			return err
		}
	}
	if len(a.late) == 0 || len(a.late) < enough && !force {
		return nil
	}
	for _, tag := range a.late {
		if tag < a.first || a.at(tag).what != settled {
			continue
		}
		if err := ack(tag, false); err != nil {
			return err
		}
		a.at(tag).what = told
		a.n--
	}
	a.late = a.late[:0]
	return nil
}

// pending is how many deliveries are settled and the broker does not know.
func (a *acks) pending() int { return a.n }

// inHand calls f for every delivery that is neither settled nor handed back.
func (a *acks) inHand(f func(*entry)) {
	for tag := a.first; tag < a.next; tag++ {
		if s := a.at(tag); s.what == open {
			f(s.e)
		}
	}
}
