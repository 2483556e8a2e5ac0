package brokers

import (
	"os"
	"sync"
	"testing"
)

// A sweep that locked a directory before its owner did once removed it. The owner then locked a deleted file, and a
// broker started without a directory.
func TestASweepLeavesNewDirectoriesAlone(t *testing.T) {
	t.Parallel()
	parent := t.TempDir()
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 300 {
				w, err := newWorkDirIn(parent, "sweep")
				if err != nil {
					t.Error(err)
					return
				}
				if _, err := os.Stat(w.path(ownerLock)); err != nil {
					t.Error(err)
				}
				if _, err := w.remove(false); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
}
