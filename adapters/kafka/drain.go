package kafka

import (
	"errors"
	"time"

	"github.com/redeliver/redeliver/delayqueue"
)

// errMoved is why the context of a message ends whose handler did not finish
// within the drain timeout.
var errMoved = errors.New("kafka: the partition was revoked or the subscriber closed, and the drain timeout is over")

// drain is the end of a lane: nothing new is begun, what waits is given up, and
// what is in flight may finish within the drain timeout, so that the member that
// reads the partition next begins behind it. over is true when the whole session
// ends, not only this partition's part in it.
func (l *lane) drain(over bool) {
	if l.next != nil {
		l.end(outcome{l.next, abandoned})
		l.next = nil
	}
	if l.slot {
		<-l.slots
		l.slot = false
	}
	if over {
		l.pullBack()
	}
	l.poll()
	l.watch()
	deadline := time.NewTimer(l.r.client.cfg.DrainTimeout)
	defer deadline.Stop()
	for waiting := true; waiting && len(l.inFlight) > 0; {
		select {
		case o := <-l.events:
			l.end(o)
		case <-deadline.C:
			waiting = false
		}
	}
	l.moved = l.track.mark > 0
	l.mark()
	l.cancel(errMoved)
	close(l.gone)
	for range l.inFlight {
		<-l.slots
	}
}

// pullBack takes back the messages that lie ready and that nobody has taken:
// the session is over for all lanes, and nobody is going to.
func (l *lane) pullBack() {
	for {
		select {
		case msg := <-l.r.out:
			d := delayqueue.FromContext(msg.Context())
			e := d.Record.(*record).entry
			if e.lane == l {
				l.end(outcome{e, abandoned})
			} else {
				e.lane.report(outcome{e, abandoned})
			}
		default:
			return
		}
	}
}
