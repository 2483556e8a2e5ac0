package kafka

import (
	"fmt"
	"hash/maphash"
	"time"

	"github.com/IBM/sarama"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/delayqueue"
	"github.com/redeliver/redeliver/internal/driver"
	"github.com/redeliver/redeliver/internal/engine"
	"github.com/redeliver/redeliver/internal/limits"
)

// keyTurns is the gate of a source where a key waits for its failures, see lines. A record of the
// origin asks when it is to begin, in the order of the log; one that has waited asks when it is due. It belongs to the
// lane's goroutine.
type keyTurns struct {
	s     *source
	lines *lines
	box   mailbox
	// behind wait in hand for the first of their line.
	behind  map[*driver.Message[*sarama.ConsumerMessage]]struct{}
	full    bool // what waits on the levels is as much as there may be: nothing of the origin begins
	looking bool // and that is looked at soon
}

func newKeyTurns(s *source, ls *lines) *keyTurns {
	k := &keyTurns{s: s, lines: ls, behind: make(map[*driver.Message[*sarama.ConsumerMessage]]struct{})}
	k.box.ring = func() { s.lane.Post(k.collect) }
	return k
}

// collect has those ask again whose line has moved: all do, that a gate has refused.
func (k *keyTurns) collect() {
	for _, c := range k.lines.collect(&k.box) {
		delete(k.behind, c.m)
	}
}

// first gives a record of the origin its place in the line of its key.
func (k *keyTurns) first(m *driver.Message[*sarama.ConsumerMessage]) {
	rec := m.Record
	if rec.Key == nil {
		return
	}
	c := &lineCopy{place: place{maphash.Bytes(seed, rec.Key), rec.Offset}, at: originTime(rec.Timestamp), first: true, box: &k.box, m: m}
	k.s.track.of(m.Seq).waits = &waiting{inLine: c}
}

// waits gives a record that waits its place in the line of its key. The record still has its own offset.
func (k *keyTurns) waits(m *driver.Message[*sarama.ConsumerMessage], w *waiting, stay *delayqueue.Stay) {
	c, ok := orderedCopy(m.Record, stay, k.s.partition)
	if !ok {
		return
	}
	c.counted, c.box, c.m = m.Record.Offset < k.lines.ends[k.s.topic], &k.box, m
	w.inLine = &c
	k.lines.seen(w.inLine, stay.State.Due)
}

// ask says whether a message may begin as far as its key is concerned. One whose key waits for a failure is written to a level
// until that may be through.
func (k *keyTurns) ask(m *driver.Message[*sarama.ConsumerMessage]) engine.Admission {
	s := k.s
	if k.bounded(m) {
		return engine.NothingYet
	}
	w := s.track.of(m.Seq).waits
	switch {
	case w == nil || w.inLine == nil || w.runs || w.parks:
		return engine.Begins
	case !w.leaves.IsZero():
		return k.park(m, w, w.leaves)
	case m.Step != driver.Handle:
		if k.lines.stale(w.inLine) {
			return engine.Outdated
		}
		return engine.Begins
	}
	v, until := k.lines.ask(w.inLine, time.Now(), s.level != nil && s.inHand < holdSoft/8)
	switch v {
	case waits:
		k.behind[m] = struct{}{}
		return engine.NotYet
	case parks:
		return k.park(m, w, limits.CeilMilli(until.UTC()))
	case stays:
		m.Until = until
		return engine.Later
	case dropped:
		return engine.Outdated
	case free:
		w.inLine = nil
	case runs:
		w.runs = true
	}
	return engine.Begins
}

// park has a message written to a level until then, without an attempt.
func (k *keyTurns) park(m *driver.Message[*sarama.ConsumerMessage], w *waiting, until time.Time) engine.Admission {
	st := &redeliver.State{}
	k.s.r.codec().State(m, st)
	st.Due = until
	w.parks = true
	m.Step, m.State = driver.Hop, st
	return engine.Begins
}

// end tells the lines how a message ended that has begun.
func (k *keyTurns) end(m *driver.Message[*sarama.ConsumerMessage], how engine.Ending) {
	w := k.s.track.of(m.Seq).waits
	if w == nil || w.inLine == nil {
		return
	}
	c := w.inLine
	switch how.How {
	case engine.Acked:
		k.lines.done(c)
	case engine.DeadLettered:
		if m.Step == driver.Hop {
			k.lines.bury(c)
			return
		}
		k.lines.done(c)
	case engine.Moved:
		if m.Step == driver.Handle || w.parks {
			k.lines.park(c, how.State.Attempts, how.State.Due)
			return
		}
		k.lines.hopped(c)
	case engine.Stays, engine.Abandoned, engine.NotBegun: // Return gives it up
	}
}

// giveUp leaves a message unsettled: it is where it was read, and nothing behind it may run.
func (k *keyTurns) giveUp(m *driver.Message[*sarama.ConsumerMessage]) {
	delete(k.behind, m)
	if w := k.s.track.of(m.Seq).waits; w != nil && w.inLine != nil {
		k.lines.giveUp(w.inLine)
	}
}

// makeRoom has what waits in hand for a handler that takes long, and holds up the
// lane, written to a level for a short while: other keys must not wait for it.
func (k *keyTurns) makeRoom() {
	if len(k.behind) == 0 || len(k.behind) < readAhead/2 && !k.s.isHeavy() {
		return
	}
	until := limits.CeilMilli(time.Now().UTC().Add(recovery))
	for m := range k.behind {
		if w := k.s.track.of(m.Seq).waits; k.lines.leave(w.inLine) {
			delete(k.behind, m)
			w.leaves = until
		}
	}
	k.s.lane.Post(func() {}) // those ask again
}

// bounded reports whether the partition's origin must wait: the levels hold as much
// as they may. What stands below something that waits on a level, and was read
// again, goes on, because that may wait for it.
func (k *keyTurns) bounded(m *driver.Message[*sarama.ConsumerMessage]) bool {
	s := k.s
	if s.level != nil {
		return false
	}
	n, most := k.lines.behind.Load(), int64(s.r.client.cfg.MaxParked)
	full := n >= most && m.Record.Offset > k.lines.highest()
	if full != k.full {
		k.full = full
		change := redeliver.ChangePartitionGoesOn
		if full {
			change = redeliver.ChangePartitionFull
		}
		s.r.tell(change, fmt.Sprintf("%s/%d: %d messages wait behind those that failed before them, or have failed; MaxParked is %d", s.topic, s.partition, n, most), nil)
	}
	if full && !k.looking { // lanes of other partitions make room, too
		k.looking = true
		time.AfterFunc(glance, func() { s.lane.Post(func() { k.looking = false }) })
	}
	return full
}
