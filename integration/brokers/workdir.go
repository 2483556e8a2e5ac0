package brokers

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// workDir is the temporary directory of one native broker: its settings, its log and its data.
type workDir struct {
	dir    string
	unlock func() // releases the lock of this process; see sweep
}

const ownerLock = "owner.lock"

func newWorkDir(name string) (*workDir, error) { return newWorkDirIn(os.TempDir(), name) }

func newWorkDirIn(parent, name string) (*workDir, error) {
	prefix := "redeliver-" + name + "-"
	sweep(parent, prefix)
	for {
		dir, err := os.MkdirTemp(parent, prefix)
		if err != nil {
			return nil, fmt.Errorf("making a directory for the broker's data: %w", err)
		}
		unlock, err := tryLock(filepath.Join(dir, ownerLock))
		switch {
		case errors.Is(err, errLocked), errors.Is(err, fs.ErrNotExist): // the sweep of another process removes it
		case err == nil && !exists(filepath.Join(dir, ownerLock)): // it has removed it, so we locked a deleted file
			unlock()
		case err != nil:
			return nil, errors.Join(err, os.RemoveAll(dir))
		default:
			return &workDir{dir: dir, unlock: unlock}, nil
		}
	}
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// sweep removes the directories of test processes that were killed: a benchmark's data is gigabytes. The kernel has
// released their locks, so a directory that can be locked has no owner. The next sweep retries after errors.
func sweep(parent, prefix string) {
	locks, _ := filepath.Glob(filepath.Join(parent, prefix+"*", ownerLock))
	for _, path := range locks {
		if unlock, err := tryLockExisting(path); err == nil {
			_ = os.RemoveAll(filepath.Dir(path))
			unlock()
		}
	}
}

func (w *workDir) path(name string) string { return filepath.Join(w.dir, name) }

func (w *workDir) log() string { return w.path("broker.log") }

func (w *workDir) openLog() (*os.File, error) {
	f, err := os.OpenFile(w.log(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the broker's log: %w", err)
	}
	return f, nil
}

// logTail returns the last lines of the log.
func (w *workDir) logTail(lines int) string {
	f, err := os.Open(w.log())
	if err != nil {
		return fmt.Sprintf("(no log: %v)", err)
	}
	defer f.Close()
	const window = 32 << 10
	if info, err := f.Stat(); err == nil && info.Size() > window {
		_, _ = f.Seek(-window, io.SeekEnd)
	}
	tail, err := io.ReadAll(f)
	if err != nil {
		return fmt.Sprintf("(log unreadable: %v)", err)
	}
	return lastLines(string(tail), lines)
}

// remove deletes the directory. It first copies a log that is to be kept, because the directory may be in memory.
func (w *workDir) remove(keepLog bool) (string, error) {
	defer w.unlock()
	kept := ""
	var err error
	if keepLog {
		kept = filepath.Join(os.TempDir(), filepath.Base(w.dir)+".log")
		if err = w.copyLog(kept); err != nil {
			kept, err = "", fmt.Errorf("keeping the broker's log: %w", err)
		}
	}
	return kept, errors.Join(err, os.RemoveAll(w.dir))
}

func (w *workDir) copyLog(to string) error {
	from, err := os.Open(w.log())
	if err != nil {
		return err
	}
	defer from.Close()
	f, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, from)
	return errors.Join(err, f.Close())
}

// lastLines returns the last n lines of s.
func lastLines(s string, n int) string {
	lines := strings.Split(strings.TrimRight(s, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
