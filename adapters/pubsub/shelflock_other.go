//go:build !(darwin || dragonfly || freebsd || illumos || linux || netbsd || openbsd)

package pubsub

import (
	"fmt"
	"os"
	"runtime"
)

// tryLock refuses: without a lock that ends with its process two would write at once.
func tryLock(path string) (*os.File, error) {
	return nil, fmt.Errorf("pubsub: %s cannot be locked: %s has no flock, so dead letters cannot be kept here", path, runtime.GOOS)
}
