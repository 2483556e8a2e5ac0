//go:build unix

package brokers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

// lock locks the file at path. It waits until another process releases it. The kernel releases the lock of a process
// that dies.
func lock(ctx context.Context, path string) (unlock func(), err error) {
	for {
		unlock, err = tryLock(path)
		if err == nil || !errors.Is(err, errLocked) {
			return unlock, err
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("waiting for %s, which another process holds: %w", path, ctx.Err())
		case <-time.After(200 * time.Millisecond):
		}
	}
}

var errLocked = errors.New("another process holds the lock")

// tryLock locks the file at path, which it creates if necessary, or returns errLocked.
func tryLock(path string) (unlock func(), err error) { return tryLockAs(path, os.O_CREATE) }

// tryLockExisting is tryLock for an existing file.
func tryLockExisting(path string) (unlock func(), err error) { return tryLockAs(path, 0) }

func tryLockAs(path string, create int) (unlock func(), err error) {
	f, err := os.OpenFile(path, create|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the lock file: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, errLocked
		}
		return nil, fmt.Errorf("locking %s: %w", path, err)
	}
	return func() { _ = f.Close() }, nil
}
