package amqp

import "time"

// The broker bounds how many messages it sends, and not how large they are
// together: it knows no other prefetch. So a lane of retries, which may keep
// thousands that are not due, begins with few and asks for more as long as the
// ones that it has seen leave room in Config.RetryBytes; where larger ones come,
// for fewer.

// A lane of retries begins with as many messages as would fit if they were large,
// but not with less than a few: each time that it asks for more costs the broker
// some milliseconds, in which others come late.
const (
	assumed    = 256 << 10 // bytes of a body
	fewAtFirst = 16
)

// fitWindow is the window that suits n messages in hand, with so many bytes in
// all, where the window was so large.
func fitWindow(window, most, n, bytes, limit int) int {
	switch {
	case n == 0:
		return window
	case bytes > limit: // to three quarters: a window that is right does not swing
		return min(window, max(1, int(int64(n)*int64(limit)*3/4/int64(bytes))))
	case n >= window && 3*window*(bytes/n) <= limit: // what is in hand stays beside the new
		return min(most, 2*window)
	default:
		return window
	}
}

// fit asks the broker for more messages, or for fewer, by another consumer. What
// the old one has brought stays in hand, unless the lane pauses. It has another name:
// under the same one each ack of an old message would bring a new one, and RabbitMQ 3.10
// would end the connection at the second time. An error means that the channel is gone.
func (l *lane) fit(now time.Time) error {
	if l.kind == suspectQueue || l.ordered {
		return nil
	}
	was := l.paused
	l.pause(now)
	window := l.window
	switch {
	case l.paused:
		window = 1
	case was:
		window = l.firstWindow(l.r.client.cfg.RetryBytes)
	case l.kind != mainQueue:
		window = fitWindow(window, l.prefetch, l.acks.len, l.acks.bytes, l.r.client.cfg.RetryBytes)
	}
	if window == l.window {
		return nil
	}
	l.window = window
	if err := l.ch.Cancel(tag(l.consumers), false); err != nil {
		return err
	}
	for d := range l.in {
		l.take(d, now)
	}
	if l.paused {
		if err := l.returnUnrun(func(*entry) bool { return true }); err != nil {
			return err
		}
	}
	l.consumers++
	in, err := read(l.ch, l.queue, l.consumers, window)
	if err == nil {
		l.in = in
	}
	return err
}

// pauseAfter is how long a lane keeps what may not begin, at most.
const pauseAfter = 10 * time.Second

// pause notes whether the lane is paused: for some time nothing may begin, because
// something can be written nowhere (the gate is closed), or because the policy holds
// back all but probes. A paused lane hands back once what has not begun, for others,
// and because the broker counts each time that a message comes back. It goes on with a
// window of one message: that is what a probe needs, and a queue without a consumer may
// expire.
func (l *lane) pause(now time.Time) {
	switch {
	case !l.r.sub.Gate.Closed() && !l.r.sub.Throttle.Held():
		l.halted, l.paused = time.Time{}, false
	case l.halted.IsZero():
		l.halted = now
	default:
		l.paused = l.paused || now.Sub(l.halted) >= min(pauseAfter, l.r.client.cfg.ConsumerTimeout/4)
	}
}

// firstWindow is how many messages a lane has in hand at first.
func (cfg laneConfig) firstWindow(bytes int) int {
	if cfg.kind == retryQueue || cfg.kind == delayQueue {
		return min(cfg.prefetch, max(fewAtFirst, bytes/assumed))
	}
	return cfg.prefetch
}
