package pubsub

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
)

const (
	// fileBytes is when a file of letters is closed and another begun: only what is
	// closed can be made smaller.
	fileBytes = 8 << 20
	// remembered is how many of the letters that were taken last are known again: what
	// was taken and not yet acked when its process died comes a second time.
	remembered = 4096
)

// shelfWriter adds letters. It belongs to one goroutine of who holds intake.lock.
type shelfWriter struct {
	shelf

	f     *os.File
	base  int64 // names it
	size  int64 // of what is in it for good
	full  int64 // when another file is begun
	next  int64 // the number of the next letter
	dirty bool  // there may be something behind size
	loose bool  // what is before size may not be there for good

	seen  map[[sha256.Size]byte]shelved
	order [][sha256.Size]byte // the oldest first
}

// shelved is where a letter was written: the file, and its number.
type shelved struct{ base, n int64 }

// newWriter goes on where the last writer ended. What that left behind its last whole
// line was never acked, and is cut off.
func newWriter(s shelf) (*shelfWriter, error) {
	w := &shelfWriter{shelf: s, full: fileBytes, next: firstLetter, seen: make(map[[sha256.Size]byte]shelved)}
	bases, err := s.bases()
	if err != nil {
		return nil, err
	}
	if len(bases) == 0 {
		return w, w.begin()
	}
	for _, base := range bases[max(0, len(bases)-2):] {
		if err := w.read(base); err != nil {
			return nil, err
		}
	}
	if w.f, err = os.OpenFile(s.letters(bases[len(bases)-1]), os.O_WRONLY, 0o600); err != nil {
		return nil, fmt.Errorf("pubsub: %w", err)
	}
	w.dirty, w.loose = true, true
	if err := errors.Join(w.cut(), w.flush(), w.sync()); err != nil {
		return nil, errors.Join(err, w.f.Close())
	}
	return w, nil
}

// flush returns when all that is written is there for good. What a disk has refused to
// keep is not known again: it may look as if it lay there.
func (w *shelfWriter) flush() error {
	if !w.loose {
		return nil
	}
	if err := w.f.Sync(); err != nil {
		clear(w.seen)
		w.order = nil
		return fmt.Errorf("pubsub: writing dead letters: %w", err)
	}
	w.loose = false
	return nil
}

// read finds the end of a file, and what it is to know again.
func (w *shelfWriter) read(base int64) error {
	l, err := w.open(base)
	if err != nil || l == nil {
		return err
	}
	defer l.close()
	w.next, w.base, w.size = max(w.next, base), base, 0
	for {
		one, err := l.letter()
		if errors.Is(err, io.EOF) {
			w.size = l.at
			return nil
		}
		if err != nil {
			return err
		}
		w.next = one.N + 1
		w.remember(one)
	}
}

// begin begins a file.
func (w *shelfWriter) begin() error {
	f, err := os.OpenFile(w.letters(w.next), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("pubsub: %w", err)
	}
	if err := w.sync(); err != nil {
		return errors.Join(err, f.Close())
	}
	if w.f != nil {
		_ = w.f.Close() // all of it is synced
	}
	w.f, w.base, w.size, w.dirty = f, w.next, 0, true
	return w.cut()
}

// cut takes away what is behind the last whole line, and makes the next write stand there.
func (w *shelfWriter) cut() error {
	if !w.dirty {
		return nil
	}
	err := w.f.Truncate(w.size)
	if err == nil {
		_, err = w.f.Seek(w.size, io.SeekStart)
	}
	if err != nil {
		return fmt.Errorf("pubsub: cutting off what was not written whole: %w", err)
	}
	w.dirty = false
	return nil
}

// add writes letters, and returns nil when all are there for good. With an error some may
// lie there: readers may have seen them, so that they stay, and their numbers are theirs.
// What lies there already, because it was not acked in time, is not written twice.
func (w *shelfWriter) add(all []*letter) error {
	if err := w.cut(); err != nil {
		return err
	}
	if w.size >= w.full {
		if err := w.begin(); err != nil {
			return err
		}
	}
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	next := w.next
	var fresh []*letter
	for _, one := range all {
		twice, err := w.knows(one)
		if err != nil {
			return err
		}
		if twice || slices.ContainsFunc(fresh, one.same) {
			continue
		}
		one.N = next
		if err := enc.Encode(one); err != nil {
			return fmt.Errorf("pubsub: writing down a letter: %w", err)
		}
		next++
		fresh = append(fresh, one)
	}
	if len(fresh) == 0 {
		return w.flush()
	}
	w.dirty, w.loose = true, true
	n, err := w.f.Write(text.Bytes())
	whole := text.Bytes()[:bytes.LastIndexByte(text.Bytes()[:n], '\n')+1]
	there := fresh[:bytes.Count(whole, []byte{'\n'})]
	w.size += int64(len(whole))
	if len(there) > 0 {
		w.next = there[len(there)-1].N + 1
	}
	for _, one := range there {
		w.remember(one)
	}
	if err != nil {
		return fmt.Errorf("pubsub: writing dead letters: %w", errors.Join(err, w.cut()))
	}
	w.dirty = false
	return w.flush()
}

// key names a letter by all that is in it. One without redeliver's state, which has the
// time of its failure, may have a twin that is another message: it is not known again.
func (l *letter) key() (key [sha256.Size]byte, ok bool) {
	if _, c := newRecord(l.message(), true, nil); c == nil || len(c.headers) == 0 {
		return key, false
	}
	h := sha256.New()
	_, _ = fmt.Fprintf(h, "%q %d %s", l.UUID, len(l.Payload), l.Payload)
	for _, e := range l.Metadata {
		_, _ = fmt.Fprintf(h, "%q %q", e.Name, e.Value)
	}
	return [sha256.Size]byte(h.Sum(nil)), true
}

// knows tells whether a letter lies on the shelf already. One that was settled meanwhile
// may have been written to the topic anew, by an import.
func (w *shelfWriter) knows(l *letter) (bool, error) {
	key, ok := l.key()
	if !ok {
		return false, nil
	}
	was, ok := w.seen[key]
	if !ok {
		return false, nil
	}
	if _, err := os.Stat(w.letters(was.base)); err != nil {
		return false, ignored(err) // all that was in it is settled
	}
	out, err := w.settled(was.base)
	return err == nil && !out.has(was.n), err
}

// same tells whether another letter is this one.
func (l *letter) same(other *letter) bool {
	mine, ok := l.key()
	theirs, known := other.key()
	return ok && known && mine == theirs
}

func (w *shelfWriter) remember(l *letter) {
	key, ok := l.key()
	if !ok {
		return
	}
	_, again := w.seen[key]
	w.seen[key] = shelved{w.base, l.N}
	if again {
		return
	}
	if w.order = append(w.order, key); len(w.order) > remembered {
		delete(w.seen, w.order[0])
		w.order = w.order[1:]
	}
}

func (w *shelfWriter) close() error {
	if err := w.f.Close(); err != nil {
		return fmt.Errorf("pubsub: %w", err)
	}
	return nil
}
