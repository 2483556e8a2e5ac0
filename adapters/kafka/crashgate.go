package kafka

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/IBM/sarama"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/driver"
	"github.com/redeliver/redeliver/internal/engine"
)

// A record that kills its process comes back, and with it all that the process
// had begun and not committed. Kafka counts nothing of that, so the owner of a
// partition says in its commits how it stands, see note. One that ended in order
// says so. Where the last word is another one, the owner died, and which record was
// it nobody knows: from the mark on the next owner is careful for a stretch. It begins
// only what it has noted before, a window at a time. When it dies as well, what
// stood in its window is suspect, and nothing else. Suspects run one at a time,
// each noted as alone, while nothing else of the client runs, see engine.Turn. Only one
// that was alone when its process died is charged.

const (
	// noteWait is how long a lane waits for a note of its to stand. Then it goes on
	// without, and tries again after noteRest.
	metaTimeout    = 10 * time.Second
	metaRetryPause = time.Minute
	// linger bounds how long one suspect runs after another in one turn.
	maxTurn = time.Second
	// glance is how often a turn is looked at that nobody uses: a gate may have closed in the wrong moment.
	turnPoll = 50 * time.Millisecond
	// Bounds of a window: how many records may become suspects at once, and how
	// many commits a stretch takes.
	minWindow = 32
	maxWindow = 256
	// stretchFactor times MaxInFlight, but at least stretchLeast and at most
	// stretchMost, is how many records behind the mark the last owner may have
	// begun: what is in flight, and what was settled within a commit interval. Where
	// it were more, its death would be found out later.
	stretchFactor = 500
	minStretch    = 5_000
	maxStretch    = 50_000
)

// caution is the gate of a source that counts crashes. It is guarded by the source's mu, but what it posts runs in the lane's
// goroutine.
type crashGate struct {
	source       *source
	meta         commitMeta // as it stands in the group's offsets
	counted      bool       // else nothing is noted, and nothing is held back
	unrestricted bool       // what is not a suspect may begin: it was noted
	cleared      bool       // the last owner died, and nothing is left of what it may have begun
	windowSize   int        // records in a window
	ended        bool       // the source has ended in order

	version    uint64     // of the note that is to stand
	writing    bool       // it does not stand yet
	pending    commitMeta // what it says
	unwritable bool       // notes cannot be written: all may begin

	running  int                                        // handlers that the gate has let begin
	waiting  []*driver.Message[*sarama.ConsumerMessage] // have asked, and wait for a note
	suspects []*driver.Message[*sarama.ConsumerMessage] // have asked, and wait to run alone

	ctx       context.Context // its end: no suspect gets a turn any more
	cancel    context.CancelFunc
	turn      turnState
	turnStart time.Time                                // when the turn was taken
	alone     *driver.Message[*sarama.ConsumerMessage] // the suspect whose handler runs
}

type turnState uint8

const (
	noTurn turnState = iota
	turnAwaited
	turnHeld
)

// newCaution makes the gate of a source whose last owner left found beside its offset from.
func newCrashGate(s *source, from int64, found commitMeta) *crashGate {
	cfg := s.r.client.cfg
	stretch := min(max(int64(stretchFactor)*int64(cfg.MaxInFlight), minStretch), maxStretch)
	lanes, slots := max(1, len(s.session.Claims()[s.topic])), cfg.MaxInFlight
	if s.level != nil {
		slots = cfg.MaxRetriesInFlight
	}
	c := &crashGate{
		source: s, meta: found.inherit(s.r.client.owner, from, s.claim.HighWaterMarkOffset(), stretch),
		windowSize: min(max(slots/lanes, minWindow), maxWindow), counted: s.r.sub.Turn != nil,
	}
	c.meta.topic = s.r.topicIDs[s.topic]
	c.cleared = found.known() && found.state != stateLeft && c.meta.end == 0 && len(c.meta.suspects) == 0
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c
}

// text is what stands beside the offset mark, above which settled is. whole is false where not all of that found room.
func (c *crashGate) text(mark int64, settled []offsetRun) (text string, whole bool) {
	n := c.meta
	switch {
	case c.unwritable:
		return "", len(settled) == 0
	case c.ended:
		n.state, n.window, n.alone = stateLeft, nil, -1
	case !c.counted: // its death says nothing
		n = commitMeta{owner: n.owner, topic: n.topic, state: stateLeft, alone: -1}
	case c.writing:
		n = c.pending
	case c.unrestricted:
		n.state = stateRun
	}
	return n.textWithSettled(mark, settled)
}

