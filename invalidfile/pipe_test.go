//go:build unix

package invalidfile_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redeliver/redeliver/invalidfile"
)

// A named pipe blocked Open until somebody wrote to it. What is no regular file is refused;
// a link to one is one.
func TestOnlyARegularFileIsRead(t *testing.T) {
	dir := t.TempDir()
	pipe, link, file := filepath.Join(dir, "pipe"), filepath.Join(dir, "link"), filepath.Join(dir, "file")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	write(t, file, "id=1\n")
	if err := os.Symlink(file, link); err != nil {
		t.Fatal(err)
	}
	l, err := invalidfile.Open(link, invalidfile.Config{Every: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	if l.Invalid(msg("1", "-", nil)) == nil {
		t.Error("what a link leads to is not read")
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	for _, path := range []string{pipe, dir} {
		opened := make(chan error, 1)
		go func() {
			l, err := invalidfile.Open(path, invalidfile.Config{})
			if l != nil {
				_ = l.Close()
			}
			opened <- err
		}()
		select {
		case err := <-opened:
			if err == nil || !strings.Contains(err.Error(), path+" is no regular file") {
				t.Errorf("%s: %v", path, err)
			}
		case <-time.After(time.Minute):
			t.Fatalf("%s: Open has not returned within a minute", path)
		}
	}
}
