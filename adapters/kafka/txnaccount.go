package kafka

import (
	"context"
	"encoding/base64"
	"maps"
	"sync"
	"sync/atomic"

	"github.com/IBM/sarama"
)

// settledMost is how far above its mark a lane reads where its group's forwards are in
// transactions: what is settled there is listed beside the offset, one bit for each
// offset, and a broker takes 4096 bytes.
const settledMost = 8192

// account is how far a lane is, for who commits that: [txn]. It knows what the lane's
// tracker knows, and may be asked by another goroutine. Numbers are the tracker's.
type account struct {
	sess      sarama.ConsumerGroupSession
	lane      context.Context // ends with it
	topic     string
	partition int32
	gone      atomic.Bool  // the group has thrown its session out: nothing of it will ever be committed
	left      atomic.Int64 // when the lane ended, in Unix nanoseconds; 0 until then

	// The lane's own: what an owner before it has settled, above the mark, and what was
	// read that is too far above the mark to be taken up.
	skip map[int64]bool
	far  []*sarama.ConsumerMessage

	mu      sync.Mutex
	track   tracker
	note    note
	settled map[int64]bool // what skip had when the lane began
	version int            // of all of the above
	stands  int            // the version that was committed last
}

// position is what a commit says of a partition.
type position struct {
	offset  int64
	text    string
	version int
}

// begin notes where the lane begins, what was settled above that, and what its commits
// say. known tells whether the group has an offset there already.
func (b *account) begin(from int64, settled map[int64]bool, says note, known bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.skip, b.settled = maps.Clone(settled), maps.Clone(settled)
	b.note, b.track.mark = says.clone(), from
	if !known {
		b.version++ // what is read from must stand, whatever comes
	}
}

// say is what the lane's commits say of it from now on.
func (b *account) say(n note) {
	n = n.clone()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.note = n
	b.version++
}

// add registers a record that was read.
func (b *account) add(offset int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.track.add(offset)
}

// skipTo raises the mark over offsets that have no records, where all before is settled.
func (b *account) skipTo(offset int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.track.span() == 0 {
		b.track.mark = max(b.track.mark, offset)
	}
}

// settle notes that a record is settled, which may be known already.
func (b *account) settle(number uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if number >= b.track.first && !b.track.is(number) {
		b.track.settle(number)
		b.version++
	}
}

// would is what is to be committed together with what forwards these records.
func (b *account) would(forwarded []uint64) position {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := &b.track
	mask := uint64(len(t.ring) - 1)
	for _, n := range forwarded {
		t.ring[n&mask].settled = true
	}
	mark, first := t.mark, t.first
	for ; first < t.next && t.ring[first&mask].settled; first++ {
		mark = t.ring[first&mask].offset + 1
	}
	var above bits
	for n := first; n < t.next; n++ {
		if r := t.ring[n&mask]; r.settled {
			above.set(r.offset - mark)
		}
	}
	for o := range b.settled {
		if o >= mark {
			above.set(o - mark)
		}
	}
	for _, n := range forwarded { // until it is committed, it is not
		t.ring[n&mask].settled = false
	}
	return position{mark, b.note.textAbove(mark, above), b.version}
}

// committed notes that it stands, with what it forwards.
func (b *account) committed(s position, forwarded []uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, n := range forwarded {
		if n >= b.track.first {
			b.track.settle(n)
		}
	}
	for o := range b.settled {
		if o < s.offset {
			delete(b.settled, o)
		}
	}
	b.stands = s.version
}

// over tells whether the lane has ended: the session after it may have read how far it was.
func (b *account) over() bool { return b.lane.Err() != nil }

// now is the version of what is to be committed.
func (b *account) now() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.version
}

// has tells whether a version of it stands, or a later one.
func (b *account) has(version int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.stands >= version
}

// moved tells whether there is something to commit.
func (b *account) moved() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.version != b.stands
}

// bits are the settled records above a mark, counted from it.
type bits []byte

func (b *bits) set(i int64) {
	for int64(len(*b)) <= i/8 {
		*b = append(*b, 0)
	}
	(*b)[i/8] |= 1 << (i % 8)
}

func (b bits) text() string { return base64.RawURLEncoding.EncodeToString(b) }

// readBits reads what text has written; it is false for what it cannot have.
func readBits(text string, base int64) (map[int64]bool, bool) {
	b, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || len(b) > settledMost/8 || base > 1<<62 {
		return nil, false
	}
	all := make(map[int64]bool)
	for i := range int64(len(b)) * 8 {
		if b[i/8]&(1<<(i%8)) != 0 {
			all[base+i] = true
		}
	}
	return all, true
}

// beyond keeps a record for later that is too far above the mark, or settles one at once
// that was settled before. It is false for one that is to be taken up.
func (l *lane) beyond(m *sarama.ConsumerMessage) bool {
	b := l.acc
	if len(b.far) == 0 && l.track.span() == 0 {
		// Nothing is unsettled, and what lies between has no records: it was compacted
		// away, or its transaction aborted.
		l.track.mark = max(l.track.mark, m.Offset)
		b.skipTo(m.Offset)
	}
	switch {
	case len(b.far) > 0 || m.Offset-max(l.track.mark, l.from) >= settledMost:
		b.far = append(b.far, m)
		return true
	case b.skip[m.Offset]:
		delete(b.skip, m.Offset)
		l.nap.read = m.Offset
		n := l.track.add(m.Offset)
		b.add(m.Offset)
		l.settled(n)
		return true
	}
	return false
}

// nearer takes up what is not too far above the mark any more.
func (l *lane) nearer() (busy bool) {
	for l.acc != nil && len(l.acc.far) > 0 && (l.track.span() == 0 || l.acc.far[0].Offset-max(l.track.mark, l.from) < settledMost) {
		m := l.acc.far[0]
		rest := l.acc.far[1:]
		l.acc.far = nil
		l.take(m)
		l.acc.far = rest
		busy = true
	}
	return busy
}

// settled notes that a record is settled.
func (l *lane) settled(number uint64) {
	l.moved = l.track.settle(number) || l.moved
	if l.acc != nil {
		l.acc.settle(number)
	}
}

// says is what the lane's commits say of it from now on, where transactions make them.
func (l *lane) says(n note) {
	if l.acc != nil {
		l.acc.say(n)
	}
}
