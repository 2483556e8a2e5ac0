package brokers

import (
	"errors"
	"fmt"
)

// ErrNoLimit is the error of LimitFiles for a broker whose files it cannot limit.
var ErrNoLimit = errors.New("that is for a broker that runs natively, on Linux; see REDELIVER_TEST_WAY")

// limiter is a system that can limit the files of its broker.
type limiter interface{ limitFiles(most uint64) error }

// LimitFiles bounds the size of each file of the broker, in bytes, until the broker is started again. This simulates a
// full disk. It requires a native broker of one process on Linux and returns [ErrNoLimit] for any other.
func (b *Broker) LimitFiles(most uint64) error {
	l, ok := b.sys.(limiter)
	if !ok {
		return fmt.Errorf("limiting the files of %s: %w", b, ErrNoLimit)
	}
	if err := l.limitFiles(most); err != nil {
		return fmt.Errorf("limiting the files of %s: %w", b, err)
	}
	return nil
}

// Ended returns the reason why the broker is not running although nobody stopped it, or nil if it runs.
func (b *Broker) Ended() error { return b.sys.ended() }
