package pubsub

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
)

// A shelf is a directory that holds dead letters which were taken from their topic:
//
//	<base>.letters  letters, one JSON object in a line, numbered from base on
//	<base>.out      which of them are settled: from and through in a line
//	state.json      whose they are, tasks, marks, who has them
//	*.lock          held by who takes letters, who has the DLQ, who changes the state
//
// Letters are added to the last file alone, by who holds intake.lock; what is settled
// is written, and files that are closed are made smaller, by who holds claim.lock. All
// that was written is synced before anything relies on it, and a line without its end
// was never relied on. So whoever dies leaves nothing that is to be mended.
type shelf struct{ dir string }

// letter is a message as the topic had it, byte for byte.
type letter struct {
	N        int64        `json:"n"`
	At       time.Time    `json:"at"` // when it was taken, by this host's clock
	UUID     []byte       `json:"uuid"`
	Metadata []shelfEntry `json:"metadata"` // by name
	Payload  []byte       `json:"payload"`
}

// shelfEntry is an entry of the metadata, which may be any bytes.
type shelfEntry struct {
	Name  []byte `json:"name"`
	Value []byte `json:"value"`
}

func letterOf(msg *message.Message, at time.Time) *letter {
	l := &letter{At: at.UTC(), UUID: []byte(msg.UUID), Payload: msg.Payload}
	for name, value := range msg.Metadata {
		l.Metadata = append(l.Metadata, shelfEntry{[]byte(name), []byte(value)})
	}
	slices.SortFunc(l.Metadata, func(x, y shelfEntry) int { return bytes.Compare(x.Name, y.Name) })
	return l
}

func (l *letter) message() *message.Message {
	msg := message.NewMessage(string(l.UUID), l.Payload)
	for _, e := range l.Metadata {
		msg.Metadata[string(e.Name)] = string(e.Value)
	}
	return msg
}

const (
	lettersSuffix = ".letters"
	outSuffix     = ".out"
	newSuffix     = ".new"

	firstLetter = 1
)

func (s shelf) path(name string) string { return filepath.Join(s.dir, name) }

func (s shelf) letters(base int64) string { return s.path(fmt.Sprintf("%019d%s", base, lettersSuffix)) }

func (s shelf) outs(base int64) string { return s.path(fmt.Sprintf("%019d%s", base, outSuffix)) }

// bases are the files of letters, the oldest first. The last is the one that grows.
func (s shelf) bases() ([]int64, error) {
	all, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, fmt.Errorf("pubsub: %w", err)
	}
	var bases []int64
	for _, f := range all {
		name, ok := strings.CutSuffix(f.Name(), lettersSuffix)
		if !ok {
			continue
		}
		base, err := strconv.ParseInt(name, 10, 64)
		if err != nil || base < firstLetter || s.letters(base) != s.path(f.Name()) { // 1 and +1 are the same number
			return nil, fmt.Errorf("pubsub: %s is no file of a shelf: move it elsewhere", s.path(f.Name()))
		}
		bases = append(bases, base)
	}
	slices.Sort(bases)
	return bases, nil
}

// lines reads a file of letters.
type lines struct {
	path string
	f    *os.File
	r    *bufio.Reader
	at   int64 // behind the last line
}

// open is nil where the file is gone: all that was in it is settled.
func (s shelf) open(base int64) (*lines, error) {
	f, err := os.Open(s.letters(base))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // it has gone, which is no error
	}
	if err != nil {
		return nil, fmt.Errorf("pubsub: %w", err)
	}
	return &lines{path: f.Name(), f: f, r: bufio.NewReaderSize(f, 64<<10)}, nil
}

// skip goes on at a byte behind a line.
func (l *lines) skip(to int64) error {
	if _, err := l.f.Seek(to, io.SeekStart); err != nil {
		return fmt.Errorf("pubsub: reading %s: %w", l.path, err)
	}
	l.at = to
	return nil
}

// next returns the next line as it is; io.EOF at the end, and where a line has none yet.
func (l *lines) next() ([]byte, error) {
	text, err := l.r.ReadBytes('\n')
	if err == nil {
		l.at += int64(len(text))
		return text, nil
	}
	if !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("pubsub: reading %s: %w", l.path, err)
	}
	if len(text) > 0 { // it is written just now, or its writer has died
		if _, err := l.f.Seek(l.at, io.SeekStart); err != nil {
			return nil, fmt.Errorf("pubsub: reading %s: %w", l.path, err)
		}
		l.r.Reset(l.f)
	}
	return nil, io.EOF
}

// letter is next, read.
func (l *lines) letter() (*letter, error) {
	text, err := l.next()
	if err != nil {
		return nil, err
	}
	var one letter
	err = json.Unmarshal(text, &one)
	if err == nil && one.N < firstLetter {
		err = errors.New("it has no number")
	}
	if err != nil {
		return nil, fmt.Errorf("pubsub: %s is damaged: the line that ends at byte %d is no letter; mend or remove that line, and nothing else: %w", l.path, l.at, err)
	}
	return &one, nil
}

func (l *lines) close() {
	if l != nil {
		_ = l.f.Close() // it was only read
	}
}

// replace puts a file in the place of another, or makes it, so that whoever dies leaves
// one of the two.
func (s shelf) replace(path string, text []byte) error {
	f, err := os.OpenFile(path+newSuffix, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("pubsub: %w", err)
	}
	_, err = f.Write(text)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(path+newSuffix, path)
	}
	if err != nil {
		return fmt.Errorf("pubsub: writing %s: %w", path, errors.Join(err, ignored(os.Remove(path+newSuffix))))
	}
	return s.sync()
}

// sync makes the names of the directory as safe as what is in the files.
func (s shelf) sync() error {
	d, err := os.Open(s.dir)
	if err != nil {
		return fmt.Errorf("pubsub: %w", err)
	}
	defer d.Close()
	if err := d.Sync(); err != nil {
		return fmt.Errorf("pubsub: syncing %s: %w", s.dir, err)
	}
	return nil
}

// ignored passes over that a file was not there.
func ignored(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
