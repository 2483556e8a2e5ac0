package invalidfile_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redeliver/redeliver/invalidfile"
)

// elapse lets the bubble's clock go on.
func elapse(d time.Duration) { <-time.After(d) }

// inPlace writes a file as a shell's > does: it is emptied first.
func inPlace(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// A file that is written in place was taken as it was found, empty or half: what was
// cancelled ran, and the first half of an id buried another message. It counts when two
// looks have found the same.
func TestAFileThatIsWrittenInPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path, n := filepath.Join(t.TempDir(), "cancelled"), newNotes()
		inPlace(t, path, "id=old\n")
		l, err := invalidfile.Open(path, invalidfile.Config{Report: n.report})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		lists := func(when string, ids ...string) {
			t.Helper()
			for _, id := range []string{"old", "47", "4711", "5"} {
				listed := l.Invalid(msg(id, "-", nil)) != nil
				want := false
				for _, one := range ids {
					want = want || one == id
				}
				if listed != want {
					t.Errorf("%s: %s is listed: %t", when, id, listed)
				}
			}
		}
		lists("at the start", "old")
		inPlace(t, path, "")
		elapse(invalidfile.DefaultEvery + 100*time.Millisecond) // and in the middle between two looks from here on
		lists("empty", "old")
		inPlace(t, path, "id=47")
		elapse(200 * time.Millisecond)
		lists("half", "old")
		inPlace(t, path, "id=4711\nid=")
		elapse(200 * time.Millisecond)
		lists("no rule", "old")
		inPlace(t, path, "id=4711\nid=5\n")
		elapse(200 * time.Millisecond)
		lists("whole, once", "old")
		if len(n.more) > 0 {
			t.Errorf("told of a file that is being written: %q", n.all)
		}
		elapse(200 * time.Millisecond)
		lists("whole, twice", "4711", "5")
		if got := n.next(t); got != "2 <nil>" {
			t.Error(got)
		}
		inPlace(t, path, "") // nothing is listed, and that stays so
		elapse(invalidfile.DefaultEvery + 200*time.Millisecond)
		lists("empty for good")
		if got := n.next(t); got != "0 <nil>" {
			t.Error(got)
		}
		inPlace(t, path, "nonsense")
		elapse(invalidfile.DefaultEvery + 200*time.Millisecond)
		if got := n.next(t); !strings.HasPrefix(got, "0 ") || !strings.Contains(got, "line 1") {
			t.Error(got)
		}
		inPlace(t, path, "id=5\n") // all is well again, but not before it counts
		elapse(invalidfile.DefaultEvery)
		if len(n.more) > 0 {
			t.Errorf("told too soon: %q", n.all)
		}
		elapse(200 * time.Millisecond)
		lists("after an error", "5")
		if got := n.next(t); got != "1 <nil>" {
			t.Error(got)
		}
		if len(n.more) > 0 {
			t.Errorf("told more: %q", n.all)
		}
	})
}

// A service that starts while its file is written takes the whole, and one whose file is
// never the same says so. One that nobody has touched for a while is not waited for.
func TestOpenWhileTheFileIsWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "cancelled")
		inPlace(t, path, "id=47")
		late := time.AfterFunc(100*time.Millisecond, func() { inPlace(t, path, "id=4711\n") })
		defer late.Stop()
		l, err := invalidfile.Open(path, invalidfile.Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		if l.Invalid(msg("47", "-", nil)) != nil || l.Invalid(msg("4711", "-", nil)) == nil {
			t.Error("the half of an id is listed, or the whole is not")
		}

		stop := make(chan struct{})
		defer close(stop)
		go func() {
			for i := 0; ; i++ {
				select {
				case <-time.After(150 * time.Millisecond):
					inPlace(t, path, "id="+strconv.Itoa(i))
				case <-stop:
					return
				}
			}
		}()
		if l, err := invalidfile.Open(path, invalidfile.Config{}); err == nil || !strings.Contains(err.Error(), "changes all the time") {
			t.Errorf("a file that never stays the same: %v", err)
			if l != nil {
				_ = l.Close()
			}
		}
	})
	synctest.Test(t, func(t *testing.T) {
		path, began := filepath.Join(t.TempDir(), "cancelled"), time.Now()
		inPlace(t, path, "id=1\n")
		if err := os.Chtimes(path, time.Time{}, began.Add(-time.Hour)); err != nil {
			t.Fatal(err)
		}
		l, err := invalidfile.Open(path, invalidfile.Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		if took := time.Since(began); took > 0 || l.Invalid(msg("1", "-", nil)) == nil {
			t.Errorf("an old file took %s", took)
		}
	})
}
