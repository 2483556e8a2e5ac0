package kafka

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/IBM/sarama"

	"github.com/redeliver/redeliver/internal/driver"
)

// The order PerKey is one rule: a record may run only if no record of its key in
// its origin partition, with a lower origin offset, is unsettled. It does not
// matter where these are, on the origin or on a level, or in which order they come
// from there, so neither does what a crash has written twice.
//
// lines knows the unsettled records of one origin partition by key. Each has a
// line, sorted by origin offset: its records wait on a level (parked) or are in the
// hands of the lane that has read them. The lanes of the partition, its origin's and
// one for each topic on which messages wait, share it, and each decides about what
// it has read: it asks, and is told when it is to ask again. It is safe for
// concurrent use.
type lines struct {
	mu     sync.Mutex
	keys   map[uint64]*line // by a hash: two keys in one line wait for each other, which does no harm
	spare  []*line
	behind *atomic.Int64 // records on levels, of the whole subscription

	// Origin offsets from from, below next, were taken up in this session: one of
	// them that is not in its line was settled by us. settled are others that were.
	from, next int64
	settled    map[place]int64 // when each was written to the origin
	// high is the highest origin offset that was seen on a level.
	high int64
	// strays are records that share place and key with another one: the origin was
	// deleted and made anew. They have no order, and none is taken for a duplicate.
	strays map[place]struct{}
	// unread are the origin's records below high, which a session before this one has
	// not settled, in order. What was behind them may wait on a level and come first.
	unread []place

	ends  map[string]int64 // of the topics on which messages wait, as they were when the session began
	ready chan struct{}    // closed when all that waited then is known
}

// place is a record's key and its offset in the origin.
type place struct {
	key    uint64
	offset int64
}

// line is the unsettled records of a key.
type line struct {
	items   []item      // by offset; those before head are gone
	twins   []*lineCopy // in hand, while another copy of the same record is
	head    int
	waiting int // how many in hand wait for the first
}

// item is one record of a line, of which there may be several copies.
type item struct {
	offset   int64
	at       int64     // when it was written to the origin, in ms: with key and offset it says who it is
	due      int64     // while it is parked: when it comes back, in ms
	hand     *lineCopy // the copy that a lane has in hand; nil while it is parked
	attempts int32     // of the copy that has gone furthest: what has fewer is out of date
	copies   int32     // on levels, as they were when the session began
	done     bool      // only its other copies are waited for, to be dropped
	buried   bool      // a copy beside the one in hand was dead-lettered: what that one is written as is dropped
	unread   bool      // no copy is on a level: the origin's lane comes to it
	level    bool      // the copy that counts is on a level, or was read there
}

// lineCopy is one copy of a record, as the lane has it that has read it.
type lineCopy struct {
	place
	at       int64
	attempts int32
	first    bool     // it was read from the origin
	counted  bool     // it is one of its item's copies
	waits    bool     // to be told; guarded by the lines' lock
	box      *mailbox // of the lane
	m        *driver.Message[*sarama.ConsumerMessage]
}

// mailbox is where a lane finds the copies that it is to ask for again.
type mailbox struct {
	copies []*lineCopy // guarded by the lines' lock
	ring   func()      // is called when there are copies; it must not block
}

// verdict is the answer to a lane that asks for a copy.
type verdict uint8

const (
	runs    verdict = iota // now
	waits                  // for the first of its line, which is in hand; the mailbox says when to ask again
	parks                  // until the first may be through: it is to be written to a level
	stays                  // the same, where it is: parks for a short while, where the lane has room
	dropped                // it is a copy of what was settled, or has gone further
	free                   // it has no order
)

// How long what waits for a record that is due, and that no lane has in hand yet,
// waits before it looks again.
const (
	glimpse  = 50 * time.Millisecond // where it is
	recovery = time.Second           // on a level
)

func newLines(behind *atomic.Int64) *lines {
	return &lines{keys: make(map[uint64]*line), behind: behind, ends: make(map[string]int64), ready: make(chan struct{}), high: -1}
}

// begin says from where the origin is read in this session.
func (ls *lines) begin(from int64) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.from, ls.next = from, from
}

// highest is the highest origin offset that was seen on a level.
func (ls *lines) highest() int64 {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return ls.high
}

// ask says what is to be done with a copy whose time has come, or that the mailbox
// has named. roomy reports whether the lane can keep it for a short while. until is
// for parks and stays.
func (ls *lines) ask(c *lineCopy, now time.Time, roomy bool) (v verdict, until time.Time) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if c.waits {
		return waits, until // nothing has changed
	}
	if c.first && c.offset >= ls.next {
		ls.next = c.offset + 1
		ls.reached(c.offset)
	}
	if _, known := ls.strays[c.place]; known {
		return free, until
	}
	ln, i, found := ls.find(c)
	if !found {
		if ls.wasSettled(c) {
			return dropped, until
		}
		ln, i = ls.insert(ln, i, c, item{offset: c.offset, at: c.at, attempts: c.attempts, hand: c})
		if !c.first {
			ls.onLevel(&ln.items[i], true)
		}
	} else if v := ls.take(ln, i, c); v != runs {
		return v, until
	}
	it, first := &ln.items[i], ln.first()
	switch {
	case first == it:
		return runs, until
	case first.hand != nil:
		c.waits = true
		ln.waiting++
		return waits, until
	}
	until = now.Add(recovery)
	if due := time.UnixMilli(first.due); due.After(now) {
		until = due
	}
	if roomy && until.Sub(now) <= recovery {
		if first.due <= now.UnixMilli() {
			until = now.Add(glimpse)
		}
		it.hand, it.due = nil, until.UnixMilli()
		return stays, until
	}
	return parks, until
}

// take puts a copy into the hand of its item, if it is the copy that counts.
func (ls *lines) take(ln *line, i int, c *lineCopy) verdict {
	it := &ln.items[i]
	switch {
	case it.hand == c:
		return runs // it was told to ask again
	case it.at != c.at:
		ls.astray(ln, i, c)
		return free
	case it.done, c.first && !it.unread, c.attempts < it.attempts:
		// What is on the origin and on a level has gone further there.
		ls.drop(ln, i, c)
		return dropped
	case it.hand != nil:
		// It is settled in a moment, and then this copy is out of date or, if it
		// was that other's next hop, the one that counts.
		ln.twins = append(ln.twins, c)
		c.waits = true
		return waits
	}
	it.hand, it.attempts, it.unread = c, c.attempts, false
	ls.onLevel(it, !c.first)
	return runs
}

// wasSettled reports whether a copy that is not in its line was settled in this
// session. What is not sure is not dropped.
func (ls *lines) wasSettled(c *lineCopy) bool {
	if at, ok := ls.settled[c.place]; ok && at == c.at {
		return true
	}
	return !c.first && !c.counted && c.offset >= ls.from && c.offset < ls.next
}
