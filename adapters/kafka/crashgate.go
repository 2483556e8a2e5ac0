package kafka

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/IBM/sarama"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka/internal/commitmeta"
	"github.com/redeliver/redeliver/driver"
	"github.com/redeliver/redeliver/internal/engine"
)

// A record that kills its process comes back, together with all other records that the process had begun and not
// committed. Kafka counts no deliveries, so the owner of a partition writes its state into its commits, see package
// commitmeta. An owner that ends in order says so. Otherwise it died, and nobody knows which record killed it. Then the
// next owner is careful for a stretch above the mark: it commits a window, and begins only records in it. If it dies,
// too, only the records of that window are suspects. Suspects run one at a time, while nothing else of the client runs,
// see engine.Turn. Each is committed as alone before it runs. Only a suspect that was alone when its process died is
// charged with a crash.

const (
	// metaTimeout bounds how long a lane waits for the commit of its metadata. Then it continues without, and tries again
	// after metaRetryPause.
	metaTimeout    = 10 * time.Second
	metaRetryPause = time.Minute
	// maxTurn bounds how long one suspect after another may run in one turn.
	maxTurn = time.Second
	// turnPoll is how often an unused turn is checked, because a gate may have closed meanwhile.
	turnPoll = 50 * time.Millisecond
	// Bounds of a window: it limits how many records become suspects at once, and how many commits a stretch takes.
	minWindow = 32
	maxWindow = 256
	// A stretch is stretchFactor times MaxInFlight, within minStretch and maxStretch. It estimates how many records
	// above the mark the last owner may have begun: those in flight, and those settled within a commit interval. If
	// there were more, their crash is found out later.
	stretchFactor = 500
	minStretch    = 5_000
	maxStretch    = 50_000
)

// crashGate counts crashes. source.Begin asks it last. The source's mu guards it. The functions that it posts run in
// the lane's goroutine.
type crashGate struct {
	source       *source
	meta         commitmeta.Meta // as committed
	counted      bool            // if false, no state is committed and no message waits
	unrestricted bool            // the committed state allows all messages but suspects
	cleared      bool            // the last owner died, and everything that it may have begun is settled
	windowSize   int             // records in a window
	ended        bool            // the source has ended in order

	version    uint64 // of the metadata to commit
	writing    bool   // pending is not committed yet
	pending    commitmeta.Meta
	unwritable bool // metadata cannot be committed: all messages may begin

	running  int                                        // handlers that the gate has let begin
	waiting  []*driver.Message[*sarama.ConsumerMessage] // messages that wait for a window
	suspects []*driver.Message[*sarama.ConsumerMessage] // messages that wait to run alone

	ctx       context.Context // when it ends, no suspect gets a turn any more
	cancel    context.CancelFunc
	turn      turnState
	turnStart time.Time
	alone     *driver.Message[*sarama.ConsumerMessage] // the suspect whose handler runs
}

type turnState uint8

const (
	noTurn turnState = iota
	turnAwaited
	turnHeld
)

// newCrashGate makes the gate of a source that begins at from, with the metadata found there.
func newCrashGate(s *source, from int64, found commitmeta.Meta) *crashGate {
	cfg := s.r.client.cfg
	stretch := min(max(int64(stretchFactor)*int64(cfg.MaxInFlight), minStretch), maxStretch)
	lanes, slots := max(1, len(s.session.Claims()[s.topic])), cfg.MaxInFlight
	if s.level != nil {
		slots = cfg.MaxRetriesInFlight
	}
	c := &crashGate{
		source: s, meta: found.Inherit(s.r.client.owner, from, s.claim.HighWaterMarkOffset(), stretch),
		windowSize: min(max(slots/lanes, minWindow), maxWindow), counted: s.r.sub.Turn != nil,
	}
	c.meta.Topic = s.r.topicIDs[s.topic]
	c.cleared = found.Known() && found.State != commitmeta.Left && c.meta.End == 0 && len(c.meta.Suspects) == 0
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c
}

// text returns the metadata for a commit of mark. settled are the settled records above it. whole is false if not all
// of them fit.
func (c *crashGate) text(mark int64, settled commitmeta.Runs) (text string, whole bool) {
	n := c.meta
	switch {
	case c.unwritable:
		return "", len(settled) == 0
	case c.ended:
		n.State, n.Window, n.Alone = commitmeta.Left, nil, -1
	case !c.counted:
		n = commitmeta.Ended(n.Owner, n.Topic)
	case c.writing:
		n = c.pending
	case c.unrestricted:
		n.State = commitmeta.Running
	}
	return n.Text(mark, settled)
}

// isIdle reports whether there are no suspects and no message waits for a commit.
func (c *crashGate) isIdle() bool {
	return !c.counted || !c.writing && c.turn == noTurn && (c.unwritable || c.unrestricted && len(c.meta.Suspects) == 0)
}

