package brokers

import (
	"errors"
	"fmt"
)

// ErrNoLimit is what LimitFiles returns for a broker of which it cannot limit the files.
var ErrNoLimit = errors.New("that is for a broker that runs natively, on Linux; see REDELIVER_TEST_WAY")

// limiter is a system that can keep its broker from writing.
type limiter interface{ limitFiles(most uint64) error }

// LimitFiles lets no file of the broker grow beyond so many bytes, as a disk does that is full, until the broker is
// started again. It is for a native broker of one process on Linux: of another it is [ErrNoLimit].
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

// Ended says why the broker is not running although nobody stopped it; nil while all is well.
func (b *Broker) Ended() error { return b.sys.ended() }
