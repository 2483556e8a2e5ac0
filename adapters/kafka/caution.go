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
	noteWait = 10 * time.Second
	noteRest = time.Minute
	// linger bounds how long one suspect runs after another in one turn.
	linger = time.Second
	// glance is how often a turn is looked at that nobody uses: a gate may have closed in the wrong moment.
	glance = 50 * time.Millisecond
	// Bounds of a window: how many records may become suspects at once, and how
	// many commits a stretch takes.
	leastWindow = 32
	windowMost  = 256
	// stretchFactor times MaxInFlight, but at least stretchLeast and at most
	// stretchMost, is how many records behind the mark the last owner may have
	// begun: what is in flight, and what was settled within a commit interval. Where
	// it were more, its death would be found out later.
	stretchFactor = 500
	stretchLeast  = 5_000
	stretchMost   = 50_000
)

// caution is the gate of a source that counts crashes. It is guarded by the source's mu, but what it posts runs in the lane's
// goroutine.
type caution struct {
	s       *source
	note    note // as it stands in the group's offsets
	counted bool // else nothing is noted, and nothing is held back
	free    bool // what is not a suspect may begin: it was noted
	idle    bool // the last owner died, and nothing is left of what it may have begun
	most    int  // records in a window
	left    bool // the source has ended in order

	number  uint64 // of the note that is to stand
	writing bool   // it does not stand yet
	next    note   // what it says
	blind   bool   // notes cannot be written: all may begin

	running  int                                        // handlers that the gate has let begin
	window   []*driver.Message[*sarama.ConsumerMessage] // have asked, and wait for a note
	suspects []*driver.Message[*sarama.ConsumerMessage] // have asked, and wait to run alone

	ctx    context.Context // its end: no suspect gets a turn any more
	cancel context.CancelFunc
	turn   turnState
	took   time.Time                                // when the turn was taken
	solo   *driver.Message[*sarama.ConsumerMessage] // the suspect whose handler runs
}

type turnState uint8

const (
	noTurn turnState = iota
	awaited
	held
)

// newCaution makes the gate of a source whose last owner left found beside its offset from.
func newCaution(s *source, from int64, found note) *caution {
	cfg := s.r.client.cfg
	stretch := min(max(int64(stretchFactor)*int64(cfg.MaxInFlight), stretchLeast), stretchMost)
	lanes, slots := max(1, len(s.sess.Claims()[s.topic])), cfg.MaxInFlight
	if s.level != nil {
		slots = cfg.MaxRetriesInFlight
	}
	c := &caution{
		s: s, note: found.inherit(s.r.client.owner, from, s.claim.HighWaterMarkOffset(), stretch),
		most: min(max(slots/lanes, leastWindow), windowMost), counted: s.r.sub.Turn != nil,
	}
	c.note.topic = s.r.lives[s.topic]
	c.idle = found.known() && found.state != stateLeft && c.note.end == 0 && len(c.note.suspects) == 0
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c
}

// text is what stands beside the offset mark, above which settled is. whole is false where not all of that found room.
func (c *caution) text(mark int64, settled []offsetRun) (text string, whole bool) {
	n := c.note
	switch {
	case c.blind:
		return "", len(settled) == 0
	case c.left:
		n.state, n.window, n.alone = stateLeft, nil, -1
	case !c.counted: // its death says nothing
		n = note{owner: n.owner, topic: n.topic, state: stateLeft, alone: -1}
	case c.writing:
		n = c.next
	case c.free:
		n.state = stateRun
	}
	return n.textWith(mark, settled)
}

// calm reports whether nothing is suspect, and nothing waits for a note.
func (c *caution) calm() bool {
	return !c.counted || !c.writing && c.turn == noTurn && (c.blind || c.free && len(c.note.suspects) == 0)
}