// begin decides whether a message may begin.
func (c *crashGate) begin(m *driver.Message[*sarama.ConsumerMessage]) engine.Admission {
	hadTurn := m.Alone
	m.Alone = false
	if m.Step != driver.Handle || !c.counted {
		return engine.Begins // no handler sees it
	}
	if c.unrestricted && len(c.meta.Suspects) == 0 {
		return c.allow()
	}
	r := c.source.track.record(m.Seq)
	offset := r.offset
	crashes, suspected := c.meta.Suspects[offset]
	switch {
	case suspected && crashes >= c.source.r.sub.Policy.MaxCrashes:
		m.Step, m.Err = driver.Bury, &redeliver.CrashedError{Crashes: crashes}
		return engine.Begins
	case c.unwritable && hadTurn:
		c.post(func() {}) // it must ask again, because now it needs a slot
		return engine.NotYet
	case c.unwritable:
		return c.allow()
	case suspected && c.turn == turnHeld && c.alone == nil && !c.writing && c.meta.Alone == offset:
		c.suspects = without(c.suspects, m)
		m.Alone, c.alone = true, m
		return c.allow()
	case suspected:
		m.Alone = true // it needs no slot
		if !slices.Contains(c.suspects, m) {
			c.suspects = append(c.suspects, m)
		}
		c.tendSuspects()
		return engine.NotYet
	case c.unrestricted || c.meta.Window[offset]:
		return c.allow()
	default:
		if !r.inWindow {
			r.inWindow = true
			c.waiting = append(c.waiting, m)
			if len(c.waiting) == 1 {
				c.post(c.requestWindow) // after other messages have asked
			}
		}
		return engine.NotYet
	}
}

func (c *crashGate) allow() engine.Admission {
	c.running++
	return engine.Begins
}

// messageEnded handles the end of a message that the gate has let begin. With Stays, the message will ask again.
func (c *crashGate) messageEnded(m *driver.Message[*sarama.ConsumerMessage], how engine.How) {
	if !c.counted {
		return
	}
	if m.Step == driver.Handle {
		c.running--
		c.handlerEnded(m)
	}
	if how != engine.Stays && how != engine.NotBegun {
		c.forget(m, how != engine.Abandoned)
	}
	if len(c.waiting) > 0 {
		c.requestWindow()
	}
}

// handlerEnded records that the handler of a message has returned. Its write, which may take long, must not hold up
// suspects and is not charged.
func (c *crashGate) handlerEnded(m *driver.Message[*sarama.ConsumerMessage]) {
	if c.alone == m {
		c.alone = nil
		c.tendSuspects()
	}
}

// forget removes a message that has left the lane.
func (c *crashGate) forget(m *driver.Message[*sarama.ConsumerMessage], settled bool) {
	if !c.counted || c.unrestricted && len(c.meta.Suspects) == 0 && !c.writing {
		return
	}
	r := c.source.track.record(m.Seq)
	offset := r.offset
	c.suspects = without(c.suspects, m)
	if r.inWindow {
		r.inWindow, c.waiting = false, without(c.waiting, m)
	}
	for _, n := range []commitmeta.Meta{c.meta, c.pending} {
		delete(n.Window, offset)
		if crashes, suspected := n.Suspects[offset]; suspected && settled && crashes < c.source.r.sub.Policy.MaxCrashes {
			delete(n.Suspects, offset) // it did not kill its process
		}
	}
}

func without[T comparable](all []T, one T) []T {
	return slices.DeleteFunc(all, func(other T) bool { return other == one })
}

// requestWindow commits that waiting messages may begin or, if one is above the stretch, that all may.
func (c *crashGate) requestWindow() {
	if len(c.waiting) == 0 || c.ended || c.writing || c.unwritable || c.turn != noTurn {
		return // committed and tendSuspects call it again
	}
	offset := func(m *driver.Message[*sarama.ConsumerMessage]) int64 { return c.source.track.record(m.Seq).offset }
	next := c.copyMeta()
	if slices.ContainsFunc(c.waiting, func(m *driver.Message[*sarama.ConsumerMessage]) bool { return offset(m) >= c.meta.End }) {
		next.State, next.End, next.Window = commitmeta.Running, 0, nil
		c.forgetWindow()
		c.write(next)
		return
	}
	next.State = commitmeta.Careful
	switch {
	case c.running == 0: // none of the old window runs
		next.Window = make(map[int64]bool)
	case c.running > c.windowSize*3/4 || len(next.Window) >= c.windowSize:
		return // wait, because each window is a commit
	}
	for _, m := range c.waiting {
		if len(next.Window) >= c.windowSize {
			break
		}
		next.Window[offset(m)] = true
	}
	if !next.WindowFits(c.source.commitMarkLocked()) { // the offsets are too far apart
		if c.running > 0 {
			return
		}
		next.Window = map[int64]bool{offset(c.waiting[0]): true}
	}
	c.forgetWindow() // messages without room ask again
	c.write(next)
}

func (c *crashGate) forgetWindow() {
	for _, m := range c.waiting {
		c.source.track.record(m.Seq).inWindow = false
	}
	c.waiting = nil
}

