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
	End        func() int64      // of the log, as far as it is known
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
	g := &Gate{lane: lane, queues: queues, waiting: make(map[*Copy]struct{})}
	g.mailbox.notify = func() { lane.Post(g.collect) }
	if !lane.OnLevel {
		queues.mu.Lock()
		queues.originEnd = lane.End
		queues.mu.Unlock()
	}
	return g
}

// collect forgets the waiting copies whose queue has changed. The lane then asks about them.
func (g *Gate) collect() {
	for _, c := range g.queues.collect(&g.mailbox) {
		delete(g.waiting, c)
	}
}

// Skip records that the lane has read a record of the origin that an earlier session settled.
func (g *Gate) Skip(rec *sarama.ConsumerMessage) {
	g.queues.skip(rec.Offset, originTime(rec.Timestamp))
}

// PlaceFirst queues the copy of a record of the origin, and returns it, or nil if it has no key. If the message has a Key, the
// lane lets the messages of the key begin in their order, each when those before it have ended or wait for a batch.
func (g *Gate) PlaceFirst(m *message) *Copy {
	rec := m.Record
	if rec.Key == nil {
		g.Skip(rec)
		return nil
	}
	c := &Copy{
		keyOffset: keyOffset{maphash.Bytes(seed, rec.Key), rec.Offset}, written: originTime(rec.Timestamp), fromOrigin: true, mailbox: &g.mailbox,
		chained: m.Key != 0,
	}
	g.queues.place(c)
	return c
}

// PlaceWaiting queues the copy of a record that waits, and returns it, or nil if it has no order. m still has the
// offset on its level.
func (g *Gate) PlaceWaiting(m *message, stay *delayqueue.Stay) *Copy {
	c := orderedCopy(m.Record.Key, stay, g.lane.Partition)
	if c != nil {
		c.counted, c.mailbox = m.Record.Offset < g.queues.loadedEnds[g.lane.Topic], &g.mailbox
		g.queues.addSeen(c, stay.State.Due)
	}
	return c
}

// Begin decides whether a message may begin. c is its copy; nil for none. roomy reports whether the lane can hold a
// waiting message for a short while. A message behind a failed one of its key is parked on a level.
func (g *Gate) Begin(m *message, c *Copy, roomy bool) engine.Admission {
	if g.isFull(m) {
		return engine.NothingYet
	}
	switch {
	case c == nil || c.unordered || c.keyAllows || c.mustPark:
		return engine.Begins
	case !c.parkUntil.IsZero():
		return g.park(m, c, c.parkUntil)
	case m.Step != driver.StepHandle:
		if g.queues.dropStale(c) {
			return engine.Outdated
		}
		return engine.Begins
	}
	v, until := g.queues.ask(c, time.Now(), roomy && g.lane.OnLevel)
	switch v {
	case verdictWait:
		g.waiting[c] = struct{}{}
		return engine.NotYet
	case verdictPark:
		return g.park(m, c, limits.CeilMilli(until.UTC()))
	case verdictHold:
		m.Until = until
		return engine.Later
	case verdictDrop:
		return engine.Outdated
	case verdictUnordered:
		c.unordered = true
	case verdictRun:
		c.keyAllows = true
	case verdictJoin: // it asks again if it does not run with this batch
	}
	return engine.Begins
}

// park makes a message hop to a level until then, without an attempt.
func (g *Gate) park(m *message, c *Copy, until time.Time) engine.Admission {
	st := &redeliver.State{}
	g.lane.Codec.State(m, st)
	st.Due = until
	c.mustPark = true
	m.Step, m.State = driver.StepHop, st
	return engine.Begins
}

// Ended updates the queues after the end of a message.
func (g *Gate) Ended(m *message, c *Copy, how engine.Ending) {
	if c == nil || c.unordered {
		return
	}
	switch how.Kind {
	case engine.Acked:
		g.queues.settle(c)
	case engine.DeadLettered:
		delete(g.waiting, c)
		g.queues.deadLetter(c)
	case engine.Moved:
		if m.Step == driver.StepHandle || c.mustPark {
			g.queues.park(c, how.State.Attempts, how.State.Due)
			return
		}
		g.queues.hopped(c)
	case engine.Stays, engine.Unsettled, engine.Abandoned, engine.NotBegun: // see Returned
	}
}

// Returned handles a message that leaves the lane unsettled. It is still where it was read, and blocks those behind it.
func (g *Gate) Returned(c *Copy) {
	delete(g.waiting, c)
	if c != nil && !c.unordered {
		g.queues.giveUp(c)
	}
}

// ParkWaiting parks the messages that wait for a slow handler on a level for a short while, if there are at least
// minWaiting. Otherwise they would fill the lane, and other keys would wait.
func (g *Gate) ParkWaiting(minWaiting int) {
	if len(g.waiting) < minWaiting {
		return
	}
	parkUntil := limits.CeilMilli(time.Now().UTC().Add(levelRecheck))
	for c := range g.waiting {
		if g.queues.stopWaiting(c) {
			delete(g.waiting, c)
			c.parkUntil = parkUntil
		}
	}
	g.lane.Post(func() {}) // make them ask again
}

// isFull reports whether a message of the origin must wait because the levels hold MaxWaiting messages. A message with
// a lower offset than one on a level may begin: that one may wait for it.
func (g *Gate) isFull(m *message) bool {
	l := &g.lane
	if l.OnLevel {
		return false
	}
	waiting, maxWaiting := g.queues.onLevels.Load(), int64(l.MaxWaiting)
	full := waiting >= maxWaiting && m.Record.Offset > g.queues.highestOffset()
	if full != g.full {
		g.full = full
		change := redeliver.ChangePartitionResumed
		if full {
			change = redeliver.ChangePartitionPaused
		}
		l.Sub.EmitChange(change, fmt.Sprintf("%s/%d: %d messages wait behind those that failed before them, or have failed; MaxWaiting is %d", l.Topic, l.Partition, waiting, maxWaiting), nil)
	}
	if full && !g.recheckPending { // other partitions' lanes make room, too
		g.recheckPending = true
		time.AfterFunc(fullPause, func() { l.Post(func() { g.recheckPending = false }) })
	}
	return full
}
