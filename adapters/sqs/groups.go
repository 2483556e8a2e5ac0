package sqs

import (
	"context"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/redeliver/redeliver/internal/engine"
)

// While a message of a group is received and not yet deleted, a FIFO queue shows
// nothing else of that group, and a receive that is waiting when this ends is not
// told: on SQS it waits until its time is over. So nobody waits there for what
// this process itself holds up. While it has groups in hand its pollers only
// glance at the queue, and at once when a group is free; only after a while in
// which nothing came do they wait for other groups, and somebody else looks then
// when a group is free.
const (
	minPause = 50 * time.Millisecond // between two glances; each is twice as long as the one before
	maxPause = 400 * time.Millisecond
	// freedGroupWait is how long the look for a free group's messages waits: a receive that
	// waits at all asks all of SQS's servers.
	freedGroupWait = time.Second
)

// groups is which message groups of a FIFO queue this process has in hand. hold and
// release are called under the source's lock.
type groups struct {
	counts    map[string]int // messages by group
	empty     engine.Gate    // closed while there are any
	minWait   time.Duration  // how long a receive takes that is not to wait
	paused    atomic.Int64   // pollers
	freed     chan struct{}  // wakes one of them
	unwatched chan struct{}  // wakes who looks when nobody naps
}

// newGroups is nil for a standard queue, where nothing is held up; the methods do
// nothing then.
func newGroups(q *queue) *groups {
	if !q.fifo {
		return nil
	}
	g := &groups{counts: make(map[string]int), freed: make(chan struct{}, 1), unwatched: make(chan struct{}, 1)}
	// The SDK leaves out a wait of 0 s, and the queue's own is taken then.
	if own, err := strconv.Atoi(q.attributes["ReceiveMessageWaitTimeSeconds"]); q.attributesDenied || err == nil && own > 0 {
		g.minWait = time.Second
	}
	return g
}

// expectMessages notes, from any goroutine, that messages are on their way to the lane,
// which may be before it counts them; come takes that back.
func (g *groups) expectMessages() {
	if g != nil {
		g.empty.Close()
	}
}

func (g *groups) messagesArrived() {
	if g != nil {
		g.empty.Open()
	}
}

// add counts a message that came.
func (g *groups) add(group string) {
	if g == nil {
		return
	}
	g.counts[group]++
	if g.counts[group] == 1 {
		g.empty.Close()
	}
}

// remove takes a hold back: the message is deleted, or no longer ours.
func (g *groups) remove(group string) {
	if g == nil {
		return
	}
	g.counts[group]--
	if g.counts[group] > 0 {
		return
	}
	delete(g.counts, group)
	g.empty.Open()
	g.wakePoller()
}

// wakePoller has somebody look at the queue, from any goroutine.
func (g *groups) wakePoller() {
	if g == nil {
		return
	}
	wake := g.unwatched
	if g.paused.Load() > 0 {
		wake = g.freed
	}
	select {
	case wake <- struct{}{}:
	default:
	}
}

// pauseLength is how a poller goes about a FIFO queue: how long its last nap was, and more
// than maxPause when it may wait for other groups.
type pauseLength time.Duration

// receiveWait is how long a poller's next receive may wait.
func (g *groups) receiveWait(p pauseLength, maxWait time.Duration) time.Duration {
	if g == nil || time.Duration(p) > maxPause || !g.empty.Closed() {
		return maxWait
	}
	return g.minWait
}

// pause is a poller's rest behind a receive that brought so many messages. It ends
// early when a group is free.
func (g *groups) pause(ctx context.Context, p *pauseLength, found, want int) {
	if g == nil {
		return
	}
	if found > 0 {
		*p = 0
	}
	if found == want || !g.empty.Closed() { // there may be more, of other groups
		return
	}
	if *p = max(pauseLength(minPause), min(2**p, 2*pauseLength(maxPause))); time.Duration(*p) > maxPause {
		return
	}
	g.paused.Add(1)
	defer g.paused.Add(-1)
	timer := time.NewTimer(time.Duration(*p))
	defer timer.Stop()
	select {
	case <-g.empty.Opened():
		*p = 0
	case <-g.freed:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// watchFreedGroups looks for the messages of groups that are free while all pollers wait for
// other groups, until ctx ends.
func (s *source) watchFreedGroups(ctx context.Context) {
	pause := newPause()
	defer s.intake.wakeAtEnd(ctx)()
	for {
		select {
		case <-s.groups.unwatched:
		case <-ctx.Done():
			return
		}
		wait := freedGroupWait
		for more := true; more; {
			want, ok := s.intake.reserve(ctx, 0)
			if !ok {
				return
			}
			found, err := s.fetchMessages(want, wait)
			wait = s.groups.receiveWait(0, freedGroupWait) // the rest may be of a group that has just come into hand
			more = found == want
			if err == nil {
				pause.Reset()
			} else { // a poller tells of it
				more = sleep(ctx, pause.NextBackOff())
			}
		}
	}
}
