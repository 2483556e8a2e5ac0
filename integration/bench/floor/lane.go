package floor

import (
	"container/heap"
	"time"

	"github.com/IBM/sarama"
)

const (
	commitEvery = 200 * time.Millisecond
	// drainTimeout bounds how long running handlers may take when the partition goes to another member.
	drainTimeout = 10 * time.Second

	// maxAhead is how many records of a partition may be with workers or on their way to their next place. A lane that
	// has so many begins nothing until half of them are settled. maxHeld is how many may wait for their time. Above
	// that the partition is paused, until few or only those that are due soon are left.
	maxAhead  = 128
	maxHeld   = 4096
	resumeAt  = 1024
	resumeDue = time.Second
)

// entry is one record that was read and is not settled.
type entry struct {
	lane     *lane
	record   *sarama.ConsumerMessage
	attempts int       // that have ended
	due      time.Time // zero for a first delivery
	settled  bool      // guarded by the tracker's lock
}

// lane reads one partition, of the topic or of the level. It belongs to the goroutine of ConsumeClaim.
type lane struct {
	c       *consumer
	sess    sarama.ConsumerGroupSession
	claim   sarama.ConsumerGroupClaim
	level   bool
	out     chan<- *entry
	tracker *tracker
	held    dueHeap // that are not due, or have no room ahead
	full    bool
	paused  bool
}

// ConsumeClaim implements [sarama.ConsumerGroupHandler].
func (c *consumer) ConsumeClaim(sess sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	l := &lane{c: c, sess: sess, claim: claim, level: claim.Topic() != c.Topic, out: c.first, tracker: newTracker()}
	if l.level {
		l.out = c.again
	}
	l.resume() // a pause outlives its session
	l.run()
	l.drain()
	return nil
}

func (l *lane) run() {
	commits := time.NewTicker(commitEvery)
	defer commits.Stop()
	var armed time.Time
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		messages := l.claim.Messages()
		if l.isFull() && !l.level { // a level is read on, and paused when too much of it is held
			messages = nil
		}
		if next := l.nextDue(); !next.Equal(armed) {
			armed = next
			timer.Reset(time.Until(next))
		}
		select {
		case record, ok := <-messages:
			if !ok {
				return
			}
			l.read(record)
		case <-l.tracker.bell: // there is room
		case <-timer.C:
			armed = time.Time{}
		case <-commits.C:
			l.commit()
		case <-l.sess.Context().Done():
			return
		}
		l.begin()
		l.pauseOrResume()
	}
}

// read takes a record in hand: from here on no commit passes it.
func (l *lane) read(record *sarama.ConsumerMessage) {
	e := &entry{lane: l, record: record}
	l.tracker.add(e)
	if l.level {
		e.attempts, e.due = parseWaiting(record.Headers)
		heap.Push(&l.held, e)
		return
	}
	l.give(e)
}

func (l *lane) give(e *entry) {
	select {
	case l.out <- e:
	case <-l.sess.Context().Done(): // it is not settled, and comes again
		heap.Push(&l.held, e)
	}
}

func (l *lane) inFlight() int { return l.tracker.unsettled() - len(l.held) }

// isFull reports whether nothing may begin now. The bell rings when something may again.
func (l *lane) isFull() bool {
	most := maxAhead
	if l.full {
		most = maxAhead / 2
	}
	if l.full = l.inFlight() >= most; l.full {
		l.tracker.ringAt(len(l.held) + maxAhead/2 - 1)
		l.full = l.inFlight() >= maxAhead/2 // they may have been settled before the bell was set
	}
	return l.full
}

// begin gives to workers what is due.
func (l *lane) begin() {
	if len(l.held) == 0 {
		return
	}
	for now := time.Now(); len(l.held) > 0 && !now.Before(l.held[0].due) && !l.isFull() && !l.ended(); {
		e := heap.Pop(&l.held).(*entry) //nolint:forcetypeassert // Only entries are pushed.
		l.give(e)
	}
}

// nextDue returns when the next record that may begin is due, or never if there is none.
func (l *lane) nextDue() time.Time {
	if len(l.held) == 0 || l.full {
		return never
	}
	return l.held[0].due
}

var never = time.Now().Add(1000 * time.Hour)

func (l *lane) pauseOrResume() {
	switch held := len(l.held); {
	case !l.paused && held >= maxHeld:
		l.paused = true
		l.c.group.Pause(map[string][]int32{l.claim.Topic(): {l.claim.Partition()}})
	case l.paused && (held <= resumeAt || held < maxHeld && time.Until(l.held[0].due) < resumeDue):
		l.resume()
	}
}

func (l *lane) resume() {
	l.paused = false
	l.c.group.Resume(map[string][]int32{l.claim.Topic(): {l.claim.Partition()}})
}

// commit marks everything below the lowest unsettled record. sarama sends that every commitEvery.
func (l *lane) commit() {
	if next := l.tracker.next(); next >= 0 {
		l.sess.MarkOffset(l.claim.Topic(), l.claim.Partition(), next, "")
	}
}

// drain waits for what has begun. Held messages stay on the level.
func (l *lane) drain() {
	deadline := time.NewTimer(drainTimeout)
	defer deadline.Stop()
	for l.tracker.ringAt(len(l.held)); l.inFlight() > 0; {
		select {
		case <-l.tracker.bell:
			continue
		case <-deadline.C:
		}
		break
	}
	l.commit()
}

func (l *lane) ended() bool { return l.sess.Context().Err() != nil }

// dueHeap has the entry that is due first at its top. It implements heap.Interface.
type dueHeap []*entry

func (h dueHeap) Len() int           { return len(h) }
func (h dueHeap) Less(i, j int) bool { return h[i].due.Before(h[j].due) }
func (h dueHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *dueHeap) Push(x any)        { *h = append(*h, x.(*entry)) } //nolint:forcetypeassert // Only entries are pushed.
func (h *dueHeap) Pop() any {
	old := *h
	e := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return e
}
