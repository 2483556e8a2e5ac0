package redelivertest

import (
	"slices"

	"github.com/redeliver/redeliver"
)

// A broker knows which messages a process had when it was killed, but not which of them killed it. So all of them are
// suspects: from then on each runs alone, while the client runs nothing else. A crash counts only for a message that ran alone
// when its process died. After Policy.MaxCrashes crashes the message goes to the DLQ.

// mayRunLocked reports whether an item may run now, beside the other items that the client runs.
func (c *memberClient) mayRunLocked(it *item) bool {
	if s := c.nextSuspectLocked(); s != nil {
		return it == s && c.running == 0
	}
	return c.alone == nil && !it.suspect // a suspect that a pause holds back is not next
}

// nextSuspectLocked returns the suspect that runs next, or nil. Those with the fewest crashes come first, so that a message that
// kills its process does not delay the others for long. Nothing waits for a suspect that a pause holds back, or that is behind
// another message of its key.
func (c *memberClient) nextSuspectLocked() (next *item) {
	if !c.b.crashed {
		return nil
	}
	for _, r := range c.b.readers {
		if r.client != c {
			continue
		}
		ahead := map[keyLock]bool{} // the keys of the items so far
		for _, it := range r.q.items {
			l, locks := r.lockOf(it)
			waits := locks && ahead[l]
			if r.sub.Policy.Order == redeliver.OrderThroughRetries {
				waits = r.q.waitsForKeyLocked(it, func(*item) bool { return false })
			}
			if ahead[l] = locks; waits {
				continue
			}
			if it.suspect && !it.handlerRuns && !it.reachedMaxCrashes(r) && !r.q.holdsBack(it) && (it.owner == nil || it.owner == r) && (next == nil || it.crashes < next.crashes) {
				next = it
			}
		}
	}
	return next
}

// reachedMaxCrashes reports whether an item goes to the DLQ because of its crashes, so that nothing waits for it.
func (it *item) reachedMaxCrashes(r *reader) bool { return it.crashes >= r.sub.Policy.MaxCrashes }

// Kill ends the client as SIGKILL would, as far as the broker can see. From now on the client
// settles and writes nothing, the next member of its group gets its messages, and its sink gets no
// more events. A crash counts for a message that ran alone. Kill does not wait for handlers: their
// contexts end, and their answers are ignored.
func (c *Client) Kill() { c.service.kill() }

func (c *memberClient) kill() {
	c.b.mu.Lock()
	c.killed, c.closed, c.b.crashed = true, true, true
	var ran []*item
	var mine []*reader
	for _, r := range c.b.readers {
		if r.client != c {
			continue
		}
		mine = append(mine, r)
		for _, it := range r.q.items {
			if it.owner != r {
				continue
			}
			if it.handlerRuns {
				ran = append(ran, it)
			}
			r.q.freeLocked(it)
		}
	}
	for _, it := range ran {
		it.addCrash(len(ran) == 1)
	}
	c.alone = nil
	c.b.readers = slices.DeleteFunc(c.b.readers, func(r *reader) bool { return r.client == c })
	c.b.wakeAllLocked()
	c.b.mu.Unlock()
	for _, r := range mine {
		close(r.killed)
	}
}

// addCrash records that a process died while it ran the item.
func (it *item) addCrash(alone bool) {
	it.suspect = true
	if alone {
		it.crashes++
	}
}
