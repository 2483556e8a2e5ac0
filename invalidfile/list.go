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
)

// Config says how a file is read. The zero Config is complete.
type Config struct {
	// Every is how often the file is looked at. Default 5 s.
	Every time.Duration
	// Report is told what came of each change of the file: how many rules there are
	// now, or, with an error, how many there are still. It is called by one goroutine
	// after another. Default: the default logger of log/slog.
	Report func(rules int, err error)
}

// List is what a file lists. It is safe for concurrent use.
type List struct {
	path   string
	report func(int, error)
	rules  atomic.Pointer[rules] // nil where there are none
	stop   context.CancelFunc
	ended  sync.WaitGroup

	// Of the one goroutine that looks.
	seen  os.FileInfo        // as it was read; nil where it was not
	fresh bool               // it may have changed since, unseen
	sum   *[sha256.Size]byte // of the text whose rules stand
	wrong string             // the error that was reported last
}

// Open reads a file, and reads it again whenever it changes until Close. A file that
// cannot be read, or has a line that is no rule, is an error.
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
	l := &List{path: path, report: cfg.Report}
	if l.report == nil {
		l.report = l.log
	}
	if _, err := l.read(); err != nil {
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

// Close ends the looking. What is listed stays so.
func (l *List) Close() error {
	l.stop()
	l.ended.Wait()
	return nil
}

func (l *List) keep(ctx context.Context, every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			l.look()
		case <-ctx.Done():
			return
		}
	}
}

// look reads the file when it has changed, and reports that, or once that it cannot.
func (l *List) look() {
	info, err := os.Stat(l.path)
	if err == nil && l.seen != nil && !l.fresh && os.SameFile(info, l.seen) && info.ModTime().Equal(l.seen.ModTime()) && info.Size() == l.seen.Size() {
		return
	}
	changed, err := l.read()
	switch {
	case err != nil && err.Error() == l.wrong:
	case err != nil:
		l.wrong = err.Error()
		l.report(l.len(), err)
	case changed || l.wrong != "":
		l.wrong = ""
		l.report(l.len(), nil)
	}
}

// read reads the file, and tells whether there is something else in it. After an error the
// rules are those of before.
func (l *List) read() (changed bool, err error) {
	l.seen = nil // what could not be read is read again
	f, err := os.Open(l.path)
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
