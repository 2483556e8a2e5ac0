package sidecar

import (
	"bytes"
	"fmt"
	"sync"
)

const (
	maxOutput = 64 << 10 // of what one child says, in bytes
	maxLine   = 4 << 10
)

// output passes on what one child says, up to a bound.
type output struct {
	say     func(line string)
	mu      sync.Mutex
	left    int
	dropped int
}

func newOutput(say func(line string)) *output { return &output{say: say, left: maxOutput} }

// stream is one of the two things that a child writes to. The last keep bytes stay in
// tail.
func (o *output) stream(keep int) *stream { return &stream{o: o, keep: keep} }

type stream struct {
	o    *output
	keep int
	tail []byte
	line []byte // what no newline has ended yet
}

// Write implements [io.Writer]. It never fails: a child that says too much may go on.
func (s *stream) Write(p []byte) (int, error) {
	n := len(p)
	if s.keep > 0 {
		s.tail = append(s.tail, p[max(0, n-s.keep):]...)
		s.tail = s.tail[max(0, len(s.tail)-s.keep):]
	}
	s.o.mu.Lock()
	defer s.o.mu.Unlock()
	pass := p[:min(n, s.o.left)]
	s.o.left -= len(pass)
	s.o.dropped += n - len(pass)
	for len(pass) > 0 {
		i := bytes.IndexByte(pass, '\n')
		if i < 0 || len(s.line)+i > maxLine {
			i = min(len(pass), maxLine-len(s.line))
			s.line = append(s.line, pass[:i]...)
			pass = pass[i:]
			if len(s.line) < maxLine {
				break
			}
		} else {
			s.line = append(s.line, pass[:i]...)
			pass = pass[i+1:]
		}
		s.flush()
	}
	return n, nil
}

// flush says the line. The caller holds the output's lock.
func (s *stream) flush() {
	s.o.say(string(s.line))
	s.line = s.line[:0]
}

// end passes on the rest when the child has ended.
func (o *output) end(all ...*stream) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, s := range all {
		if len(s.line) > 0 {
			s.flush()
		}
	}
	if o.dropped > 0 {
		o.say(fmt.Sprintf("(%d more bytes)", o.dropped))
	}
}
