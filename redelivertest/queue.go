package redelivertest

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/delayqueue"
	"github.com/redeliver/redeliver/internal/wirename"
)

// queue is one topic as one group reads it: the unsettled messages in the topic and on the group's delay topics, and
// the DLQ. The broker's mu guards all of it.
type queue struct {
	b            *Broker
	topic, group string
	taken        int     // number of the topic's records that were read
	written      int64   // number of records written to delay topics
	items        []*item // unsettled, in the order in which they were written
	dead         []deadRecord
	dlqState     dlqState
	keys         map[keyLock]*keyOwner
	lowest       map[string]int64 // see waitsForKeyLocked; nil if it must be computed again
	refused      map[Place]int
	events       []timedEvent
	paused       *redeliver.PauseMark
}

// item is a record that a group has not settled. The broker's mu guards owner and the fields after it. The others do
// not change.
type item struct {
	record
	where  string
	waits  bool          // it is on a delay topic
	level  time.Duration // 0: retry topic
	offset int64
	at     time.Time // when it was written
	after  *delivery // nil, or a delivery that must end before a reader gets the item
	first  int64     // its offset in the topic, or -1 if it has none or it is unknown

	owner       *reader   // the reader that has it; nil if it is free
	locks       bool      // it counts in the owner of its key
	run         *delivery // set while it has an owner
	handlerRuns bool      // its handler runs
	suspect     bool      // it ran when its process was killed
	crashes     int       // how often it ran alone when its process was killed

	// noted is the state with which it waits in its place, for the reader that gets it next. Nil while it has not failed.
	noted *redeliver.State
}

// delivery is the time for which an item has one owner. Readers get the records that a message causes only after its delivery has
// ended, so that its events are in order.
type delivery struct{ ended bool }

func (it *item) available() bool {
	return it.owner == nil && (it.after == nil || it.after.ended)
}

// keyLock keeps the messages of a key with one reader, whose lane keeps their order: first deliveries, and separately retries.
type keyLock struct {
	waits bool
	key   string
}

// keyOwner is the reader that has the items of a key.
type keyOwner struct {
	reader *reader
	items  int
}

// lockOf returns the lock that an item holds while it runs. locks is false if it needs none.
func (r *reader) lockOf(it *item) (l keyLock, locks bool) {
	switch order := r.sub.Policy.Order; {
	case order == redeliver.OrderBlocking && !it.waits: // the topic is one partition
		return keyLock{}, true
	case order == redeliver.OrderNone || it.key == nil:
		return keyLock{}, false
	case order == redeliver.OrderThroughRetries:
		return keyLock{false, "key " + string(it.key)}, true
	default:
		return keyLock{it.waits, "key " + string(it.key)}, true
	}
}

// catchUpLocked reads the new records of the topic.
func (q *queue) catchUpLocked() {
	all := q.b.topics[q.topic]
	for ; q.taken < len(all); q.taken++ {
		rec := all[q.taken]
		q.items = append(q.items, &item{record: rec.record, where: q.topic, offset: int64(q.taken), at: rec.at, after: rec.after, first: int64(q.taken)})
		q.lowest = nil
	}
}

// The names of a group's own topics, as on Kafka.
func (q *queue) retry() string { return q.topic + "." + q.group + wirename.RetrySuffix }
func (q *queue) dlq() string   { return dlqOf(q.topic, q.group) }

func dlqOf(topic, group string) string { return topic + "." + group + wirename.DLQSuffix }

// waitLocked puts a record on a level's topic; 0 is the retry topic. first is its offset in the topic, or -1.
func (q *queue) waitLocked(level time.Duration, rec record, after *delivery, first int64) {
	q.items = append(q.items, &item{record: rec, where: q.place(level), waits: true, level: level, offset: q.written, at: time.Now(), after: after, first: first})
	q.written++
	q.lowest = nil
	q.b.wakeAllLocked()
}

func (q *queue) place(level time.Duration) string {
	if level == 0 {
		return q.retry()
	}
	return q.retry() + "." + delayqueue.LevelName(level)
}

// errRefused is the error of a write that the test made the broker refuse.
var errRefused = errors.New("the test made the broker refuse this write")

// refusesLocked returns the refusal of a write, or nil.
func (q *queue) refusesLocked(what Place) error {
	if q.refused[what] == 0 {
		return nil
	}
	q.b.refusals++
	q.b.wakeAllLocked()
	return fmt.Errorf("%s: %w", what, errRefused)
}

// takeKeyLocked takes the lock that an item needs, if no other reader has it, and reports whether the item has it.
func (q *queue) takeKeyLocked(it *item, r *reader) bool {
	l, locks := r.lockOf(it)
	if !locks || it.locks {
		return true
	}
	owner := q.keys[l]
	switch {
	case owner == nil:
		owner = &keyOwner{reader: r}
		q.keys[l] = owner
	case owner.reader != r:
		return false
	}
	owner.items++
	it.locks = true
	return true
}

// waitsForKeyLocked reports whether an earlier message of the item's key is not settled, wherever that message is now. It ignores
// those for which passes returns true.
func (q *queue) waitsForKeyLocked(it *item, passes func(earlier *item) bool) bool {
	if it.key == nil || it.first < 0 {
		return false
	}
	if q.lowest == nil {
		q.lowest = make(map[string]int64)
		for _, other := range q.items {
			if key := string(other.key); other.key != nil && other.first >= 0 {
				if low, ok := q.lowest[key]; !ok || other.first < low {
					q.lowest[key] = other.first
				}
			}
		}
	}
	return q.lowest[string(it.key)] < it.first && slices.ContainsFunc(q.items, func(other *item) bool {
		return other.key != nil && other.first >= 0 && other.first < it.first && string(other.key) == string(it.key) && !passes(other)
	})
}

// endHandlerLocked records that an item's handler has ended.
func (q *queue) endHandlerLocked(it *item) {
	if !it.handlerRuns {
		return
	}
	it.handlerRuns = false
	c := it.owner.client
	c.running--
	if c.alone == it {
		c.alone = nil
	}
}

// settle acks an item. It has no effect if the item is no longer r's.
func (q *queue) settle(it *item, r *reader) {
	q.b.mu.Lock()
	defer q.b.mu.Unlock()
	if it.owner != r {
		return
	}
	q.freeLocked(it)
	if i := slices.Index(q.items, it); i >= 0 {
		q.items = slices.Delete(q.items, i, i+1)
		q.lowest = nil
	}
	q.b.wakeAllLocked()
}

// note keeps the state of an item that has failed and waits in its place, as the brokers' notes do: a kill forgets only the
// immediate retries since.
func (q *queue) note(it *item, r *reader, st *redeliver.State) {
	q.b.mu.Lock()
	defer q.b.mu.Unlock()
	if it.owner == r {
		noted := *st
		it.noted = &noted
	}
}

// returnItem frees an item, so that it is delivered again.
func (q *queue) returnItem(it *item, r *reader) {
	q.b.mu.Lock()
	defer q.b.mu.Unlock()
	if it.owner == r {
		q.freeLocked(it)
		q.b.wakeAllLocked()
	}
}

// freeLocked removes an item from its owner.
func (q *queue) freeLocked(it *item) {
	q.endHandlerLocked(it)
	if it.locks {
		it.locks = false
		l, _ := it.owner.lockOf(it)
		if owner := q.keys[l]; owner.items > 1 {
			owner.items--
		} else {
			delete(q.keys, l)
		}
	}
	it.run.ended = true
	it.owner = nil
}
