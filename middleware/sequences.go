package middleware

import (
	"context"
	"fmt"
	"math"
	"sync"
	"time"
)

// maxStreams bounds the streams that are kept. A further one replaces one without messages. The replaced stream begins
// anew with its next message.
const maxStreams = 100_000

// sequences has the streams of one Resequence.
type sequences[M any] struct {
	config ResequenceConfigOf[M]

	mu      sync.Mutex
	streams map[string]*stream
	waiting int // messages, in all streams
}

// stream is one sequence of numbers.
type stream struct {
	name      string
	begun     bool   // next is set
	next      uint64 // the number that may run; lower ones may run, too
	running   int    // running messages with the number next, whose contexts have not ended
	waiters   map[uint64][]chan struct{}
	waitTimer *time.Timer // runs while messages wait for next
}

func newSequences[M any](c ResequenceConfigOf[M]) (*sequences[M], error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	return &sequences[M]{config: c.withDefaults(), streams: make(map[string]*stream)}, nil
}

// enter waits until a number may run; then the caller must call leave. It returns an error if ctx ends first.
func (q *sequences[M]) enter(ctx context.Context, name string, number uint64) (*stream, error) {
	q.mu.Lock()
	s := q.streamLocked(name)
	if !s.begun && number <= q.config.First {
		q.advanceLocked(s, number)
	}
	if s.begun && number > s.next && q.waiting >= q.config.Buffer {
		q.skipLocked(s, number)
	}
	if s.begun && number <= s.next {
		if number == s.next {
			s.running++
		}
		q.mu.Unlock()
		return s, nil
	}
	mayRun := make(chan struct{})
	s.waiters[number] = append(s.waiters[number], mayRun)
	q.waiting++
	q.updateTimerLocked(s)
	q.mu.Unlock()
	select {
	case <-mayRun:
		return s, nil
	case <-ctx.Done():
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	all := s.waiters[number]
	for i, c := range all {
		if c == mayRun {
			s.waiters[number] = append(all[:i:i], all[i+1:]...)
			q.waiting--
			if len(s.waiters[number]) == 0 {
				delete(s.waiters, number)
			}
			q.updateTimerLocked(s)
			return nil, fmt.Errorf("resequence: number %d of %q waited for lower numbers: %w", number, name, context.Cause(ctx))
		}
	}
	return s, nil // it could run before the end of ctx
}

// leave records that a message with a number has run, or that its context has ended. counted reports whether it counts in
// running, over whether the number will not run again.
func (q *sequences[M]) leave(s *stream, number uint64, counted, over bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if number != s.next {
		return // it ran late, or the stream skipped it
	}
	if counted {
		s.running = max(0, s.running-1)
	}
	if over {
		q.advanceLocked(s, number+1)
	}
}

// streamLocked returns a stream, and creates it if it is new.
func (q *sequences[M]) streamLocked(name string) *stream {
	if s := q.streams[name]; s != nil {
		return s
	}
	if len(q.streams) >= maxStreams {
		for old, s := range q.streams {
			if len(s.waiters) == 0 && s.running == 0 {
				delete(q.streams, old)
				break
			}
		}
	}
	s := &stream{name: name, waiters: make(map[uint64][]chan struct{})}
	q.streams[name] = s
	return s
}

// advanceLocked sets the number that may run, and wakes the messages that may run now.
func (q *sequences[M]) advanceLocked(s *stream, next uint64) {
	s.begun, s.next, s.running = true, next, 0
	for number, all := range s.waiters {
		if number > next {
			continue
		}
		for _, mayRun := range all {
			close(mayRun)
			q.waiting--
			if number == next {
				s.running++
			}
		}
		delete(s.waiters, number)
	}
	if s.waitTimer != nil { // the stream continues
		s.waitTimer.Stop()
		s.waitTimer = nil
	}
	q.updateTimerLocked(s)
}

// updateTimerLocked starts or stops the timer that bounds how long the messages of a stream wait.
func (q *sequences[M]) updateTimerLocked(s *stream) {
	switch {
	case len(s.waiters) == 0 && s.waitTimer != nil:
		s.waitTimer.Stop()
		s.waitTimer = nil
	case len(s.waiters) > 0 && s.waitTimer == nil:
		wait := q.config.Wait
		if !s.begun {
			wait = min(wait, q.config.Settle)
		}
		var timer *time.Timer
		timer = time.AfterFunc(wait, func() {
			q.mu.Lock()
			defer q.mu.Unlock()
			if s.waitTimer != timer {
				return // the stream has continued meanwhile
			}
			s.waitTimer = nil
			if s.running > 0 { // a running handler is not skipped
				q.updateTimerLocked(s)
				return
			}
			q.skipLocked(s, math.MaxUint64)
		})
		s.waitTimer = timer
	}
}

// skipLocked makes a stream continue with its lowest waiting number, or with number if that is lower.
func (q *sequences[M]) skipLocked(s *stream, number uint64) {
	for n := range s.waiters {
		number = min(number, n)
	}
	from, begun := s.next, s.begun
	q.advanceLocked(s, number)
	if begun && q.config.Skipped != nil {
		q.config.Skipped(s.name, from, number-1)
	}
}
