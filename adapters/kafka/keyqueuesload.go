package kafka

import (
	"cmp"
	"context"
	"fmt"
	"hash/maphash"
	"maps"
	"slices"
	"time"

	"github.com/IBM/sarama"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka/internal/commitmeta"
	"github.com/redeliver/redeliver/adapters/kafka/internal/record"
	"github.com/redeliver/redeliver/adapters/kafka/internal/topiclog"
	"github.com/redeliver/redeliver/delayqueue"
	"github.com/redeliver/redeliver/internal/wait"
)

// A session begins without knowing which messages wait on the levels. So before the first record of a partition runs,
// the reader itself reads the keys and origin offsets of all unsettled records there.

const loadRetryPause = time.Second

// loadQueues loads a partition's waiting messages, and closes ready. It tries again until ctx ends, then returns its
// error.
func (r *reader) loadQueues(ctx context.Context, queues *keyQueues, partition int32) error {
	for reported := false; ; reported = true {
		err := r.tryLoadQueues(ctx, queues, partition)
		if err == nil {
			queues.finishLoading()
			return nil
		}
		if !reported && ctx.Err() == nil {
			r.sub.EmitChange(redeliver.ChangeReadingWaiting, fmt.Sprintf("partition %d; nothing of it runs before", partition), err)
		}
		if err := wait.For(ctx, loadRetryPause); err != nil {
			return err
		}
	}
}

func (r *reader) tryLoadQueues(ctx context.Context, queues *keyQueues, partition int32) error {
	topics := map[string][]int32{r.layout.origin: {partition}}
	for topic := range r.levels {
		topics[topic] = []int32{partition}
	}
	committed, err := r.client.admin.GroupOffsets(r.layout.group, topics)
	if err != nil {
		return err
	}
	queues.clear()
	for _, topic := range slices.Sorted(maps.Keys(r.levels)) {
		found, err := metaOf(committed, topic, partition)
		if err != nil {
			return err
		}
		if err := r.loadLevel(ctx, queues, topic, partition, found); err != nil {
			return err
		}
	}
	found, err := metaOf(committed, r.layout.origin, partition)
	if err != nil {
		return err
	}
	return r.loadOrigin(ctx, queues, partition, r.settledBefore(r.layout.origin, found, queues.from))
}

// loadLevel loads the unsettled records of a waiting topic. found is what the group has committed.
func (r *reader) loadLevel(ctx context.Context, queues *keyQueues, topic string, partition int32, found claimMeta) error {
	next := found.offset
	log := topiclog.Reader{Client: r.client.admin.Client, Topic: topic}
	start, end, err := log.Bounds(ctx, partition)
	if err != nil {
		return err
	}
	if next < start || next > end { // as the lane does
		next = start
	}
	settled := r.settledBefore(topic, found, next)
	for next < end {
		p, err := log.Read(ctx, partition, next)
		if err != nil {
			return err
		}
		for _, rec := range p.Records {
			if !settled.Contains(rec.Offset) {
				queues.addLoaded(r.loadedCopy(r.levels[topic], partition, rec))
			}
		}
		if p.End && p.Next <= next {
			break // a transaction is open
		}
		next = p.Next
	}
	queues.loadedEnds[topic] = next
	return nil
}

// loadOrigin loads the unsettled records of the origin before the last one that waits on a level, because that one must
// not overtake them. There are at most maxSpan, unless the origin was created again or the group's offsets were reset.
// Then there may be millions. After the first MaxWaiting, it loads only records of keys that wait on a level. A record
// takes about 75 bytes of memory, or 170 with a new queue.
func (r *reader) loadOrigin(ctx context.Context, queues *keyQueues, partition int32, settled commitmeta.Runs) error {
	log := topiclog.Reader{Client: r.client.admin.Client, Topic: r.layout.origin}
	next, high := queues.from, queues.highestOffset()
	if high < next {
		return nil
	}
	start, end, err := log.Bounds(ctx, partition)
	if err != nil {
		return err
	}
	next = max(next, start)
	for n := 0; next < min(end, high); {
		p, err := log.Read(ctx, partition, next)
		if err != nil {
			return err
		}
		for _, rec := range p.Records {
			if rec.Key == nil || rec.Offset >= high || settled.Contains(rec.Offset) {
				continue
			}
			at := keyOffset{maphash.Bytes(seed, rec.Key), rec.Offset}
			if n < r.client.cfg.MaxWaiting || queues.hasQueue(at.key) {
				queues.addExpected(at, originTime(rec.Time))
				n++
			}
		}
		if p.End && p.Next <= next {
			break
		}
		next = p.Next
	}
	return nil
}