// begin says whether a message may begin now.
func (c *caution) begin(m *driver.Message[*sarama.ConsumerMessage]) engine.Admission {
	alone := m.Alone
	m.Alone = false
	if m.Step != driver.Handle || !c.counted {
		return engine.Begins // no handler sees it
	}
	if c.free && len(c.note.suspects) == 0 {
		return c.let()
	}
	r := c.s.track.of(m.Seq)
	offset := r.offset
	crashes, suspected := c.note.suspects[offset]
	switch {
	case suspected && crashes >= c.s.r.sub.Policy.MaxCrashes:
		m.Step, m.Err = driver.Bury, &redeliver.CrashedError{Times: crashes}
		return engine.Begins
	case c.blind && alone:
		c.post(func() {}) // it asks again as one that needs a slot
		return engine.NotYet
	case c.blind:
		return c.let()
	case suspected && c.turn == held && c.solo == nil && !c.writing && c.note.alone == offset:
		c.suspects = without(c.suspects, m)
		m.Alone, c.solo = true, m
		return c.let()
	case suspected:
		m.Alone = true // it needs no slot
		if !slices.Contains(c.suspects, m) {
			c.suspects = append(c.suspects, m)
		}
		c.tend()
		return engine.NotYet
	case c.free || c.note.window[offset]:
		return c.let()
	default:
		if !r.asks {
			r.asks = true
			c.window = append(c.window, m)
			if len(c.window) == 1 {
				c.post(c.declare) // when the others have asked that are ready
			}
		}
		return engine.NotYet
	}
}

func (c *caution) let() engine.Admission {
	c.running++
	return engine.Begins
}

// end is the end of a message that the gate has let begin, or, with Stays, of one that asks again.
func (c *caution) end(m *driver.Message[*sarama.ConsumerMessage], how engine.How) {
	if !c.counted {
		return
	}
	if m.Step == driver.Handle {
		c.running--
		c.rest(m)
	}
	if how != engine.Stays && how != engine.NotBegun {
		c.gone(m, how != engine.Abandoned)
	}
	if len(c.window) > 0 {
		c.declare()
	}
}

// rest notes that no handler of a message runs any more: what is only to be written somewhere, however long that takes, holds
// up no suspect, and is not charged.
func (c *caution) rest(m *driver.Message[*sarama.ConsumerMessage]) {
	if c.solo == m {
		c.solo = nil
		c.tend()
	}
}

// gone forgets a message that has left the lane.
func (c *caution) gone(m *driver.Message[*sarama.ConsumerMessage], settled bool) {
	if !c.counted || c.free && len(c.note.suspects) == 0 && !c.writing {
		return
	}
	r := c.s.track.of(m.Seq)
	offset := r.offset
	c.suspects = without(c.suspects, m)
	if r.asks {
		r.asks, c.window = false, without(c.window, m)
	}
	for _, n := range []note{c.note, c.next} {
		delete(n.window, offset)
		if crashes, suspected := n.suspects[offset]; suspected && settled && crashes < c.s.r.sub.Policy.MaxCrashes {
			delete(n.suspects, offset) // it has killed nobody
		}
	}
}

func without[T comparable](all []T, one T) []T {
	return slices.DeleteFunc(all, func(other T) bool { return other == one })
}

// declare notes that what has asked may begin, or, behind the stretch, that all may.
func (c *caution) declare() {
	if len(c.window) == 0 || c.left || c.writing || c.blind || c.turn != noTurn {
		return // told and tend come back to it
	}
	offset := func(m *driver.Message[*sarama.ConsumerMessage]) int64 { return c.s.track.of(m.Seq).offset }
	next := c.said()
	if slices.ContainsFunc(c.window, func(m *driver.Message[*sarama.ConsumerMessage]) bool { return offset(m) >= c.note.end }) {
		next.state, next.end, next.window = stateRun, 0, nil
		c.forgetWindow()
		c.write(next)
		return
	}
	next.state = stateCareful
	switch {
	case c.running == 0: // of what was noted nothing runs
		next.window = make(map[int64]bool)
	case c.running > c.most*3/4 || len(next.window) >= c.most:
		return // a few more at a time: each note is a commit
	}
	for _, m := range c.window {
		if len(next.window) >= c.most {
			break
		}
		next.window[offset(m)] = true
	}
	if !next.fits(c.s.mark()) { // offsets that are far from each other
		if c.running > 0 {
			return
		}
		next.window = map[int64]bool{offset(c.window[0]): true}
	}
	c.forgetWindow() // what has found no room asks again
	c.write(next)
}

func (c *caution) forgetWindow() {
	for _, m := range c.window {
		c.s.track.of(m.Seq).asks = false
	}
	c.window = nil
}

// said is the note as it stands, to be changed.
func (c *caution) said() note {
	next := c.note
	next.window, next.suspects = maps.Clone(c.note.window), maps.Clone(c.note.suspects)
	if next.window == nil {
		next.window = make(map[int64]bool)
	}
	if c.free {
		next.state = stateRun
	}
	return next
}

