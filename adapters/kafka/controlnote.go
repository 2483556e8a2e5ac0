package kafka

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/redeliver/redeliver/deadletter"
)

type countKey struct {
	id string
	at waitPlace
}

// greet writes that a member has begun to read commands. Whether it may write, and
// read, is known then, and not only with the first command.
func (c *control) greet(ctx context.Context) error {
	e, err := jsonEntry(seenKey, seen{Began: time.Now().UTC().Truncate(time.Millisecond)})
	if err != nil {
		return err
	}
	return c.r.client.note(ctx, c.r.layout.control.name, e)
}

// tally counts what a command has done.
func (c *control) tally(id string, at waitPlace, do func(*progress)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := countKey{id, at}
	p := c.counts[key]
	if p == nil {
		known := c.book.progress[id][at]
		p = &known
		c.counts[key] = p
	}
	do(p)
	p.Updated = time.Now().UTC().Truncate(time.Millisecond)
	c.dirty[key] = struct{}{}
}

// save writes what was counted since the last time.
func (c *control) save(ctx context.Context, more ...stateEntry) error {
	c.mu.Lock()
	entries, keys := more, make([]countKey, 0, len(c.dirty))
	for key := range c.dirty {
		if !slices.ContainsFunc(c.book.commands, func(cmd deadletter.Command) bool { return cmd.ID == key.id }) {
			delete(c.counts, key) // it was withdrawn
			continue
		}
		e, err := jsonEntry(progressKey(key.id, key.at), c.counts[key])
		if err != nil {
			c.mu.Unlock()
			return err
		}
		entries, keys = append(entries, e), append(keys, key)
	}
	clear(c.dirty)
	c.mu.Unlock()
	if len(entries) == 0 {
		return nil
	}
	err := c.r.client.note(ctx, c.r.layout.control.name, entries...)
	if err != nil {
		c.mu.Lock()
		for _, key := range keys {
			if c.counts[key] != nil {
				c.dirty[key] = struct{}{}
			}
		}
		c.mu.Unlock()
	}
	return err
}

// tidy forgets, of the partitions that we read, what is settled below the committed
// offset: it is never read again.
func (c *control) tidy(ctx context.Context) error {
	partitions := make(map[string][]int32)
	c.mu.Lock()
	for a := range c.aheads {
		if a.some.Load() {
			partitions[a.topic] = append(partitions[a.topic], a.at.partition)
		}
	}
	c.mu.Unlock()
	if len(partitions) == 0 {
		return nil
	}
	committed, err := c.r.client.admin.committed(c.r.layout.group, partitions)
	if err != nil {
		return err
	}
	var forgotten []stateEntry
	c.mu.Lock()
	for a := range c.aheads {
		if !a.some.Load() {
			continue
		}
		offset, oerr := committed.of(a.topic, a.at.partition)
		err = errors.Join(err, oerr)
		below, ok := a.below(offset)
		if oerr != nil || !ok {
			continue
		}
		for _, ref := range a.forget(below) {
			forgotten = append(forgotten, entryOf(blockKey(a.at, ref), nil))
		}
	}
	c.mu.Unlock()
	if len(forgotten) == 0 {
		return err
	}
	return errors.Join(err, c.r.client.note(ctx, c.r.layout.control.name, forgotten...))
}

// below is up to where nothing is read any more, given what is committed. That may be
// from another life of the topic: the lane's mark is not. ok is false where the lane
// has ended.
func (a *ahead) below(committed int64) (offset int64, ok bool) {
	mark, ok := a.c.r.owned.markOf(a.topic, a.at.partition)
	return min(committed, mark), ok
}