// calm reports whether nothing is suspect, and nothing waits for a note.
func (c *crashGate) isIdle() bool {
	return !c.counted || !c.writing && c.turn == noTurn && (c.unwritable || c.unrestricted && len(c.meta.suspects) == 0)
}

// begin says whether a message may begin now.
func (c *crashGate) begin(m *driver.Message[*sarama.ConsumerMessage]) engine.Word {
	hadTurn := m.Alone
	m.Alone = false
	if m.Step != driver.Handle || !c.counted {
		return engine.Begins // no handler sees it
	}
	if c.unrestricted && len(c.meta.suspects) == 0 {
		return c.allow()
	}
	r := c.source.track.record(m.Seq)
	offset := r.offset
	crashes, suspected := c.meta.suspects[offset]
	switch {
	case suspected && crashes >= c.source.r.sub.Policy.MaxCrashes:
		m.Step, m.Err = driver.Bury, &redeliver.CrashedError{Times: crashes}
		return engine.Begins
	case c.unwritable && hadTurn:
		c.post(func() {}) // it asks again as one that needs a slot
		return engine.NotYet
	case c.unwritable:
		return c.allow()
	case suspected && c.turn == turnHeld && c.alone == nil && !c.writing && c.meta.alone == offset:
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
	case c.unrestricted || c.meta.window[offset]:
		return c.allow()
	default:
		if !r.inWindow {
			r.inWindow = true
			c.waiting = append(c.waiting, m)
			if len(c.waiting) == 1 {
				c.post(c.requestWindow) // when the others have asked that are ready
			}
		}
		return engine.NotYet
	}
}

func (c *crashGate) allow() engine.Word {
	c.running++
	return engine.Begins
}

// end is the end of a message that the gate has let begin, or, with Stays, of one that asks again.
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

// rest notes that no handler of a message runs any more: what is only to be written somewhere, however long that takes, holds
// up no suspect, and is not charged.
func (c *crashGate) handlerEnded(m *driver.Message[*sarama.ConsumerMessage]) {
	if c.alone == m {
		c.alone = nil
		c.tendSuspects()
	}
}

// gone forgets a message that has left the lane.
func (c *crashGate) forget(m *driver.Message[*sarama.ConsumerMessage], settled bool) {
	if !c.counted || c.unrestricted && len(c.meta.suspects) == 0 && !c.writing {
		return
	}
	r := c.source.track.record(m.Seq)
	offset := r.offset
	c.suspects = without(c.suspects, m)
	if r.inWindow {
		r.inWindow, c.waiting = false, without(c.waiting, m)
	}
	for _, n := range []commitMeta{c.meta, c.pending} {
		delete(n.window, offset)
		if crashes, suspected := n.suspects[offset]; suspected && settled && crashes < c.source.r.sub.Policy.MaxCrashes {
			delete(n.suspects, offset) // it has killed nobody
		}
	}
}

func without[T comparable](all []T, one T) []T {
	return slices.DeleteFunc(all, func(other T) bool { return other == one })
}

// declare notes that what has asked may begin, or, behind the stretch, that all may.
func (c *crashGate) requestWindow() {
	if len(c.waiting) == 0 || c.ended || c.writing || c.unwritable || c.turn != noTurn {
		return // told and tend come back to it
	}
	offset := func(m *driver.Message[*sarama.ConsumerMessage]) int64 { return c.source.track.record(m.Seq).offset }
	next := c.copyMeta()
	if slices.ContainsFunc(c.waiting, func(m *driver.Message[*sarama.ConsumerMessage]) bool { return offset(m) >= c.meta.end }) {
		next.state, next.end, next.window = stateRun, 0, nil
		c.forgetWindow()
		c.write(next)
		return
	}
	next.state = stateCareful
	switch {
	case c.running == 0: // of what was noted nothing runs
		next.window = make(map[int64]bool)
	case c.running > c.windowSize*3/4 || len(next.window) >= c.windowSize:
		return // a few more at a time: each note is a commit
	}
	for _, m := range c.waiting {
		if len(next.window) >= c.windowSize {
			break
		}
		next.window[offset(m)] = true
	}
	if !next.fits(c.source.commitMark()) { // offsets that are far from each other
		if c.running > 0 {
			return
		}
		next.window = map[int64]bool{offset(c.waiting[0]): true}
	}
	c.forgetWindow() // what has found no room asks again
	c.write(next)
}

func (c *crashGate) forgetWindow() {
	for _, m := range c.waiting {
		c.source.track.record(m.Seq).inWindow = false
	}
	c.waiting = nil
}

