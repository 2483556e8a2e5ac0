package kafka

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/deadletter"
)

const (
	// trimEvery is how often a claim gives back what is settled, while it works.
	trimEvery = 10 * time.Second
	// keptTasks is how many tasks the history has.
	keptTasks = 100
)

// Settle implements [deadletter.Claim]. Neighbours of which the same became are
// one record.
func (c *deadClaim) Settle(ctx context.Context, t deadletter.Task, done []deadletter.Settlement) error {
	if err := c.check(); err != nil {
		return err
	}
	type spanOf struct {
		partition int32
		span      span
	}
	var all []spanOf
	for _, s := range sorted(done) {
		p, ok := s.Message.Native.(deadPlace)
		if !ok {
			return fmt.Errorf("kafka: message %s at %s was read by another adapter (%T)", s.Message.ID, s.Message.Position, s.Message.Native)
		}
		if len(all) > 0 {
			last := &all[len(all)-1]
			if last.partition == p.partition && last.span.Through+1 == p.from && last.span.Outcome == s.Outcome {
				last.span.Through = p.offset
				last.span.First, last.span.Last = min(last.span.First, p.at), max(last.span.Last, p.at)
				continue
			}
		}
		all = append(all, spanOf{p.partition, span{From: p.from, Through: p.offset, First: p.at, Last: p.at, Outcome: s.Outcome, Task: t.ID}})
	}
	entries := make([]stateEntry, 0, len(all))
	for _, s := range all {
		e, err := jsonEntry(spanKey(s.partition, &s.span), s.span)
		if err != nil {
			return err
		}
		entries = append(entries, e)
	}
	saved, err := c.saved(t)
	if err != nil {
		return err
	}
	if err := c.note(ctx, append(entries, saved...)...); err != nil {
		return err
	}
	c.q.mu.Lock()
	for _, s := range all { // they will be read again, to the same end
		if s.span.Outcome.Out() {
			c.q.ledger.out[s.partition] = c.q.ledger.out[s.partition].put(s.span)
		} else {
			c.q.ledger.marks[s.partition] = c.q.ledger.marks[s.partition].put(s.span)
		}
	}
	c.q.mu.Unlock()
	if time.Since(c.trimmed) > trimEvery {
		c.trim(ctx)
	}
	return nil
}

// sorted orders settlements by place.
func sorted(done []deadletter.Settlement) []deadletter.Settlement {
	byPlace := func(x, y deadletter.Settlement) int {
		a, _ := x.Message.Native.(deadPlace) // looked at later
		b, _ := y.Message.Native.(deadPlace)
		if a.partition != b.partition {
			return int(a.partition - b.partition)
		}
		return int(min(1, max(-1, a.offset-b.offset)))
	}
	if slices.IsSortedFunc(done, byPlace) { // as they were read
		return done
	}
	done = slices.Clone(done)
	slices.SortStableFunc(done, byPlace)
	return done
}

func spanKey(partition int32, s *span) string {
	if s.Outcome.Out() {
		return placeKey(partition, s.From)
	}
	return placeKey(partition, s.From) + markSuffix
}

// Save implements [deadletter.Claim].
func (c *deadClaim) Save(ctx context.Context, t deadletter.Task) error {
	if err := c.check(); err != nil {
		return err
	}
	entries, err := c.saved(t)
	if err != nil {
		return err
	}
	return c.note(ctx, entries...)
}

// saved is a task as it is recorded, and the end of those that are too old.
func (c *deadClaim) saved(t deadletter.Task) ([]stateEntry, error) {
	e, err := jsonEntry(taskPrefix+t.ID, t)
	if err != nil {
		return nil, err
	}
	entries := []stateEntry{e}
	c.q.mu.Lock()
	defer c.q.mu.Unlock()
	for i, old := range c.q.ledger.tasks {
		if i < len(c.q.ledger.tasks)-keptTasks && !old.Open() && old.ID != t.ID {
			entries = append(entries, entryOf(taskPrefix+old.ID, nil), entryOf(wantPrefix+old.ID, nil))
		}
	}
	return entries, nil
}

// reach is what a claim has seen of a partition with its own eyes: all from start
// to seen. Only there may records be deleted.
type reach struct{ start, seen int64 }

func (c *deadClaim) begin(partition int32, start int64) { c.reach[partition] = reach{start, start} }

// saw is called for every record in order, settled or not.
func (c *deadClaim) saw(partition int32, next int64) {
	if r, ok := c.reach[partition]; ok && next > r.seen {
		c.reach[partition] = reach{r.start, next}
	}
}

// trim gives the settled beginning of the DLQ back to the broker, and then, not
// before, forgets what became of it. A cluster that does not let us keeps the
// records: that costs disk, not messages, and is told.
func (c *deadClaim) trim(ctx context.Context) {
	c.trimmed = time.Now()
	below := make(map[int32]int64)
	var forgotten []stateEntry
	c.q.mu.Lock()
	for p, r := range c.reach {
		upTo := r.start // what the broker has dropped by itself is forgotten, too
		if end := min(r.seen, c.q.ledger.prefix(p, r.start)); end > r.start && !c.q.foreign {
			upTo, below[p] = end, end
		}
		for _, s := range slices.Concat(c.q.ledger.out[p], c.q.ledger.marks[p]) {
			if s.Through < upTo {
				forgotten = append(forgotten, entryOf(spanKey(p, &s), nil))
			}
		}
	}
	c.q.mu.Unlock()
	if len(below)+len(forgotten) == 0 {
		return
	}
	var err error
	if len(below) > 0 {
		err = c.q.c.admin.sarama.DeleteRecords(c.q.info.DLQ, below)
	}
	if err == nil {
		for p, offset := range below {
			c.reach[p] = reach{offset, c.reach[p].seen}
		}
		err = c.note(ctx, forgotten...)
	}
	if err != nil {
		c.q.c.cfg.Sink.Event(redeliver.SubscriptionChanged{
			Origin: c.q.info.Origin, Group: c.q.info.Group, Change: redeliver.ChangeDLQNotEmptied,
			Detail: "grant Delete on " + c.q.info.DLQ, Err: err,
		})
	}
}
