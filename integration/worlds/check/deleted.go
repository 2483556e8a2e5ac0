package check

import (
	"math"
	"slices"
	"strings"
	"time"

	"github.com/redeliver/redeliver/integration/chaos/history"
	"github.com/redeliver/redeliver/integration/worlds/plan"
)

// deletion is a copy of a message that a word has deleted: the message on its origin, or a copy on a level.
type deletion struct {
	at      int64
	topic   string
	place   string // topic/partition/offset
	attempt int    // after so many attempts
	skipped bool   // it is there, but the group does not read it
}

func (d deletion) partition() string { return d.place[:strings.LastIndexByte(d.place, '/')] }

func (c *checker) readDeleted(l history.Line) {
	o := c.originals[l.ID]
	if o == nil {
		return // another program wrote it
	}
	for i, s := range c.world.Services {
		if l.Load == s.Group || (l.Load == "" || o.plan.Delay > 0) && slices.Contains(s.Topics, o.plan.Topic) {
			k := messageKey{i, l.ID}
			c.deletions[k] = append(c.deletions[k], deletion{l.At, l.Name, l.Target, l.Attempt, l.What == Skipped})
		}
	}
}

// wasDeleted returns the deletion of a copy that a message without an end needed, or nil: it has an end, or the group had
// confirmed a later copy.
func (c *checker) wasDeleted(m *message) *deletion {
	if len(m.dead) > 0 || slices.ContainsFunc(m.runs, func(r *run) bool { return r.outcome == string(plan.OK) }) {
		return nil
	}
	all := c.deletions[m.key]
	if at := c.skipsUntil(m.key.service, m.plan.Topic); m.written != 0 && m.written <= at {
		all = append(slices.Clip(all), deletion{at: at, topic: m.plan.Topic, place: "/", skipped: true})
	}
	for _, d := range all {
		if c.world.RealTime && !c.wasIn(m, d) {
			continue
		}
		if c.world.RealTime || !slices.ContainsFunc(c.events, func(e history.Line) bool { return c.movedOn(m, d, e) }) {
			return &d
		}
	}
	return nil
}

// wasIn reports whether a message may have been in a queue when that was deleted, where the driver does not know it: in its
// origin until an event says that it has left it; afterwards in the queue that an event names, or in any level or the retry
// queue, if an event names one of these.
func (c *checker) wasIn(m *message, d deletion) bool {
	kind := func(place string) string {
		if retry, ok := strings.CutPrefix(place, m.plan.Topic+".retry"); ok && (retry == "" || retry[0] == '.') {
			return "retry"
		}
		return place
	}
	left := false
	for _, e := range c.events {
		to := placeOf(e)
		if e.At > d.at || !c.concerns(e, m) || to == m.plan.Topic || !slices.Contains([]string{"RetryScheduled", "MessagePostponed", "Hopped", "DeadLettered"}, e.What) {
			continue
		}
		if left = true; kind(to) == kind(d.topic) {
			return true
		}
	}
	return d.topic == m.plan.Topic && !left
}

// skipsUntil returns the time before which the existing messages of a topic were written that a service skips: its group began, for
// the first time or after its offsets had expired.
func (c *checker) skipsUntil(service int, topic string) (until int64) {
	s := c.world.Services[service]
	if !s.SkipExisting {
		return 0
	}
	begins := true
	for _, e := range c.events {
		switch {
		case e.Load != s.Group:
		case e.What == "done: "+plan.ExpireOffsets:
			begins = true
		case e.What == "assigned" && e.Target == topic && begins:
			begins, until = false, e.At
		}
	}
	if begins {
		return math.MaxInt64
	}
	return until
}

