package amqp

import "github.com/redeliver/redeliver/adapters/amqp/internal/layout"

// The broker's prefetch bounds the number of messages, not their size. A source of retries may hold thousands that
// are not due. So it starts with a small window, and enlarges it while the messages so far leave room in
// Config.RetryBytes; larger messages shrink it. The first window assumes large messages, but has a minimum:
// the broker takes some milliseconds for each change, and messages are late meanwhile.
const (
	assumedBody    = 256 << 10 // bytes of a body
	minFirstWindow = 16
)

// firstWindow returns a source's first window.
func (cfg queueConfig) firstWindow(bytes int) int {
	if cfg.kind == layout.RetryQueue || cfg.kind == layout.DelayQueue {
		return min(cfg.prefetch, max(minFirstWindow, bytes/assumedBody))
	}
	return cfg.prefetch
}

// fitWindow returns the window for n unsettled messages of the given total size under the current window.
func fitWindow(window, maxWindow, n, bytes, limit int) int {
	switch {
	case n == 0:
		return window
	case bytes > limit: // to three quarters, so that the window does not oscillate
		return min(window, max(1, int(int64(n)*int64(limit)*3/4/int64(bytes))))
	case n >= window && 3*window*(bytes/n) <= limit: // n old messages stay, and up to 2*window new ones come
		return min(maxWindow, 2*window)
	default:
		return window
	}
}
