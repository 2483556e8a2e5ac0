package kafka

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

// keyGate is the part of source.Begin for the order PerKey, see keyQueues. The lane asks about a record of the
// origin before it begins, in log order, and about a waiting one when it is due. Only the lane's goroutine uses it.
type keyGate struct {
	source  *source
	queues  *keyQueues
	mailbox mailbox
	// waiting are the held messages that wait for the first of their queue.
	waiting        map[*driver.Message[*sarama.ConsumerMessage]]struct{}
	full           bool // the levels hold MaxWaiting messages: nothing of the origin begins
	recheckPending bool // a timer will check again
}

func newKeyGate(s *source, queues *keyQueues) *keyGate {
	k := &keyGate{source: s, queues: queues, waiting: make(map[*driver.Message[*sarama.ConsumerMessage]]struct{})}
	k.mailbox.notify = func() { s.lane.Post(k.collect) }
	return k
}

// collect forgets the waiting messages whose queue has changed. The lane then asks about them.
func (k *keyGate) collect() {
	for _, c := range k.queues.collect(&k.mailbox) {
		delete(k.waiting, c.message)
	}
}

// placeFirst makes the copy of a record of the origin.
func (k *keyGate) placeFirst(m *driver.Message[*sarama.ConsumerMessage]) {
	rec := m.Record
	if rec.Key == nil {
		return
	}
	c := &recordCopy{keyOffset: keyOffset{maphash.Bytes(seed, rec.Key), rec.Offset}, written: originTime(rec.Timestamp), fromOrigin: true, mailbox: &k.mailbox, message: m}
	k.source.track.record(m.Seq).waiting = &waitState{queued: c}
}

// placeWaiting queues the copy of a record that waits. m still has the offset on its level.
func (k *keyGate) placeWaiting(m *driver.Message[*sarama.ConsumerMessage], w *waitState, stay *delayqueue.Stay) {
	c, ok := orderedCopy(m.Record, stay, k.source.partition)
	if !ok {
		return
	}
	c.counted, c.mailbox, c.message = m.Record.Offset < k.queues.loadedEnds[k.source.topic], &k.mailbox, m
	w.queued = &c
	k.queues.addSeen(w.queued, stay.State.Due)
}

// ask decides whether the key of a message lets it begin. A message behind a failed one of its key is parked on a
// level.
func (k *keyGate) ask(m *driver.Message[*sarama.ConsumerMessage]) engine.Admission {
	s := k.source
	if k.isFull(m) {
		return engine.NothingYet
	}
	w := s.track.record(m.Seq).waiting
	switch {
	case w == nil || w.queued == nil || w.runs || w.parks:
		return engine.Begins
	case !w.parkUntil.IsZero():
		return k.park(m, w, w.parkUntil)
	case m.Step != driver.Handle:
		if k.queues.dropStale(w.queued) {
			return engine.Outdated
		}
		return engine.Begins
	}
	v, until := k.queues.ask(w.queued, time.Now(), s.level != nil && s.heldCount < holdSoft/8)
	switch v {
	case verdictWait:
		k.waiting[m] = struct{}{}
		return engine.NotYet
	case verdictPark:
		return k.park(m, w, limits.CeilMilli(until.UTC()))
	case verdictHold:
		m.Until = until
		return engine.Later
	case verdictDrop:
		return engine.Outdated
	case verdictUnordered:
		w.queued = nil
	case verdictRun:
		w.runs = true
	}
	return engine.Begins
}

// park makes a message hop to a level until then, without an attempt.
func (k *keyGate) park(m *driver.Message[*sarama.ConsumerMessage], w *waitState, until time.Time) engine.Admission {
	st := &redeliver.State{}
	k.source.r.codec().State(m, st)
	st.Due = until
	w.parks = true
	m.Step, m.State = driver.Hop, st
	return engine.Begins
}

// messageEnded updates the queues after the end of a message.
func (k *keyGate) messageEnded(m *driver.Message[*sarama.ConsumerMessage], how engine.Ending) {
	w := k.source.track.record(m.Seq).waiting
	if w == nil || w.queued == nil {
		return
	}
	c := w.queued
	switch how.How {
	case engine.Acked:
		k.queues.settle(c)
	case engine.DeadLettered:
		if m.Step == driver.Hop {
			k.queues.deadLetter(c)
			return
		}
		k.queues.settle(c)
	case engine.Moved:
		if m.Step == driver.Handle || w.parks {
			k.queues.park(c, how.State.Attempts, how.State.Due)
			return
		}
		k.queues.hopped(c)
	case engine.Stays, engine.Abandoned, engine.NotBegun: // see source.Return
	}
}

// giveUp leaves a message unsettled. It is still where it was read, and blocks those behind it.
func (k *keyGate) giveUp(m *driver.Message[*sarama.ConsumerMessage]) {
	delete(k.waiting, m)
	if w := k.source.track.record(m.Seq).waiting; w != nil && w.queued != nil {
		k.queues.giveUp(w.queued)
	}
}

// parkWaiting parks messages on a level for a short while if they wait for a slow handler. They fill the lane, and
// other keys must not wait.
func (k *keyGate) parkWaiting() {
	if len(k.waiting) == 0 || len(k.waiting) < readAhead/2 && !k.source.isHeavy() {
		return
	}
	until := limits.CeilMilli(time.Now().UTC().Add(levelRecheck))
	for m := range k.waiting {
		if w := k.source.track.record(m.Seq).waiting; k.queues.stopWaiting(w.queued) {
			delete(k.waiting, m)
			w.parkUntil = until
		}
	}
	k.source.lane.Post(func() {}) // make them ask again
}

// isFull reports whether a message of the origin must wait because the levels hold MaxWaiting messages. A message with
// a lower offset than one on a level may begin: that one may wait for it.
func (k *keyGate) isFull(m *driver.Message[*sarama.ConsumerMessage]) bool {
	s := k.source
	if s.level != nil {
		return false
	}
	parked, maxParked := k.queues.onLevels.Load(), int64(s.r.client.cfg.MaxWaiting)
	full := parked >= maxParked && m.Record.Offset > k.queues.highestOffset()
	if full != k.full {
		k.full = full
		change := redeliver.ChangePartitionResumed
		if full {
			change = redeliver.ChangePartitionPaused
		}
		s.r.sub.EmitChange(change, fmt.Sprintf("%s/%d: %d messages wait behind those that failed before them, or have failed; MaxWaiting is %d", s.topic, s.partition, parked, maxParked), nil)
	}
	if full && !k.recheckPending { // other partitions' lanes make room, too
		k.recheckPending = true
		time.AfterFunc(fullRecheck, func() { s.lane.Post(func() { k.recheckPending = false }) })
	}
	return full
}