// resets counts how often a service's offsets were deleted or reset, or its DLQ was replayed, after a moment. Messages that had
// settled before may run again.
func (c *checker) resets(service int, after int64) (n int) {
	for _, e := range c.events {
		if (e.What == "done: "+plan.ExpireOffsets || e.What == "done: "+plan.ResetOffsets) && c.groups[e.Load] == service && e.At >= after {
			n++
		}
	}
	for _, f := range c.faults {
		if f.what == plan.Replay && c.groups[f.target] == service && (f.to == 0 || f.to >= after) {
			n++
		}
	}
	return n
}

// replayed reports whether a service's DLQ was replayed before a moment: a message's age counts from then, and its own deadline no
// longer counts.
func (c *checker) replayed(service int, before int64) bool {
	return slices.ContainsFunc(c.faults, func(f fault) bool {
		return f.what == plan.Replay && c.groups[f.target] == service && f.from <= before
	})
}

// checkReplays checks that each message that was in a DLQ runs again after a whole replay. The first one of a world is enough: later
// ones leave out messages that were replayed too often.
func (c *checker) checkReplays() {
	for _, f := range c.faults {
		if slices.Contains([]string{plan.Purge, plan.DeleteDLQ}, f.what) {
			return
		}
	}
	i := slices.IndexFunc(c.faults, func(f fault) bool { return f.what == plan.Replay })
	if i < 0 {
		return
	}
	f := c.faults[i]
	j := slices.IndexFunc(c.events, func(e history.Line) bool {
		return e.What == "done: "+plan.Replay && e.Load == f.target && e.At >= f.from
	})
	if j < 0 || f.to != 0 && c.events[j].At > f.to {
		return // it was not done
	}
	for k, m := range c.messages {
		if k.service != c.groups[f.target] || m.plan.Topic != c.events[j].Target {
			continue
		}
		was := slices.ContainsFunc(c.events, func(e history.Line) bool { return e.What == "DeadLettered" && c.concerns(e, m) && e.At < f.from })
		again := slices.ContainsFunc(m.runs, func(r *run) bool { return r.begin >= f.from }) ||
			slices.ContainsFunc(c.events, func(e history.Line) bool { return e.What == "DeadLettered" && c.concerns(e, m) && e.At >= f.from })
		if was && !again {
			c.violatef(history.Lost, k.id, "it was replayed at %s, and did not run again: %s", time.Duration(f.from-c.start).Round(time.Millisecond), c.describe(m))
		}
	}
}

// copiesReset counts the copies on levels of a message that failed so often, whose offsets were deleted or reset later.
func (c *checker) copiesReset(m *message, failed int) (n int) {
	for _, e := range c.events {
		if e.Name == m.name && e.Attempt == failed && slices.Contains([]string{"RetryScheduled", "Hopped", "MessagePostponed"}, e.What) {
			n += c.resets(m.key.service, e.At)
		}
	}
	return n
}

// movedOn reports whether an event confirms a later copy of a message than the deleted one, on another topic.
func (c *checker) movedOn(m *message, d deletion, e history.Line) bool {
	if !c.concerns(e, m) {
		return false
	}
	switch to := placeOf(e); e.What {
	case "RetryScheduled", "DeadLettered", "MessagePostponed":
		return to != "" && to != d.topic && to != m.plan.Topic && (e.Attempt > d.attempt || d.topic == m.plan.Topic)
	case "Hopped":
		return d.topic != to && e.At <= d.at && (m.plan.Delay == 0 || d.topic != m.plan.Topic) && !slices.ContainsFunc(c.events, func(later history.Line) bool {
			return c.concerns(later, m) && placeOf(later) == d.topic && later.At >= e.At && later.At <= d.at
		})
	default:
		return false
	}
}

// concerns reports whether an event is about a message.
func (c *checker) concerns(e history.Line, m *message) bool {
	p := c.processes[e.Process]
	return m.name != "" && e.Name == m.name && p != nil && p.service == m.key.service
}

// placeOf returns where an event says that a message waits.
func placeOf(e history.Line) string {
	if e.What == "Hopped" {
		_, to, _ := strings.Cut(e.Target, " to ")
		return to
	}
	return e.Target
}

