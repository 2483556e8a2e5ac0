package kafka

import "time"

// What is written to a delay topic is not due before its level is over, so it
// need not be read at once. A lane that has read all there is pauses for a part
// of its level: the records come in large fetches instead of one by one, and the
// fetches for the origin carry fewer partitions. On a busy group this halves what
// the broker has to do.
type nap struct {
	every time.Duration // how long a nap lasts when there was nothing to read; 0 for none
	idle  time.Duration // how long to wait for a first record when awake
	until time.Time     // asleep till then
	since time.Time     // awake since
	read  int64         // the last offset that was read
	seen  int64         // read, when it fell asleep
}

// Bounds of a nap. A level that is too short for one is read all the time.
const (
	shortestNap = 100 * time.Millisecond
	longestNap  = time.Second
	// idle is how long a lane that is awake waits for a first record: a fetch
	// that was under way when it woke, and one of its own.
	idle = 150 * time.Millisecond
)

// newNap makes the nap for a level; wait is how long a fetch may wait for records.
func newNap(level, wait time.Duration) nap {
	n := nap{every: min(level/4, longestNap), idle: max(idle, 3*wait), since: time.Now(), read: -1, seen: -1}
	if n.every < max(shortestNap, wait) {
		n.every = 0
	}
	return n
}

// asleep tells whether the nap goes on.
func (n *nap) asleep(now time.Time) bool { return now.Before(n.until) }

func (n *nap) wake(now time.Time) { n.since = now }

// sleep begins a nap: a short one where records come. What is read at one go
// delays what is due meanwhile, so it must not be much.
func (n *nap) sleep(now time.Time) {
	d := n.every
	if n.read > n.seen {
		d = shortestNap
	}
	n.until, n.seen = now.Add(d), n.read
}

// tired tells whether there is nothing left to read. end is the end of the
// partition as the last fetch with records in it saw it.
func (n *nap) tired(end int64) bool {
	if n.every == 0 {
		return false
	}
	if n.read > n.seen || n.read >= 0 && n.read+1 < end {
		return n.read+1 >= end
	}
	return time.Since(n.since) > n.idle
}
