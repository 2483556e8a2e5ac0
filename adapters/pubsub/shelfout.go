package pubsub

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
)

// span is neighbours that are settled, by their numbers.
type span struct{ From, Through int64 }

// spans are ascending, and neither overlap nor touch.
type spans []span

// with adds a span.
func (s spans) with(x span) spans {
	// The first that x touches, and the first behind it that it does not. A damaged file may say the last number there is, and one
	// more than that is the least: one less than a beginning is always right.
	i, _ := slices.BinarySearchFunc(s, x.From, func(y span, from int64) int { return cmp.Compare(y.Through, from-1) })
	j := i
	for ; j < len(s) && s[j].From-1 <= x.Through; j++ {
		x = span{min(x.From, s[j].From), max(x.Through, s[j].Through)}
	}
	return slices.Replace(s, i, j, x)
}

func (s spans) has(n int64) bool {
	_, found := slices.BinarySearchFunc(s, n, func(x span, n int64) int {
		switch {
		case n < x.From:
			return 1
		case n > x.Through:
			return -1
		default:
			return 0
		}
	})
	return found
}

// count is how many are in them.
func (s spans) count() (n int64) {
	for _, x := range s {
		n += x.Through - x.From + 1
	}
	return n
}

func (s spans) text() []byte {
	var text bytes.Buffer
	for _, x := range s {
		_, _ = fmt.Fprintf(&text, "[%d,%d]\n", x.From, x.Through)
	}
	return text.Bytes()
}

// settled reads what is settled of a file. A last line without its end was not written
// whole, and says nothing.
func (s shelf) settled(base int64) (spans, error) {
	text, err := os.ReadFile(s.outs(base))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("pubsub: %w", err)
	}
	var all spans
	for line := range bytes.Lines(text) {
		if line[len(line)-1] != '\n' {
			break
		}
		var x [2]int64
		if err := json.Unmarshal(line, &x); err != nil || x[0] < base || x[1] < x[0] {
			return nil, fmt.Errorf("pubsub: %s is damaged: %.40q says not what is settled; remove that line: what it meant may be replayed again", s.outs(base), line)
		}
		all = all.with(span{x[0], x[1]})
	}
	return all, nil
}

// settle writes down what is settled of a file, and returns when that is there for good.
func (s shelf) settle(base int64, out spans) (err error) {
	f, err := os.OpenFile(s.outs(base), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("pubsub: %w", err)
	}
	defer func() {
		if err = errors.Join(err, f.Close()); err != nil {
			err = fmt.Errorf("pubsub: writing %s: %w", s.outs(base), err)
		}
	}()
	was, err := io.ReadAll(f)
	if err != nil {
		return err
	}
	whole := int64(bytes.LastIndexByte(was, '\n') + 1) // what is behind it was left by who died
	if err := f.Truncate(whole); err != nil {
		return err
	}
	if _, err := f.WriteAt(out.text(), whole); err != nil {
		return errors.Join(err, f.Truncate(whole))
	}
	if err := f.Sync(); err != nil {
		return err
	}
	return s.sync() // the name may be new, and who made it may have died before it was there for good
}

// shrink gives back the room of what is settled in a file that is closed: all of it, or,
// where something was settled just now, as soon as half of it is. until is where the next
// file begins. Who dies in between leaves the letters that are not settled, and what is
// known of the others.
func (s shelf) shrink(base, until int64, touched bool) error {
	out, err := s.settled(base)
	if err != nil || out.count() < until-base && (!touched || out.count()*2 < until-base) {
		return err
	}
	if out.count() >= until-base {
		// The letters first, for good: without the other file they would be there again.
		err := ignored(os.Remove(s.letters(base)))
		if err == nil {
			err = s.sync()
		}
		if err == nil {
			err = ignored(os.Remove(s.outs(base)))
		}
		if err != nil {
			return fmt.Errorf("pubsub: %w", err)
		}
		return nil
	}
	l, err := s.open(base)
	if err != nil || l == nil {
		return err
	}
	defer l.close()
	var kept bytes.Buffer
	gone := 0
	for {
		one, err := l.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		var number struct {
			N int64 `json:"n"`
		}
		if err := json.Unmarshal(one, &number); err == nil && out.has(number.N) {
			gone += len(one)
			continue
		}
		kept.Write(one) // what cannot be read is kept, too
	}
	if gone > 0 {
		if err := s.replace(s.letters(base), kept.Bytes()); err != nil {
			return err
		}
	}
	return s.replace(s.outs(base), out.text())
}
