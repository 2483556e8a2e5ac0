package perkey

import (
	"fmt"
	"hash/maphash"
	"time"

	"github.com/IBM/sarama"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/delayqueue"
	"github.com/redeliver/redeliver/driver"
	"github.com/redeliver/redeliver/internal/engine"
	"github.com/redeliver/redeliver/internal/limits"
)

// fullPause is the time after which a lane asks again while the levels are full.
const fullPause = 50 * time.Millisecond

// Lane is the lane of a gate.
type Lane struct {
	Sub        *engine.Subscription
	Codec      driver.Codec[*sarama.ConsumerMessage]
	Topic      string
	Partition  int32
	OnLevel    bool // messages wait on the topic; it is not the origin
	MaxWaiting int
	Post       func(func()) bool // see driver.Lane
}

// message is a message of a lane.
type message = driver.Message[*sarama.ConsumerMessage]

// Gate decides whether the key of a message lets it begin. The lane asks about a record of the origin before it begins,
// in log order, and about a waiting one when it is due. Only the lane's goroutine uses it.
type Gate struct {
	lane    Lane
	queues  *Queues
	mailbox mailbox
	// waiting are the held copies that wait for the first record of their queue.
	waiting        map[*Copy]struct{}
	full           bool // the levels hold MaxWaiting messages: nothing of the origin begins
	recheckPending bool // a timer will check again
}

// NewGate makes the gate of a lane. The queues are loaded.
func NewGate(lane Lane, queues *Queues) *Gate {
	k := &Gate{lane: lane, queues: queues, waiting: make(map[*Copy]struct{})}
	k.mailbox.notify = func() { lane.Post(k.collect) }
	return k
}

// collect forgets the waiting copies whose queue has changed. The lane then asks about them.
func (k *Gate) collect() {
	for _, c := range k.queues.collect(&k.mailbox) {
		delete(k.waiting, c)
	}
}

// PlaceFirst returns the copy of a record of the origin, or nil if it has no key.
func (k *Gate) PlaceFirst(m *message) *Copy {
	rec := m.Record
	if rec.Key == nil {
		return nil
	}
	return &Copy{keyOffset: keyOffset{maphash.Bytes(seed, rec.Key), rec.Offset}, written: originTime(rec.Timestamp), fromOrigin: true, mailbox: &k.mailbox}
}

// PlaceWaiting queues the copy of a record that waits, and returns it, or nil if it has no order. m still has the offset
// on its level.
func (k *Gate) PlaceWaiting(m *message, stay *delayqueue.Stay) *Copy {
	c := orderedCopy(m.Record.Key, stay, k.lane.Partition)
	if c != nil {
		c.counted, c.mailbox = m.Record.Offset < k.queues.loadedEnds[k.lane.Topic], &k.mailbox
		k.queues.addSeen(c, stay.State.Due)
	}
	return c
}

// Begin decides whether a message may begin. c is its copy; nil for none. roomy reports whether the lane can hold a
// waiting message for a short while. A message behind a failed one of its key is parked on a level.
func (k *Gate) Begin(m *message, c *Copy, roomy bool) engine.Admission {
	if k.isFull(m) {
		return engine.NothingYet
	}
	switch {
	case c == nil || c.unordered || c.keyAllows || c.mustPark:
		return engine.Begins
	case !c.parkUntil.IsZero():
		return k.park(m, c, c.parkUntil)
	case m.Step != driver.Handle:
		if k.queues.dropStale(c) {
			return engine.Outdated
		}
		return engine.Begins
	}
	v, until := k.queues.ask(c, time.Now(), roomy && k.lane.OnLevel)
	switch v {
	case verdictWait:
		k.waiting[c] = struct{}{}
		return engine.NotYet
	case verdictPark:
		return k.park(m, c, limits.CeilMilli(until.UTC()))
	case verdictHold:
		m.Until = until
		return engine.Later
	case verdictDrop:
		return engine.Outdated
	case verdictUnordered:
		c.unordered = true
	case verdictRun:
		c.keyAllows = true
	}
	return engine.Begins
}

// park makes a message hop to a level until then, without an attempt.
func (k *Gate) park(m *message, c *Copy, until time.Time) engine.Admission {
	st := &redeliver.State{}
	k.lane.Codec.State(m, st)
	st.Due = until
	c.mustPark = true
	m.Step, m.State = driver.Hop, st
	return engine.Begins
}

// Ended updates the queues after the end of a message.
func (k *Gate) Ended(m *message, c *Copy, how engine.Ending) {
	if c == nil || c.unordered {
		return
	}
	switch how.Kind {
	case engine.Acked:
		k.queues.settle(c)
	case engine.DeadLettered:
		if m.Step == driver.Hop {
			k.queues.deadLetter(c)
			return
		}
		k.queues.settle(c)
	case engine.Moved:
		if m.Step == driver.Handle || c.mustPark {
			k.queues.park(c, how.State.Attempts, how.State.Due)
			return
		}
		k.queues.hopped(c)
	case engine.Stays, engine.Abandoned, engine.NotBegun: // see Returned
	}
}

// Returned handles a message that leaves the lane unsettled. It is still where it was read, and blocks those behind it.
func (k *Gate) Returned(c *Copy) {
	delete(k.waiting, c)
	if c != nil && !c.unordered {
		k.queues.giveUp(c)
	}
}

// ParkWaiting parks the messages that wait for a slow handler on a level for a short while, if there are at least
// minWaiting: they fill the lane, and other keys must not wait.
func (k *Gate) ParkWaiting(minWaiting int) {
	if len(k.waiting) < minWaiting {
		return
	}
	until := limits.CeilMilli(time.Now().UTC().Add(levelRecheck))
	for c := range k.waiting {
		if k.queues.stopWaiting(c) {
			delete(k.waiting, c)
			c.parkUntil = until
		}
	}
	k.lane.Post(func() {}) // make them ask again
}

// isFull reports whether a message of the origin must wait because the levels hold MaxWaiting messages. A message with
// a lower offset than one on a level may begin: that one may wait for it.
func (k *Gate) isFull(m *message) bool {
	l := &k.lane
	if l.OnLevel {
		return false
	}
	parked, maxParked := k.queues.onLevels.Load(), int64(l.MaxWaiting)
	full := parked >= maxParked && m.Record.Offset > k.queues.highestOffset()
	if full != k.full {
		k.full = full
		change := redeliver.ChangePartitionResumed
		if full {
			change = redeliver.ChangePartitionPaused
		}
		l.Sub.EmitChange(change, fmt.Sprintf("%s/%d: %d messages wait behind those that failed before them, or have failed; MaxWaiting is %d", l.Topic, l.Partition, parked, maxParked), nil)
	}
	if full && !k.recheckPending { // other partitions' lanes make room, too
		k.recheckPending = true
		time.AfterFunc(fullPause, func() { l.Post(func() { k.recheckPending = false }) })
	}
	return full
}
