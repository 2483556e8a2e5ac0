package sqs

import (
	"time"
)

// beaten is what became of a heartbeat.
type beaten struct {
	t   *ticket
	err error
}

// pace is how often a lane looks at what it has in hand.
func (l *lane) pace() time.Duration { return min(l.r.client.cfg.VisibilityTimeout, briefly) / 10 }

// sweep keeps everything in hand hidden from others: what runs, what waits and
// what lies here, before half of its time is over. What could not be kept is
// lost.
func (l *lane) sweep(now time.Time) {
	if now.Sub(l.swept) < l.pace() {
		return
	}
	l.swept = now
	l.part(now)
	visibility := l.r.client.cfg.VisibilityTimeout
	for _, t := range l.tickets {
		until, span := t.hiddenUntil()
		switch {
		case !until.After(now) && t.entry != nil:
			l.lose(t)
		case until.Sub(now) < min(span, visibility)*6/10 && until.Before(t.limit().Add(-time.Second)):
			l.beat(t)
		}
	}
}

// beat hides a message for longer.
func (l *lane) beat(t *ticket) {
	l.hider.beat(t, func(err error) {
		select {
		case l.beaten <- beaten{t, err}:
		case <-l.ctx.Done():
		}
	})
}

// heard drops a message of which SQS says that we no longer hide it. One that is
// settled is deleted by what SQS says of that.
func (l *lane) heard(b beaten) {
	if b.err != nil && stale(b.err) && l.tickets[b.t.id] == b.t && b.t.entry != nil {
		l.lose(b.t)
	}
}

// depart notes that a message has moved on whose handler may still be at the end
// of its answer.
func (l *lane) depart(e *entry) {
	if e.msg != nil {
		e.ticket.parting++
		l.leaving = append(l.leaving, e)
	}
}

// part ends the contexts of messages that have moved on, once their handlers'
// answers are through all middlewares.
func (l *lane) part(now time.Time) {
	kept := l.leaving[:0]
	for _, e := range l.leaving {
		if !answered(e.msg) && now.Sub(e.arrived) < maxVisibility && len(kept) < handMost {
			kept = append(kept, e)
			continue
		}
		if e.ticket.parting--; e.ticket.parting == 0 && l.tickets[e.ticket.id] != e.ticket {
			e.ticket.End(nil)
		}
	}
	clear(l.leaving[len(kept):])
	l.leaving = kept
}
