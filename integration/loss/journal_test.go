package loss

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// journal is the record of a consumer: lines, each written with one write(2), so that a SIGKILL leaves a line complete
// or absent.
type journal struct{ file *os.File }

func openJournal(path string) (*journal, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the journal: %w", err)
	}
	return &journal{f}, nil
}

// kind is the first letter of a line.
type kind string

const (
	entered        kind = "E" // a handler was entered
	succeeded      kind = "C" // it is about to return nil: the proof of a commit
	failed         kind = "F" // it is about to return an error
	killed         kind = "K" // the process is about to kill itself, or to end; id and attempt are the run that must happen again, text the state
	joined         kind = "J" // the group assigned partitions to it, or it reads its queues
	lostConnection kind = "P" // it lost its connection and keeps running
	ignored        kind = "H" // the adapter found headers implausible, although none are forged
	refused        kind = "R" // a write of its next hop was not confirmed, and is tried again
	changed        kind = "T" // the subscription reported a change; text is its name
)

// line is one line of a journal.
type line struct {
	kind    kind
	id      string
	attempt int
	at, due time.Time // due is zero for none
	text    string
	process int // filled by the reader
}

func (l line) append(b []byte) []byte {
	stamp := func(t time.Time) int64 {
		if t.IsZero() {
			return 0
		}
		return t.UnixNano()
	}
	id := l.id
	if id == "" {
		id = "-"
	}
	return fmt.Appendf(b, "%s %s %d %d %d %s\n", l.kind, id, l.attempt, stamp(l.at), stamp(l.due), strings.ReplaceAll(l.text, "\n", " "))
}

// write appends a line. An error ends the process, because a consumer that cannot prove what it did must not continue.
func (j *journal) write(l line) {
	if _, err := j.file.Write(l.append(make([]byte, 0, 128))); err != nil {
		fmt.Fprintf(os.Stderr, "writing the journal: %v\n", err)
		os.Exit(3)
	}
}

func parseLine(text string) (line, error) {
	parts := strings.SplitN(text, " ", 6)
	if len(parts) != 6 {
		return line{}, fmt.Errorf("%q is not a line of a journal", text)
	}
	attempt, err1 := strconv.Atoi(parts[2])
	at, err2 := strconv.ParseInt(parts[3], 10, 64)
	due, err3 := strconv.ParseInt(parts[4], 10, 64)
	if err1 != nil || err2 != nil || err3 != nil {
		return line{}, fmt.Errorf("%q is not a line of a journal", text)
	}
	l := line{kind: kind(parts[0]), id: parts[1], attempt: attempt, at: time.Unix(0, at), text: parts[5]}
	if due != 0 {
		l.due = time.Unix(0, due)
	}
	return l, nil
}

// tail reads a journal while it grows.
type tail struct {
	path    string
	process int
	ended   <-chan struct{} // closed when the process has ended
	offset  int64
	torn    int // bytes after the last complete line
}

func (t *tail) hasEnded() bool {
	select {
	case <-t.ended:
		return true
	default:
		return false
	}
}

// more returns the complete lines that were written since the last call.
func (t *tail) more() ([]line, error) {
	f, err := os.Open(t.path)
	if os.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	fresh := make([]byte, info.Size()-t.offset)
	if _, err := f.ReadAt(fresh, t.offset); err != nil {
		return nil, err
	}
	whole := bytes.LastIndexByte(fresh, '\n') + 1
	t.offset += int64(whole)
	t.torn = len(fresh) - whole
	var lines []line
	for text := range strings.Lines(string(fresh[:whole])) {
		l, err := parseLine(strings.TrimSuffix(text, "\n"))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", t.path, err)
		}
		l.process = t.process
		lines = append(lines, l)
	}
	return lines, nil
}
