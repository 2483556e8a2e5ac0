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
// the old one has brought stays in hand. It has another name: under the same one
// each ack of an old message would bring a new one, and RabbitMQ 3.10 would end the
// connection at the second time. An error means that the channel is gone.
func (l *lane) fit() error {
	if l.kind != retryQueue && l.kind != delayQueue {
		return nil
	}
	window := fitWindow(l.window, l.prefetch, l.acks.len, l.acks.bytes, l.r.client.cfg.RetryBytes)
	if window == l.window {
		return nil
	}
	l.window = window
	if err := l.ch.Cancel(tag(l.consumers), false); err != nil {
		return err
	}
	for d := range l.in {
		l.take(d, time.Now())
	}
	l.consumers++
	in, err := read(l.ch, l.queue, l.consumers, window)
	if err == nil {
		l.in = in
	}
	return err
}

// firstWindow is how many messages a lane has in hand at first.
func (cfg laneConfig) firstWindow(bytes int) int {
	if cfg.kind == retryQueue || cfg.kind == delayQueue {
		return min(cfg.prefetch, max(fewAtFirst, bytes/assumed))
	}
	return cfg.prefetch
}