// copyMeta returns a copy of the committed metadata.
func (c *crashGate) copyMeta() commitmeta.Meta {
	next := c.meta
	next.Window, next.Suspects = maps.Clone(c.meta.Window), maps.Clone(c.meta.Suspects)
	if next.Window == nil {
		next.Window = make(map[int64]bool)
	}
	if c.unrestricted {
		next.State = commitmeta.Running
	}
	return next
}

// write commits next, which is in effect when it is committed.
func (c *crashGate) write(next commitmeta.Meta) {
	c.version++
	c.writing, c.pending = true, next
	c.source.dirty, c.source.urgent = true, true
	c.source.commits.commitNow()
	number := c.version
	time.AfterFunc(metaTimeout, func() {
		c.post(func() {
			if c.writing && c.version == number {
				c.giveUp(fmt.Errorf("kafka: the broker did not accept a commit within %s", metaTimeout))
			}
		})
	})
}

// committed applies the pending metadata after its commit.
func (c *crashGate) committed(number uint64) {
	if !c.writing || c.version != number {
		return
	}
	c.meta, c.unrestricted, c.unwritable = c.pending, c.pending.State == commitmeta.Running, false
	c.writing, c.pending = false, commitmeta.Meta{}
	mark := c.source.commitMarkLocked()
	maps.DeleteFunc(c.meta.Suspects, func(o int64, _ int) bool { return o < mark })
	if c.isIdle() && c.source.commits.saramaCommits { // sarama's next commit is of marked offsets only
		c.source.dirty = true
	}
	if c.turn == turnHeld && c.meta.Alone >= 0 {
		c.tendLater()
	}
	c.tendSuspects()
	c.requestWindow()
}

// tendLater checks later whether a suspect has used its turn.
func (c *crashGate) tendLater() { time.AfterFunc(turnPoll, func() { c.post(c.tendSuspects) }) }

// giveUp lets all messages begin although their metadata cannot be committed.
func (c *crashGate) giveUp(err error) {
	c.source.r.reportUncounted(c.source.topic, c.source.partition, err)
	c.writing, c.pending, c.unwritable = false, commitmeta.Meta{}, true
	c.meta.Alone, c.meta.Window = -1, make(map[int64]bool)
	c.forgetWindow()
	c.source.dirty = true // commit settled records without metadata
	time.AfterFunc(metaRetryPause, func() {
		c.post(func() {
			if c.unwritable && !c.ended {
				next := c.copyMeta()
				next.State, next.End, next.Window, next.Alone = commitmeta.Running, 0, nil, -1
				c.write(next)
			}
		})
	})
	c.tendSuspects()
}

// tendSuspects lets the next suspect run alone, or gives the turn back.
func (c *crashGate) tendSuspects() {
	if c.ended || c.writing {
		return
	}
	waits := len(c.suspects) > 0 && !c.unwritable
	switch c.turn {
	case turnAwaited:
	case noTurn:
		if waits {
			c.takeTurn()
		}
	case turnHeld:
		switch gate := &c.source.r.sub.Gate; {
		case c.alone != nil:
		case waits && c.meta.Alone >= 0 && c.meta.Alone == c.source.track.record(c.suspects[0].Seq).offset && !gate.Closed():
			c.tendLater() // it is about to begin
		case waits && !gate.Closed() && time.Since(c.turnStart) < maxTurn:
			next := c.copyMeta()
			next.Alone = c.source.track.record(c.suspects[0].Seq).offset
			c.write(next)
		case c.meta.Alone >= 0 && !c.unwritable:
			next := c.copyMeta()
			next.Alone = -1
			c.write(next)
		default:
			c.turn = noTurn
			c.source.r.sub.Turn.Give()
			c.requestWindow()
			if waits && !c.writing {
				c.takeTurn()
			}
		}
	}
}

// takeTurn asks for the client's turn.
func (c *crashGate) takeTurn() {
	c.turn = turnAwaited
	turn, gate := c.source.r.sub.Turn, &c.source.r.sub.Gate
	go func() {
		if !turn.Take(c.ctx, gate) {
			return
		}
		posted := c.post(func() {
			if c.ended {
				turn.Give()
				return
			}
			c.turn, c.turnStart = turnHeld, time.Now()
			c.tendSuspects()
		})
		if !posted {
			turn.Give()
		}
	}()
}

// post makes the lane run call with the source's lock. It reports whether it will.
func (c *crashGate) post(call func()) bool {
	return c.source.lane.Post(func() {
		c.source.mu.Lock()
		defer c.source.mu.Unlock()
		call()
	})
}

// finish makes the last commit say that the source has ended in order, so that the next owner does not take this for a
// crash. Suspects stay suspects, uncharged.
func (c *crashGate) finish() {
	c.ended, c.writing = true, false
	c.cancel()
	if c.source.hasCommitted || c.source.commitMarkLocked() != c.source.from || c.cleared && !c.unwritable { // otherwise the last owner's metadata stays
		c.version++
		c.source.dirty = true
	}
}

// releaseTurn gives the turn back. It is called after the last commit, because another suspect of the client may kill
// the process then.
func (c *crashGate) releaseTurn() {
	if c.turn == turnHeld {
		c.turn = noTurn
		c.source.r.sub.Turn.Give()
	}
}