// loadedCopy parses a record of a waiting topic as its lane would. ok is false if it has no order.
func (r *reader) loadedCopy(w waitLevel, partition int32, rec topiclog.Record) (c recordCopy, due time.Time, ok bool) {
	users, ours := record.SplitHeaders(rec.Headers)
	m := sarama.ConsumerMessage{Key: rec.Key, Headers: users, Timestamp: rec.Time}
	stay := r.readArrival(&m, ours, w)
	c, ok = orderedCopy(&m, &stay, partition)
	return c, stay.State.Due, ok
}

// orderedCopy makes the recordCopy of a waiting record. ok is false for a record without order: it has no key, was not
// in this partition of its origin (a delayed publish), or was dead-lettered before (a replay).
func orderedCopy(m *sarama.ConsumerMessage, stay *delayqueue.Stay, partition int32) (c recordCopy, ok bool) {
	st := stay.State
	if m.Key == nil || stay.Publish || !st.Source.Known || st.Source.Partition != partition || st.Replays > 0 || st.Reason != "" {
		return recordCopy{}, false
	}
	return recordCopy{keyOffset: keyOffset{maphash.Bytes(seed, m.Key), st.Source.Offset}, written: originTime(st.Source.Timestamp), attempts: int32(st.Attempts)}, true
}

// originTime returns a record's time in its origin, or 0 if unknown.
func originTime(t time.Time) int64 {
	if t.UnixMilli() > 0 { // producers without a clock write 0 or -1
		return t.UnixMilli()
	}
	return 0
}

func (queues *keyQueues) clear() {
	queues.mu.Lock()
	defer queues.mu.Unlock()
	for _, queue := range queues.queues {
		for i := range queue.records {
			queues.setOnLevelLocked(&queue.records[i], false)
		}
	}
	clear(queues.queues)
	clear(queues.loadedEnds)
	queues.highest, queues.unread = -1, nil
}

// addLoaded adds a waiting copy. finishLoading sorts the queues.
func (queues *keyQueues) addLoaded(c recordCopy, due time.Time, ok bool) {
	if !ok {
		return
	}
	queues.mu.Lock()
	defer queues.mu.Unlock()
	queues.highest = max(queues.highest, c.offset)
	queues.appendLocked(c.key, queuedRecord{offset: c.offset, written: c.written, attempts: c.attempts, due: due.UnixMilli(), copies: 1})
}

// hasQueue reports whether a key has a queue.
func (queues *keyQueues) hasQueue(key uint64) bool {
	queues.mu.Lock()
	defer queues.mu.Unlock()
	return queues.queues[key] != nil
}

// addExpected adds a record that the origin's lane will read.
func (queues *keyQueues) addExpected(p keyOffset, at int64) {
	queues.mu.Lock()
	defer queues.mu.Unlock()
	queues.unread = append(queues.unread, p)
	queues.appendLocked(p.key, queuedRecord{offset: p.offset, written: at, unread: true})
}

func (queues *keyQueues) appendLocked(key uint64, it queuedRecord) {
	queue := queues.queues[key]
	if queue == nil {
		queue = new(keyQueue)
		queues.queues[key] = queue
	}
	queue.records = append(queue.records, it)
	queues.setOnLevelLocked(&queue.records[len(queue.records)-1], !it.unread)
}

// reachedLocked removes expected records before offset, which were not read because they are deleted.
func (queues *keyQueues) reachedLocked(offset int64) {
	for len(queues.unread) > 0 && queues.unread[0].offset < offset {
		c := recordCopy{keyOffset: queues.unread[0]}
		queues.unread = queues.unread[1:]
		if queue, i, found := queues.findLocked(&c); found && queue.records[i].unread && queue.records[i].held == nil {
			first := queue.isFirst(i)
			queues.removeLocked(queue, i)
			queues.wakeLocked(c.key, queue, first)
		}
	}
}

// finishLoading sorts the queues, merges copies of one record, and closes ready.
func (queues *keyQueues) finishLoading() {
	queues.mu.Lock()
	defer queues.mu.Unlock()
	for key, queue := range queues.queues {
		slices.SortFunc(queue.records, func(a, b queuedRecord) int {
			return cmp.Or(cmp.Compare(a.offset, b.offset), cmp.Compare(b.attempts, a.attempts), cmp.Compare(b.due, a.due))
		})
		kept := queue.records[:0]
		for _, it := range queue.records {
			if n := len(kept); n == 0 || kept[n-1].offset != it.offset {
				kept = append(kept, it)
				continue
			}
			one := &kept[len(kept)-1]
			one.copies += it.copies
			queues.setOnLevelLocked(&it, false)
			if one.written != it.written {
				queues.addConflictLocked(keyOffset{key, it.offset})
			}
		}
		clear(queue.records[len(kept):])
		queue.records = slices.DeleteFunc(kept, func(it queuedRecord) bool {
			_, known := queues.conflicts[keyOffset{key, it.offset}]
			if known {
				queues.setOnLevelLocked(&it, false)
			}
			return known
		})
		if len(queue.records) == 0 {
			delete(queues.queues, key)
		}
	}
	close(queues.ready)
}
