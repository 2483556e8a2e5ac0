package kafka

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"
)

// A record that kills its process comes back, and with it all that the process
// had begun and not committed. Kafka counts nothing of that, so the owner of a
// partition says in its commits how it stands, see note. One that ended in order
// says so. Where the last word is another one, the owner died, and which record was
// it nobody knows: from the mark on the next owner is careful for a stretch. It begins
// only what it has noted before, a window at a time. When it dies as well, what
// stood in its window is suspect, and nothing else. Suspects run one at a time,
// each noted as alone, while nothing else of the client runs, see Turn. Only one
// that was alone when its process died is charged.

const (
	// noteWait is how long a lane waits for a note of its to stand. Then it goes on
	// without, and tries again after noteRest.
	noteWait = 10 * time.Second
	noteRest = time.Minute
	// linger bounds how long one suspect runs after another in one turn.
	linger = time.Second
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

// caution is what a lane heeds until it knows that nothing in its partition is
// suspect. All of it but the mail belongs to the lane's goroutine.
type caution struct {
	l     *lane
	note  note          // as it stands in the group's offsets
	free  bool          // what is not a suspect may begin: it was noted
	idle  bool          // the last owner died, and nothing is left of what it may have begun
	from  int64         // where the lane began
	most  int           // records in a window
	every time.Duration // so often what is settled is committed

	writing *inscription // under way
	next    note         // what it says
	since   time.Time    // when it was begun
	late    *inscription // was given up, and may still be taken
	blind   bool         // notes cannot be written: all may begin
	again   time.Time    // when that is tried again

	ctx    context.Context // its end: no suspect gets a turn any more
	cancel context.CancelFunc
	turn   turnState
	took   time.Time // when the turn was taken
	solo   *entry    // the suspect whose handler runs
	waits  []waiting // have failed and waited in their place, and are to run again

	bell chan struct{} // has one when there is mail
	mu   sync.Mutex
	mail []func() // from other goroutines, to be called by the lane
	shut bool     // nobody reads it any more
}

// waiting is a suspect that waits to run again.
type waiting struct {
	e    *entry
	back chan struct{} // closed when it may
}

type turnState uint8

const (
	noTurn turnState = iota
	awaited
	held
)

// newCaution makes a lane begin as it must where the last owner left found.
func newCaution(l *lane, from int64, found note) *caution {
	cfg := l.r.client.cfg
	stretch := min(max(int64(stretchFactor)*int64(cfg.MaxInFlight), stretchLeast), stretchMost)
	lanes := max(1, len(l.sess.Claims()[l.topic]))
	c := &caution{
		l: l, from: from, note: found.inherit(l.r.client.owner, from, l.claim.HighWaterMarkOffset(), stretch),
		most: min(max(cap(l.slots)/lanes, leastWindow), windowMost), bell: make(chan struct{}, 1),
		every: l.r.commits, since: time.Now(),
	}
	c.note.topic = l.r.lives[l.topic]
	c.idle = found.known() && found.state != stateLeft && c.note.end == 0 && len(c.note.suspects) == 0
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c
}

// allows tells whether an entry may begin now.
func (c *caution) allows(e *entry) bool {
	if e.then != toHandler || c.blind {
		return true // no handler sees it, or nothing can be done
	}
	offset := c.l.track.offset(e.number)
	if crashes, suspected := c.note.suspects[offset]; suspected {
		return c.spent(crashes) || c.turn == held && c.solo == nil && c.writing == nil && c.note.alone == offset
	}
	return c.free || c.note.window[offset]
}

// unasked tells whether nobody has asked for what has to happen before an entry may begin,
// or before the turn is given back: a gate has closed or opened in the wrong moment.
func (c *caution) unasked(e *entry) bool {
	if c.writing != nil {
		return false
	}
	return e != nil && !c.allows(e) || c.turn == held && c.solo == nil
}

// spent tells whether a record that was alone so often when its process died is to
// run no more.
func (c *caution) spent(crashes int) bool { return crashes >= c.l.r.sub.Policy.MaxCrashes }

// suspected tells whether an entry may begin only alone.
func (c *caution) suspected(e *entry) bool {
	crashes, suspected := c.note.suspects[c.l.track.offset(e.number)]
	return suspected && e.then == toHandler && !c.blind && !c.spent(crashes)
}

// admit makes what is chosen begin: now, when it is true, or when what that takes
// is noted.
func (c *caution) admit(e *entry) bool {
	if c.allows(e) {
		offset := c.l.track.offset(e.number)
		switch crashes := c.note.suspects[offset]; {
		case e.then != toHandler:
		case c.spent(crashes):
			e.crashes = crashes
		case c.suspected(e):
			e.alone, c.solo = c, e
			e.busy.Store(true)
		}
		return true
	}
	switch {
	case c.l.draining || c.writing != nil:
	case c.suspected(e):
		c.isolate(e)
	case c.turn == noTurn:
		c.declare(e)
	}
	return false
}

// declare notes that what is chosen and what comes next may begin, or, behind the
// stretch, that all may.
func (c *caution) declare(e *entry) {
	l := c.l
	if offset := l.track.offset(e.number); offset >= c.note.end {
		next := c.said()
		next.state, next.end, next.window = stateRun, 0, nil
		c.write(next)
		return
	}
	next := c.said()
	next.state = stateCareful
	switch n := l.flight.Len(); {
	case n == 0: // of what was noted nothing runs
		next.window = make(map[int64]bool)
	case n > c.most*3/4 || len(next.window) >= c.most:
		return // a few more at a time: each note is a commit
	}
	add := func(e *entry) bool {
		offset := l.track.offset(e.number)
		if _, suspected := c.note.suspects[offset]; !suspected && offset < c.note.end && e.then == toHandler {
			next.window[offset] = true
		}
		return len(next.window) < c.most
	}
	add(e)
	for _, e := range l.freed {
		if !add(e) {
			break
		}
	}
	for e := range l.ready.All {
		if !add(e) {
			break
		}
	}
	if !next.fits(max(l.track.mark, c.from)) { // offsets that are far from each other
		if l.flight.Len() > 0 {
			return
		}
		next.window = map[int64]bool{l.track.offset(e.number): true}
	}
	c.write(next)
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

// write has a note committed, with the mark. What it says holds once it stands; until
// then nothing else is committed for the partition, by nobody: as long as the lane is
// careful it marks nothing in its session, whose commits are no part of this order.
func (c *caution) write(next note) {
	l := c.l
	mark := max(l.track.mark, c.from)
	l.replaceBeginning()
	l.note, l.moved = next.text(mark), false
	i := &inscription{sess: l.sess, topic: l.topic, partition: l.partition, offset: mark, text: l.note, ended: make(chan struct{})}
	i.told = func(err error) { c.post(func() { c.told(i, err) }) }
	c.writing, c.next, c.since = i, next, time.Now()
	l.r.notes.write(l.r.client.admin, l.r.layout.group, i)
}

// told is told that a note stands, or why it never will.
func (c *caution) told(i *inscription, err error) {
	switch {
	case c.writing != i: // it was given up, and is older than what was marked since
		c.late = nil
		c.l.put()
	case err != nil:
		c.giveUp(time.Now(), err)
	default:
		c.note, c.free, c.blind = c.next, c.next.state == stateRun, false
		c.writing, c.next = nil, note{}
		c.l.r.owned.mark(c.l.topic, c.l.partition, i.offset)
	}
}

// landed is told of the end of an entry that was in flight.
func (c *caution) landed(offset int64, settled bool) {
	for _, n := range []note{c.note, c.next} {
		delete(n.window, offset)
		if crashes, suspected := n.suspects[offset]; suspected && settled && !c.spent(crashes) {
			delete(n.suspects, offset) // it has killed nobody
		}
	}
}

// tend does what is due: mail, a note that takes too long, the end of a turn, and
// the end of all caution.
func (c *caution) tend() (busy bool) {
	c.mu.Lock()
	mail := c.mail
	c.mail = nil
	c.mu.Unlock()
	for _, do := range mail {
		do()
	}
	busy = len(mail) > 0
	now := time.Now()
	if c.writing != nil && now.Sub(c.since) >= noteWait {
		c.giveUp(now, fmt.Errorf("kafka: a commit was not taken within %s", noteWait))
	}
	if c.l.draining {
		return busy
	}
	if c.blind && c.writing == nil && !now.Before(c.again) {
		next := c.said()
		next.state, next.end, next.window, next.alone = stateRun, 0, nil, -1
		c.write(next)
	}
	c.prune()
	c.yield(now)
	if at, ok := c.due(); ok && !now.Before(at) {
		c.write(c.said())
	}
	if c.free && !c.blind && c.turn == noTurn && c.solo == nil && c.writing == nil && len(c.note.suspects) == 0 {
		c.end()
		c.l.note, c.l.moved = note{owner: c.note.owner, topic: c.note.topic, state: stateRun, alone: -1}.text(0), c.l.track.mark > c.from
		c.l.care = nil
	}
	return busy
}

// prune forgets what stands below the mark.
func (c *caution) prune() {
	for o := range c.note.suspects {
		if o < max(c.l.track.mark, c.from) {
			delete(c.note.suspects, o)
		}
	}
}

// giveUp has all begin although that cannot be noted.
func (c *caution) giveUp(now time.Time, err error) {
	c.writing.stale.Store(true)
	c.late = c.writing
	if !c.blind {
		c.l.r.tellBlind(c.l.topic, c.l.partition, err)
	}
	c.writing, c.next, c.blind, c.again = nil, note{}, true, now.Add(noteRest)
	c.note.alone, c.note.window = -1, make(map[int64]bool)
	c.l.note, c.l.moved = "", c.l.track.mark > c.from // what is settled is committed without
}

// due is when what is settled is to be committed, although nothing has to be noted.
func (c *caution) due() (time.Time, bool) {
	return c.since.Add(c.every), c.l.moved && c.writing == nil && !c.blind
}

// deadline is when tend has something to do, whoever rings.
func (c *caution) deadline() (time.Time, bool) {
	switch {
	case c.writing != nil:
		return c.since.Add(noteWait), true
	case c.blind:
		return c.again, true
	default:
		return c.due()
	}
}

// post has the lane call do. It is false when the lane has ended.
func (c *caution) post(do func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.shut {
		return false
	}
	c.mail = append(c.mail, do)
	select {
	case c.bell <- struct{}{}:
	default:
	}
	return true
}

// end is the end of the caution: no mail is taken any more.
func (c *caution) end() {
	c.cancel()
	if c.writing != nil {
		c.writing.stale.Store(true)
	}
	c.mu.Lock()
	mail := c.mail
	c.mail, c.shut = nil, true
	c.mu.Unlock()
	for _, do := range mail { // a turn may be in it
		do()
	}
	if c.turn == held {
		c.turn = noTurn
		c.l.r.client.turn.Give()
	}
}
