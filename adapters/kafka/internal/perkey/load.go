package perkey

import (
	"cmp"
	"context"
	"hash/maphash"
	"slices"
	"time"

	"github.com/redeliver/redeliver/adapters/kafka/internal/commitmeta"
	"github.com/redeliver/redeliver/adapters/kafka/internal/topiclog"
	"github.com/redeliver/redeliver/delayqueue"
)

// seed is the seed of the hashes of keys.
var seed = maphash.MakeSeed()

// Loader loads the messages of one origin partition that wait on levels, which a new session does not know. Before the
// first record of the partition runs, the loader reads the keys and origin offsets of all unsettled records on its
// levels.
type Loader struct {
	Queues    *Queues
	Partition int32
	From      int64 // the offset from which the session reads the origin
	Origin    Log
	Levels    []Log // the topics on which messages wait
	// Stay interprets a record of a topic on which messages wait.
	Stay       func(topic string, rec *topiclog.Record) delayqueue.Stay
	MaxWaiting int
}

// Log is a partition of one topic.
type Log struct {
	topiclog.Reader
	Committed int64           // offset
	Settled   commitmeta.Runs // above it
}

// Load fills the queues. It may be called again after an error.
func (l *Loader) Load(ctx context.Context) error {
	l.clear()
	for i := range l.Levels {
		if err := l.loadLevel(ctx, &l.Levels[i]); err != nil {
			return err
		}
	}
	if err := l.loadOrigin(ctx); err != nil {
		return err
	}
	l.finish()
	return nil
}

// loadLevel loads the unsettled records of a topic on which messages wait.
func (l *Loader) loadLevel(ctx context.Context, log *Log) error {
	start, end, err := log.Bounds(ctx, l.Partition)
	if err != nil {
		return err
	}
	next, settled := log.Committed, log.Settled
	switch { // as the lane does
	case next > end:
		next, settled = start, nil
	case next < start:
		next = start
	}
	next, err = log.ReadAll(ctx, l.Partition, next, end, func(rec *topiclog.Record) {
		if !settled.Contains(rec.Offset) {
			stay := l.Stay(log.Topic, rec)
			l.addLoaded(orderedCopy(rec.Key, &stay, l.Partition), stay.State.Due)
		}
	})
	l.Queues.loadedEnds[log.Topic] = next
	return err
}

// loadOrigin loads the unsettled records of the origin before the last one that waits on a level, which must not
// overtake them. A lane bounds their number, unless the origin was created again or the group's offsets were reset.
// Then there may be millions: after the first MaxWaiting, loadOrigin loads only records of keys that wait on a level. A
// record takes about 75 bytes of memory, or 170 with a new queue.
func (l *Loader) loadOrigin(ctx context.Context) error {
	next, high := l.From, l.Queues.highestOffset()
	if high < next {
		return nil
	}
	start, end, err := l.Origin.Bounds(ctx, l.Partition)
	if err != nil {
		return err
	}
	n := 0
	_, err = l.Origin.ReadAll(ctx, l.Partition, max(next, start), min(end, high), func(rec *topiclog.Record) {
		if rec.Key == nil || rec.Offset >= high || l.Origin.Settled.Contains(rec.Offset) {
			return
		}
		at := keyOffset{maphash.Bytes(seed, rec.Key), rec.Offset}
		if n < l.MaxWaiting || l.Queues.queues[at.key] != nil {
			l.addExpected(at, originTime(rec.Time))
			n++
		}
	})
	return err
}

// orderedCopy makes the copy of a waiting record. It is nil for a record without order: it has no key, was not in this
// partition of its origin (a delayed publish), or was dead-lettered before (a replay).
func orderedCopy(key []byte, stay *delayqueue.Stay, partition int32) *Copy {
	st := stay.State
	if key == nil || stay.Publish || !st.Source.Known || st.Source.Partition != partition || st.Replays > 0 || st.Reason != "" {
		return nil
	}
	return &Copy{keyOffset: keyOffset{maphash.Bytes(seed, key), st.Source.Offset}, written: originTime(st.Source.Timestamp), attempts: int32(st.Attempts)}
}

// originTime returns a record's time in its origin, or 0 if unknown.
func originTime(t time.Time) int64 {
	if t.UnixMilli() > 0 { // producers without a clock write 0 or -1
		return t.UnixMilli()
	}
	return 0
}

// clear removes all records from the queues.
func (l *Loader) clear() {
	queues := l.Queues
	queues.mu.Lock()
	defer queues.mu.Unlock()
	for _, queue := range queues.queues {
		for i := range queue.records {
			queue.records[i].setOnLevel(queues.onLevels, false)
		}
	}
	clear(queues.queues)
	clear(queues.loadedEnds)
	queues.from, queues.next = l.From, l.From
	queues.highest, queues.unread = -1, nil
}

// addLoaded adds a waiting copy, if it is not nil. finish sorts the queues.
func (l *Loader) addLoaded(c *Copy, due time.Time) {
	if c == nil {
		return
	}
	l.Queues.mu.Lock()
	defer l.Queues.mu.Unlock()
	l.Queues.highest = max(l.Queues.highest, c.offset)
	l.appendLocked(c.key, queuedRecord{offset: c.offset, written: c.written, attempts: c.attempts, due: due.UnixMilli(), copies: 1})
}

// addExpected adds a record that the origin's lane will read.
func (l *Loader) addExpected(p keyOffset, at int64) {
	l.Queues.mu.Lock()
	defer l.Queues.mu.Unlock()
	l.Queues.unread = append(l.Queues.unread, p)
	l.appendLocked(p.key, queuedRecord{offset: p.offset, written: at, unread: true})
}

func (l *Loader) appendLocked(key uint64, rec queuedRecord) {
	queue := l.Queues.queues[key]
	if queue == nil {
		queue = new(keyQueue)
		l.Queues.queues[key] = queue
	}
	rec.loaded = true
	rec.setOnLevel(l.Queues.onLevels, !rec.unread)
	queue.records = append(queue.records, rec)
}

// finish sorts the queues, merges copies of one record, and closes ready.
func (l *Loader) finish() {
	queues := l.Queues
	queues.mu.Lock()
	defer queues.mu.Unlock()
	for key, queue := range queues.queues {
		slices.SortFunc(queue.records, func(a, b queuedRecord) int {
			return cmp.Or(cmp.Compare(a.offset, b.offset), cmp.Compare(b.attempts, a.attempts), cmp.Compare(b.due, a.due))
		})
		kept := queue.records[:0]
		for _, rec := range queue.records {
			if n := len(kept); n == 0 || kept[n-1].offset != rec.offset {
				kept = append(kept, rec)
				continue
			}
			one := &kept[len(kept)-1]
			one.copies += rec.copies
			rec.setOnLevel(queues.onLevels, false)
			if one.written != rec.written {
				queues.addConflictLocked(keyOffset{key, rec.offset})
			}
		}
		clear(queue.records[len(kept):])
		queue.records = slices.DeleteFunc(kept, func(rec queuedRecord) bool {
			_, known := queues.conflicts[keyOffset{key, rec.offset}]
			if known {
				rec.setOnLevel(queues.onLevels, false)
			}
			return known
		})
		if len(queue.records) == 0 {
			delete(queues.queues, key)
		}
	}
	close(queues.ready)
}
