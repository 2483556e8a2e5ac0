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
	firstNap   = 50 * time.Millisecond // between two glances; each is twice as long as the one before
	longestNap = 400 * time.Millisecond
	// lookTime is how long the look for a free group's messages waits: a receive that
	// waits at all asks all of SQS's servers.
	lookTime = time.Second
)

// groups is which message groups of a FIFO queue this process has in hand. hold and
// release are called under the source's lock.
type groups struct {
	count   map[string]int // messages by group
	none    engine.Gate    // closed while there are any
	glance  time.Duration  // how long a receive takes that is not to wait
	napping atomic.Int64   // pollers
	freed   chan struct{}  // wakes one of them
	missed  chan struct{}  // wakes who looks when nobody naps
}

// newGroups is nil for a standard queue, where nothing is held up; the methods do
// nothing then.
func newGroups(q *queue) *groups {
	if !q.fifo {
		return nil
	}
	g := &groups{count: make(map[string]int), freed: make(chan struct{}, 1), missed: make(chan struct{}, 1)}
	// The SDK leaves out a wait of 0 s, and the queue's own is taken then.
	if own, err := strconv.Atoi(q.attributes["ReceiveMessageWaitTimeSeconds"]); q.unread || err == nil && own > 0 {
		g.glance = time.Second
	}
	return g
}

// coming notes, from any goroutine, that messages are on their way to the lane,
// which may be before it counts them; come takes that back.
func (g *groups) coming() {
	if g != nil {
		g.none.Close()
	}
}

func (g *groups) come() {
	if g != nil {
		g.none.Open()
	}
}

// hold counts a message that came.
func (g *groups) hold(group string) {
	if g == nil {
		return
	}
	g.count[group]++
	if g.count[group] == 1 {
		g.none.Close()
	}
}

// release takes a hold back: the message is deleted, or no longer ours.
func (g *groups) release(group string) {
	if g == nil {
		return
	}
	g.count[group]--
	if g.count[group] > 0 {
		return
	}
	delete(g.count, group)
	g.none.Open()
	g.look()
}

// look has somebody look at the queue, from any goroutine.
func (g *groups) look() {
	if g == nil {
		return
	}
	wake := g.missed
	if g.napping.Load() > 0 {
		wake = g.freed
	}
	select {
	case wake <- struct{}{}:
	default:
	}
}

// pace is how a poller goes about a FIFO queue: how long its last nap was, and more
// than longestNap when it may wait for other groups.
type pace time.Duration

// wait is how long a poller's next receive may wait.
func (g *groups) wait(p pace, patience time.Duration) time.Duration {
	if g == nil || time.Duration(p) > longestNap || !g.none.Closed() {
		return patience
	}
	return g.glance
}

// nap is a poller's rest behind a receive that brought so many messages. It ends
// early when a group is free.
func (g *groups) nap(ctx context.Context, p *pace, found, want int) {
	if g == nil {
		return
	}
	if found > 0 {
		*p = 0
	}
	if found == want || !g.none.Closed() { // there may be more, of other groups
		return
	}
	if *p = max(pace(firstNap), min(2**p, 2*pace(longestNap))); time.Duration(*p) > longestNap {
		return
	}
	g.napping.Add(1)
	defer g.napping.Add(-1)
	timer := time.NewTimer(time.Duration(*p))
	defer timer.Stop()
	select {
	case <-g.none.Opened():
		*p = 0
	case <-g.freed:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// watch looks for the messages of groups that are free while all pollers wait for
// other groups, until ctx ends.
func (s *source) watch(ctx context.Context) {
	pause := newPause()
	defer s.intake.until(ctx)()
	for {
		select {
		case <-s.groups.missed:
		case <-ctx.Done():
			return
		}
		wait := lookTime
		for more := true; more; {
			want, ok := s.intake.take(ctx, 0)
			if !ok {
				return
			}
			found, err := s.fetch(want, wait)
			wait = s.groups.wait(0, lookTime) // the rest may be of a group that has just come into hand
			more = found == want
			if err == nil {
				pause.Reset()
			} else { // a poller tells of it
				more = sleep(ctx, pause.NextBackOff())
			}
		}
	}
}
