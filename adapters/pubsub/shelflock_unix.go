//go:build darwin || dragonfly || freebsd || illumos || linux || netbsd || openbsd

package pubsub

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// tryLock takes a lock file; nil where somebody else has it. Closing the file gives it
// back, and so does the system when its process dies.
func tryLock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("pubsub: %w", err)
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == nil {
		return f, nil
	}
	_ = f.Close() // it was not locked
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, nil //nolint:nilnil // no lock, and no error
	}
	return nil, fmt.Errorf("pubsub: locking %s: %w; the directory must be on a disk that knows flock", path, err)
}