// write has a note committed. What it says holds once it stands.
func (c *caution) write(next note) {
	c.number++
	c.writing, c.next = true, next
	c.s.dirty, c.s.urgent = true, true
	c.s.commits.now()
	number := c.number
	time.AfterFunc(noteWait, func() {
		c.post(func() {
			if c.writing && c.number == number {
				c.giveUp(fmt.Errorf("kafka: a commit was not taken within %s", noteWait))
			}
		})
	})
}

// told hears that a note stands.
func (c *caution) told(number uint64) {
	if !c.writing || c.number != number {
		return
	}
	c.note, c.free, c.blind = c.next, c.next.state == stateRun, false
	c.writing, c.next = false, note{}
	mark := c.s.mark()
	maps.DeleteFunc(c.note.suspects, func(o int64, _ int) bool { return o < mark })
	if c.calm() && c.s.commits.marks { // sarama's own next commit is of what is marked
		c.s.dirty = true
	}
	if c.turn == held && c.note.alone >= 0 {
		c.lookAgain()
	}
	c.tend()
	c.declare()
}

// lookAgain has the turn looked at that a suspect has not used.
func (c *caution) lookAgain() { time.AfterFunc(glance, func() { c.post(c.tend) }) }

// giveUp has all begin although that cannot be noted.
func (c *caution) giveUp(err error) {
	c.s.r.tellBlind(c.s.topic, c.s.partition, err)
	c.writing, c.next, c.blind = false, note{}, true
	c.note.alone, c.note.window = -1, make(map[int64]bool)
	c.forgetWindow()
	c.s.dirty = true // what is settled is committed without
	time.AfterFunc(noteRest, func() {
		c.post(func() {
			if c.blind && !c.left {
				next := c.said()
				next.state, next.end, next.window, next.alone = stateRun, 0, nil, -1
				c.write(next)
			}
		})
	})
	c.tend()
}

// tend has the next suspect run alone, or ends the turn.
func (c *caution) tend() {
	if c.left || c.writing {
		return
	}
	waits := len(c.suspects) > 0 && !c.blind
	switch c.turn {
	case awaited:
	case noTurn:
		if waits {
			c.take()
		}
	case held:
		switch gate := &c.s.r.sub.Gate; {
		case c.solo != nil:
		case waits && c.note.alone >= 0 && c.note.alone == c.s.track.of(c.suspects[0].Seq).offset && !gate.Closed():
			c.lookAgain() // it is about to begin
		case waits && !gate.Closed() && time.Since(c.took) < linger:
			next := c.said()
			next.alone = c.s.track.of(c.suspects[0].Seq).offset
			c.write(next)
		case c.note.alone >= 0 && !c.blind:
			next := c.said()
			next.alone = -1
			c.write(next)
		default:
			c.turn = noTurn
			c.s.r.sub.Turn.Give()
			c.declare()
			if waits && !c.writing {
				c.take()
			}
		}
	}
}

// take asks for the client's turn.
func (c *caution) take() {
	c.turn = awaited
	turn, gate := c.s.r.sub.Turn, &c.s.r.sub.Gate
	go func() {
		if !turn.Take(c.ctx, gate) {
			return
		}
		taken := c.post(func() {
			if c.left {
				turn.Give()
				return
			}
			c.turn, c.took = held, time.Now()
			c.tend()
		})
		if !taken {
			turn.Give()
		}
	}()
}

// post has the lane call do, with the source's lock. It reports whether it will.
func (c *caution) post(do func()) bool {
	return c.s.lane.Post(func() {
		c.s.mu.Lock()
		defer c.s.mu.Unlock()
		do()
	})
}

// depart has the last commit say that the source has ended in order, so that nobody takes its end for a death. What is
// suspect stays so, uncharged.
func (c *caution) depart() {
	c.left, c.writing = true, false
	c.cancel()
	if c.s.wrote || c.s.mark() != c.s.from || c.idle && !c.blind { // else the last one's word stands
		c.number++
		c.s.dirty = true
	}
}

// close gives the turn back, behind the last commit: before anything else of the client may kill the process.
func (c *caution) close() {
	if c.turn == held {
		c.turn = noTurn
		c.s.r.sub.Turn.Give()
	}
}