// checkLost checks a message without an end: an administrator has deleted it, and an event reports that.
func (c *checker) checkLost(m *message, what string) {
	d := c.wasDeleted(m)
	if d == nil {
		c.violatef(history.Lost, m.key.id, "%s: %s", what, c.describe(m))
		return
	}
	if d.skipped {
		return
	}
	lost := int64(0) // with it
	for k := range c.deletions {
		if k.service == m.key.service {
			other := c.messages[k]
			if other == nil {
				other = &message{original: c.originals[k.id], key: k}
			}
			if o := c.wasDeleted(other); o != nil && o.at == d.at && o.partition() == d.partition() {
				lost++
			}
		}
	}
	group := c.world.Services[m.key.service].Group
	told := slices.ContainsFunc(c.events, func(e history.Line) bool {
		return e.What == "MessagesLost" && (e.Load == group || m.plan.Delay > 0) && e.At >= d.at && (e.Target == d.topic || e.Target == d.partition() && e.Offset >= lost)
	})
	if !told && c.couldTell(m.key.service, d) {
		c.violatef(Untold, m.key.id, "%d messages of %s were deleted at %s, and no event says so: %s",
			lost, d.partition(), time.Duration(d.at-c.start).Round(time.Millisecond), c.describe(m))
	}
}

// couldTell reports whether a process of a service lived long enough after a deletion to notice it, without a fault.
func (c *checker) couldTell(service int, d *deletion) bool {
	until := d.at + int64(noticed)
	for _, f := range c.faults {
		if f.from <= until && (f.to == 0 || f.to+int64(linger) >= d.at) && !strings.HasPrefix(f.what, "delete") && !slices.Contains(harmless, f.what) {
			return false
		}
	}
	if slices.ContainsFunc(c.events, func(e history.Line) bool {
		return e.What == "ended" && c.groups[e.Load] == service && e.At >= d.at-int64(noticed) && e.At <= until
	}) {
		return false
	}
	for _, p := range c.processes {
		if p.service == service && p.started < d.at-int64(rebalanceTimeout) && (p.stopped == 0 || p.stopped > until) && (p.killed == 0 || p.killed > until) {
			return true
		}
	}
	return false
}

// deletedBefore reports whether a copy of a message was deleted before another one began: a new owner of the partition does not
// find it, although the last one may still run it.
func (c *checker) deletedBefore(a, b *message) bool {
	return slices.ContainsFunc(c.deletions[a.key], func(d deletion) bool { return d.at <= b.runs[0].begin })
}

// inNewLog reports whether two messages have no order because their origin was created again: members read the new log from their
// old position until they notice it, and OrderThroughRetries cannot order a message if another of its key had its offset in the other log.
func (c *checker) inNewLog(a, b *message) bool {
	if slices.ContainsFunc(c.faults, func(f fault) bool {
		return f.what == plan.DeleteOrigin && f.from <= b.runs[0].begin && (f.to == 0 || b.runs[0].begin <= f.to+int64(noticed))
	}) {
		return true
	}
	for _, o := range c.originals {
		for _, m := range []*message{a, b} {
			if o != m.original && o.plan.Topic == m.plan.Topic && o.plan.Key == m.plan.Key && o.partition == m.partition && o.offset == m.offset && o.written != 0 {
				return true
			}
		}
	}
	return false
}

// log returns how often a message's origin had been deleted when it was written.
func (c *checker) log(o *original) (n int) {
	at := o.written
	for k, all := range c.deletions {
		if k.id != o.plan.ID {
			continue
		}
		for _, d := range all {
			if d.topic == o.plan.Topic {
				at = min(at, d.at)
			}
		}
	}
	for _, e := range c.events {
		if e.What == "done: "+plan.DeleteOrigin && e.Target == o.plan.Topic && e.At <= at {
			n++
		}
	}
	return n
}
