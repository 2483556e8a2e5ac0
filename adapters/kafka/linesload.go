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
	"github.com/redeliver/redeliver/delayqueue"
)

// What waits on the levels is known to nobody when a session begins. So before the
// first record of a partition runs, all that the group has not settled there is
// read once, beside the lanes, for keys and origin offsets alone.

// loadPause is how long to wait before what could not be read back is tried again.
const loadPause = time.Second

// load reads back what waits in a partition of the waiting topics, and makes ready.
// It returns an error only when ctx has ended.
func (r *reader) load(ctx context.Context, ls *lines, partition int32) error {
	for told := false; ; told = true {
		err := r.loadAll(ctx, ls, partition)
		if err == nil {
			ls.loaded()
			return nil
		}
		if !told && ctx.Err() == nil {
			r.tell(redeliver.ChangeReadingBack, fmt.Sprintf("partition %d; nothing of it runs before", partition), err)
		}
		timer := time.NewTimer(loadPause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
	}
}

func (r *reader) loadAll(ctx context.Context, ls *lines, partition int32) error {
	topics := map[string][]int32{r.layout.origin: {partition}}
	for topic := range r.levels {
		topics[topic] = []int32{partition}
	}
	committed, err := r.client.admin.committed(r.layout.group, topics)
	if err != nil {
		return err
	}
	ls.clear()
	for _, topic := range slices.Sorted(maps.Keys(r.levels)) {
		found, err := committed.note(topic, partition)
		if err != nil {
			return err
		}
		next := found.offset
		log := logReader{client: r.client.admin.client, topic: topic}
		start, end, err := log.bounds(ctx, partition)
		if err != nil {
			return err
		}
		if next < start || next > end { // as the lane does, whose offset is not valid
			next = start
		}
		for next < end {
			p, err := log.read(ctx, partition, next)
			if err != nil {
				return err
			}
			settled := r.settledBefore(topic, found, next)
			for _, rec := range p.records {
				if isSettled(settled, rec.offset) {
					continue
				}
				ls.load(r.loaded(r.levels[topic], partition, rec))
			}
			if p.end && p.next <= next {
				break // somebody's transaction is open
			}
			next = p.next
		}
		ls.ends[topic] = next
	}
	found, err := committed.note(r.layout.origin, partition)
	if err != nil {
		return err
	}
	return r.loadOrigin(ctx, ls, partition, r.settledBefore(r.layout.origin, found, ls.from))
}

// loadOrigin reads back what stands on the origin unsettled, before something of it
// that waits: all of it, or what was not read might be overtaken. There is no more than
// a span (maxSpan), unless the origin was made anew or the group's
// offsets were set back. Then there may be millions, and behind the first MaxParked only
// those count whose key has something that waits. Each is an item and a place in memory,
// 64 bytes; with what lies spare in lines and maps about 75, and 170 where its key had no
// line yet.
func (r *reader) loadOrigin(ctx context.Context, ls *lines, partition int32, settled []offsetRun) error {
	log := logReader{client: r.client.admin.client, topic: r.layout.origin}
	next, high := ls.from, ls.highest()
	if high < next {
		return nil
	}
	start, end, err := log.bounds(ctx, partition)
	if err != nil {
		return err
	}
	next = max(next, start)
	for n := 0; next < min(end, high); {
		p, err := log.read(ctx, partition, next)
		if err != nil {
			return err
		}
		for _, rec := range p.records {
			if rec.key == nil || rec.offset >= high || isSettled(settled, rec.offset) {
				continue
			}
			at := place{maphash.Bytes(seed, rec.key), rec.offset}
			if n < r.client.cfg.MaxParked || ls.known(at.key) {
				ls.expect(at, originTime(rec.at))
				n++
			}
		}
		if p.end && p.next <= next {
			break
		}
		next = p.next
	}
	return nil
}

// loaded reads a record of a waiting topic as its lane will. ok is false for one
// that has no order.
func (r *reader) loaded(w waitLevel, partition int32, rec fetched) (c lineCopy, due time.Time, ok bool) {
	users, ours := split(rec.headers)
	m := sarama.ConsumerMessage{Key: rec.key, Headers: users, Timestamp: rec.at}
	stay := r.arrive(&m, ours, w)
	c, ok = orderedCopy(&m, &stay, partition)
	return c, stay.State.Due, ok
}

// orderedCopy makes the lineCopy of a record that waits. ok is false for one that has
// no order: it has no key, never stood in this partition of its origin (a delayed
// publish), was dead-lettered before (a replay), or says so.
func orderedCopy(m *sarama.ConsumerMessage, stay *delayqueue.Stay, partition int32) (c lineCopy, ok bool) {
	st := stay.State
	if m.Key == nil || stay.Publish || !st.Source.Known || st.Source.Partition != partition || st.Replays > 0 || st.Reason != "" {
		return lineCopy{}, false
	}
	return lineCopy{place: place{maphash.Bytes(seed, m.Key), st.Source.Offset}, at: originTime(st.Source.Timestamp), attempts: int32(st.Attempts)}, true
}

// originTime is a record's time in its origin as headers have it.
func originTime(t time.Time) int64 {
	if t.UnixMilli() > 0 { // producers that have no clock write 0 or -1
		return t.UnixMilli()
	}
	return 0
}

// clear forgets what was loaded.
func (ls *lines) clear() {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for _, ln := range ls.keys {
		for i := range ln.items {
			ls.onLevel(&ln.items[i], false)
		}
	}
	clear(ls.keys)
	clear(ls.ends)
	ls.high, ls.unread = -1, nil
}

// load adds a copy that waits. Lines are put in order by loaded.
func (ls *lines) load(c lineCopy, due time.Time, ok bool) {
	if !ok {
		return
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.high = max(ls.high, c.offset)
	ls.append(c.key, item{offset: c.offset, at: c.at, attempts: c.attempts, due: due.UnixMilli(), copies: 1})
}

// known reports whether a key has a line.
func (ls *lines) known(key uint64) bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return ls.keys[key] != nil
}

// expect adds a record that the origin's lane will come to.
func (ls *lines) expect(p place, at int64) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.unread = append(ls.unread, p)
	ls.append(p.key, item{offset: p.offset, at: at, unread: true})
}

