package sidecar

import (
	"bytes"
	"fmt"
	"sync"
)

const (
	maxOutput = 64 << 10 // bytes per child
	maxLine   = 4 << 10
)

// output passes on the output of one child, up to a limit.
type output struct {
	onLine  func(line string)
	mu      sync.Mutex
	left    int
	dropped int
}

func newOutput(onLine func(line string)) *output { return &output{onLine: onLine, left: maxOutput} }

// stream returns a writer for one of the child's two outputs. It keeps the last keep bytes in tail.
func (o *output) stream(keep int) *stream { return &stream{o: o, keep: keep} }

type stream struct {
	o    *output
	keep int
	tail []byte
	line []byte // without a newline yet
}

// Write implements [io.Writer]. It never fails, because a child that exceeds the limit may continue.
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
		s.flushLocked()
	}
	return n, nil
}

// flushLocked passes on the line. The caller must hold the output's lock.
func (s *stream) flushLocked() {
	s.o.onLine(string(s.line))
	s.line = s.line[:0]
}

// end passes on the rest after the child has ended.
func (o *output) end(all ...*stream) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, s := range all {
		if len(s.line) > 0 {
			s.flushLocked()
		}
	}
	if o.dropped > 0 {
		o.onLine(fmt.Sprintf("(%d more bytes)", o.dropped))
	}
}