// said is the note as it stands, to be changed.
func (c *crashGate) copyMeta() commitMeta {
	next := c.meta
	next.window, next.suspects = maps.Clone(c.meta.window), maps.Clone(c.meta.suspects)
	if next.window == nil {
		next.window = make(map[int64]bool)
	}
	if c.unrestricted {
		next.state = stateRun
	}
	return next
}

// write has a note committed. What it says holds once it stands.
func (c *crashGate) write(next commitMeta) {
	c.version++
	c.writing, c.pending = true, next
	c.source.dirty, c.source.urgent = true, true
	c.source.commits.commitNow()
	number := c.version
	time.AfterFunc(metaTimeout, func() {
		c.post(func() {
			if c.writing && c.version == number {
				c.giveUp(fmt.Errorf("kafka: a commit was not taken within %s", metaTimeout))
			}
		})
	})
}

// told hears that a note stands.
func (c *crashGate) committed(number uint64) {
	if !c.writing || c.version != number {
		return
	}
	c.meta, c.unrestricted, c.unwritable = c.pending, c.pending.state == stateRun, false
	c.writing, c.pending = false, commitMeta{}
	mark := c.source.commitMark()
	maps.DeleteFunc(c.meta.suspects, func(o int64, _ int) bool { return o < mark })
	if c.isIdle() && c.source.commits.saramaCommits { // sarama's own next commit is of what is marked
		c.source.dirty = true
	}
	if c.turn == turnHeld && c.meta.alone >= 0 {
		c.tendLater()
	}
	c.tendSuspects()
	c.requestWindow()
}

// lookAgain has the turn looked at that a suspect has not used.
func (c *crashGate) tendLater() { time.AfterFunc(turnPoll, func() { c.post(c.tendSuspects) }) }

// giveUp has all begin although that cannot be noted.
func (c *crashGate) giveUp(err error) {
	c.source.r.reportUncounted(c.source.topic, c.source.partition, err)
	c.writing, c.pending, c.unwritable = false, commitMeta{}, true
	c.meta.alone, c.meta.window = -1, make(map[int64]bool)
	c.forgetWindow()
	c.source.dirty = true // what is settled is committed without
	time.AfterFunc(metaRetryPause, func() {
		c.post(func() {
			if c.unwritable && !c.ended {
				next := c.copyMeta()
				next.state, next.end, next.window, next.alone = stateRun, 0, nil, -1
				c.write(next)
			}
		})
	})
	c.tendSuspects()
}

// tend has the next suspect run alone, or ends the turn.
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
		case waits && c.meta.alone >= 0 && c.meta.alone == c.source.track.record(c.suspects[0].Seq).offset && !gate.Closed():
			c.tendLater() // it is about to begin
		case waits && !gate.Closed() && time.Since(c.turnStart) < maxTurn:
			next := c.copyMeta()
			next.alone = c.source.track.record(c.suspects[0].Seq).offset
			c.write(next)
		case c.meta.alone >= 0 && !c.unwritable:
			next := c.copyMeta()
			next.alone = -1
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

// take asks for the client's turn.
func (c *crashGate) takeTurn() {
	c.turn = turnAwaited
	turn, gate := c.source.r.sub.Turn, &c.source.r.sub.Gate
	go func() {
		if !turn.Take(c.ctx, gate) {
			return
		}
		taken := c.post(func() {
			if c.ended {
				turn.Give()
				return
			}
			c.turn, c.turnStart = turnHeld, time.Now()
			c.tendSuspects()
		})
		if !taken {
			turn.Give()
		}
	}()
}

// post has the lane call do, with the source's lock. It reports whether it will.
func (c *crashGate) post(call func()) bool {
	return c.source.lane.Post(func() {
		c.source.mu.Lock()
		defer c.source.mu.Unlock()
		call()
	})
}

// depart has the last commit say that the source has ended in order, so that nobody takes its end for a death. What is
// suspect stays so, uncharged.
func (c *crashGate) finish() {
	c.ended, c.writing = true, false
	c.cancel()
	if c.source.hasCommitted || c.source.commitMark() != c.source.from || c.cleared && !c.unwritable { // else the last one's word stands
		c.version++
		c.source.dirty = true
	}
}

// close gives the turn back, behind the last commit: before anything else of the client may kill the process.
func (c *crashGate) releaseTurn() {
	if c.turn == turnHeld {
		c.turn = noTurn
		c.source.r.sub.Turn.Give()
	}
}