func (ls *lines) append(key uint64, it item) {
	ln := ls.keys[key]
	if ln == nil {
		ln = new(line)
		ls.keys[key] = ln
	}
	ln.items = append(ln.items, it)
	ls.onLevel(&ln.items[len(ln.items)-1], !it.unread)
}

// reached forgets what was expected before an offset and is not there any more.
func (ls *lines) reached(offset int64) {
	for len(ls.unread) > 0 && ls.unread[0].offset < offset {
		c := lineCopy{place: ls.unread[0]}
		ls.unread = ls.unread[1:]
		if ln, i, found := ls.find(&c); found && ln.items[i].unread && ln.items[i].hand == nil {
			first := ln.isFirst(i)
			ls.remove(ln, i)
			ls.wake(c.key, ln, first)
		}
	}
}

// loaded puts the lines in order, copies of one record together, and opens them.
func (ls *lines) loaded() {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for key, ln := range ls.keys {
		slices.SortFunc(ln.items, func(a, b item) int {
			return cmp.Or(cmp.Compare(a.offset, b.offset), cmp.Compare(b.attempts, a.attempts), cmp.Compare(b.due, a.due))
		})
		kept := ln.items[:0]
		for _, it := range ln.items {
			if n := len(kept); n == 0 || kept[n-1].offset != it.offset {
				kept = append(kept, it)
				continue
			}
			one := &kept[len(kept)-1]
			one.copies += it.copies
			ls.onLevel(&it, false)
			if one.at != it.at {
				ls.noteStray(place{key, it.offset})
			}
		}
		clear(ln.items[len(kept):])
		ln.items = slices.DeleteFunc(kept, func(it item) bool {
			_, known := ls.strays[place{key, it.offset}]
			if known {
				ls.onLevel(&it, false)
			}
			return known
		})
		if len(ln.items) == 0 {
			delete(ls.keys, key)
		}
	}
	close(ls.ready)
}
