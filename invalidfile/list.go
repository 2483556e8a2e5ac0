package invalidfile

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redeliver/redeliver"
)

// DefaultEvery is how often a file is looked at.
const DefaultEvery = 5 * time.Second

const (
	// most is the longest file that is read.
	most = 16 << 20
	// grain is the coarsest clock of a file system: a file that was written so shortly
	// before it was read may have been written again since, with the same time.
	grain = 2 * time.Second
	// settle is the time between two looks that must find the same text before it counts.
	// One that is written in place is empty at first, which lists nothing, and then ends
	// somewhere: the first half of an id is an id, too.
	settle = 200 * time.Millisecond
	// beginnings is how many looks Open takes at a file that is being written.
	beginnings = 50
)

// Config says how a file is read. The zero Config is complete.
type Config struct {
	// Every is how often the file is looked at. Default 5 s. One that has changed is looked
	// at again after 200 ms, or Every where that is shorter: it counts when it is the same.
	Every time.Duration
	// Report is told what came of each change of the file: how many rules there are
	// now, or, with an error, how many there are still. It is called by one goroutine
	// after another. It must not call Close, which waits for it. Default: the default
	// logger of log/slog.
	Report func(rules int, err error)
}

// List is what a file lists. It is safe for concurrent use.
type List struct {
	path   string
	report func(int, error)
	settle time.Duration         // between two looks that are to find the same
	rules  atomic.Pointer[rules] // nil where there are none
	stop   context.CancelFunc
	ended  sync.WaitGroup

	// Of the one goroutine that looks.
	seen  os.FileInfo        // as it was read; nil where it was not
	fresh bool               // it may have changed since, unseen
	sum   *[sha256.Size]byte // of the text whose rules stand
	next  *[sha256.Size]byte // of another one, which counts if it is there at the next look
	wrong string             // the error that was reported last
}

// Open reads a file, and reads it again whenever it changes until Close. A file that
// cannot be read, is no regular one, or has a line that is no rule, is an error. One that
// was written within the last two seconds may not be whole: it takes two looks.
func Open(path string, cfg Config) (*List, error) {
	var ps redeliver.Problems
	if path == "" {
		ps.Add("path", `""`, "is required: the file that lists what must not run")
	}
	ps.Duration("Every", cfg.Every, 0, 0)
	if err := ps.Err(); err != nil {
		return nil, fmt.Errorf("invalidfile: %w", err)
	}
	if cfg.Every == 0 {
		cfg.Every = DefaultEvery
	}
	l := &List{path: path, report: cfg.Report, settle: min(settle, cfg.Every)}
	if l.report == nil {
		l.report = l.log
	}
	if err := l.begin(); err != nil {
		return nil, err
	}
	var ctx context.Context
	ctx, l.stop = context.WithCancel(context.Background())
	l.ended.Go(func() { l.keep(ctx, cfg.Every) })
	return l, nil
}

// Invalid is a redeliver.Policy's: an error says that the message must not run, in which
// line, and why. While nothing is listed it costs nothing.
func (l *List) Invalid(m redeliver.Message) error {
	all := l.rules.Load()
	if all == nil {
		return nil
	}
	r := all.find(&m)
	switch {
	case r == nil:
		return nil
	case r.reason != "":
		return fmt.Errorf("%s, line %d: %s", filepath.Base(l.path), r.line, r.reason)
	default:
		return fmt.Errorf("listed in %s, line %d", filepath.Base(l.path), r.line)
	}
}

// Close ends the looking, and waits for a Report that runs. What is listed stays so.
func (l *List) Close() error {
	l.stop()
	l.ended.Wait()
	return nil
}

// begin reads the file for the first time.
func (l *List) begin() error {
	for range beginnings {
		if _, err := l.read(); err != nil || l.next == nil {
			return err
		}
		<-time.After(l.settle)
	}
	return fmt.Errorf("invalidfile: %s changes all the time; write another file beside it and rename that to its place", l.path)
}

func (l *List) keep(ctx context.Context, every time.Duration) {
	next := time.NewTimer(every)
	defer next.Stop()
	for {
		select {
		case <-next.C:
			l.look()
		case <-ctx.Done():
			return
		}
		if l.next != nil {
			next.Reset(l.settle)
		} else {
			next.Reset(every)
		}
	}
}

// look reads the file when it has changed, and reports that, or once that it cannot.
func (l *List) look() {
	info, err := os.Stat(l.path)
	if err == nil && l.seen != nil && !l.fresh && l.next == nil && os.SameFile(info, l.seen) && info.ModTime().Equal(l.seen.ModTime()) && info.Size() == l.seen.Size() {
		return
	}
	changed, err := l.read()
	switch {
	case err != nil && err.Error() == l.wrong:
	case err != nil:
		l.wrong = err.Error()
		l.report(l.len(), err)
	case l.next != nil: // what there is to say of it is said when it counts
	case changed || l.wrong != "":
		l.wrong = ""
		l.report(l.len(), nil)
	}
}

// read reads the file, and tells whether there is something else in it that counts: where
// the next look is to say that, l.next is set. After an error the rules are those of before.
func (l *List) read() (changed bool, err error) {
	last := l.next
	l.seen, l.next = nil, nil // what could not be read is read again
	f, err := l.open()
	if err != nil {
		return false, fmt.Errorf("invalidfile: %w; a service that lists nothing has an empty file", err)
	}
	defer f.Close()
	info, err := f.Stat() // before it is read: what is written later is a change
	if err != nil {
		return false, fmt.Errorf("invalidfile: %w", err)
	}
	text, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && len(text) > most {
		err = errors.New("is larger than 16 MiB")
	}
	if err != nil {
		return false, fmt.Errorf("invalidfile: reading %s: %w", l.path, err)
	}
	l.seen, l.fresh = info, time.Since(info.ModTime()) < grain
	sum := sha256.Sum256(text)
	if l.sum != nil && *l.sum == sum {
		return false, nil
	}
	if (l.sum != nil || l.fresh) && (last == nil || *last != sum) {
		l.next = &sum
		return false, nil
	}
	all, err := parse(text)
	if err != nil {
		return false, fmt.Errorf("invalidfile: %s has lines that are no rules: %w", l.path, err)
	}
	if all.n == 0 {
		all = nil
	}
	l.rules.Store(all)
	l.sum = &sum
	return true, nil
}

// open opens the file, which must be a regular one: for a named pipe it would wait until
// somebody writes.
func (l *List) open() (*os.File, error) {
	info, err := os.Stat(l.path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no regular file, but %s", l.path, info.Mode())
	}
	return os.Open(l.path)
}

// len is how many rules there are.
func (l *List) len() int {
	if all := l.rules.Load(); all != nil {
		return all.n
	}
	return 0
}

func (l *List) log(n int, err error) {
	if err != nil {
		slog.Error("what is listed as invalid stays as it was", "file", l.path, "rules", n, "error", err)
		return
	}
	slog.Info("what is listed as invalid has changed", "file", l.path, "rules", n)
}
