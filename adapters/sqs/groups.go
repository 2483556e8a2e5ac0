package sqs

import (
	"context"
	"hash/maphash"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/redeliver/redeliver/adapters/sqs/internal/api"
	"github.com/redeliver/redeliver/internal/engine"
	"github.com/redeliver/redeliver/internal/wait"
)

// While a message of a group is received and not deleted, a FIFO queue delivers nothing else of that group. A receive
// that waits does not notice the deletion: on SQS it waits until its time is over. So pollers do not wait on the
// server for messages that this process itself blocks. While this process holds groups they use short receives, and
// receive at once when a group is free. After a while without messages they use long receives for other groups, and
// watchFreedGroups looks for the messages of freed groups.
const (
	minPause = 50 * time.Millisecond // between two short receives; doubles each time
	maxPause = 400 * time.Millisecond
	// freedGroupWait is the wait of a receive for a freed group. A receive without any wait does not ask all of SQS's
	// servers.
	freedGroupWait = time.Second
)

// groups counts a FIFO queue's held messages by group. addLocked and removeLocked need the source's lock.
type groups struct {
	counts    map[string]int // held messages by group
	empty     engine.Gate    // closed while a group is held
	minWait   time.Duration  // the wait of a short receive
	paused    atomic.Int64   // number of paused pollers
	freed     chan struct{}  // wakes a paused poller
	unwatched chan struct{}  // wakes watchFreedGroups when no poller is paused
}

// newGroups returns nil for a standard queue, which blocks no groups. All methods accept nil.
func newGroups(q *api.Queue) *groups {
	if !q.FIFO {
		return nil
	}
	g := &groups{counts: make(map[string]int), freed: make(chan struct{}, 1), unwatched: make(chan struct{}, 1)}
	// The SDK omits a wait of 0 s, and SQS then uses the queue's own.
	if own, err := strconv.Atoi(q.Attributes["ReceiveMessageWaitTimeSeconds"]); q.AttributesDenied || err == nil && own > 0 {
		g.minWait = time.Second
	}
	return g
}

// addLocked counts a message that came.
func (g *groups) addLocked(group string) {
	if g == nil {
		return
	}
	g.counts[group]++
	if g.counts[group] == 1 {
		g.empty.Close()
	}
}

// removeLocked counts down a message that is deleted or no longer ours.
func (g *groups) removeLocked(group string) {
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

// wakePoller makes a poller or watchFreedGroups receive now. It is safe for concurrent use.
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

// pauseLength is the length of a poller's last pause on a FIFO queue. Above maxPause the poller does not pause:
// receives are long.
type pauseLength time.Duration

// receiveWait returns the wait of a poller's next receive.
func (g *groups) receiveWait(p pauseLength, maxWait time.Duration) time.Duration {
	if g == nil || time.Duration(p) > maxPause || !g.empty.Closed() {
		return maxWait
	}
	return g.minWait
}

// pausePoller pauses a poller after a receive, at most until a group is free.
func (g *groups) pausePoller(ctx context.Context, p *pauseLength, found, want int) {
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

// watchFreedGroups receives messages of freed groups while all pollers wait for other groups, until ctx ends.
func (s *source) watchFreedGroups(ctx context.Context) {
	pause := newReceiveBackoff()
	for {
		select {
		case <-s.groups.unwatched:
		case <-ctx.Done():
			return
		}
		receiveWait := freedGroupWait
		for more := true; more; {
			want, ok := s.intake.reserveRoom(ctx, 0)
			if !ok {
				return
			}
			found, err := s.fetchMessages(want, receiveWait)
			receiveWait = s.groups.receiveWait(0, freedGroupWait) // the rest may belong to a group that was just received
			more = found == want
			if err == nil {
				pause.Reset()
			} else { // a poller reports the error
				more = wait.For(ctx, pause.NextBackOff()) == nil
			}
		}
	}
}

var groupSeed = maphash.MakeSeed()

func groupHash(group string) uint64 { return max(1, maphash.String(groupSeed, group)) }
