package middleware

import (
	"context"
	"fmt"
	"math"
	"sync"
	"time"
)

// streamsMost bounds the streams that are remembered; above that some in which
// nobody waits are forgotten, and begin anew when they come again.
const streamsMost = 100_000

// sequences is the streams of one Resequence.
type sequences struct {
	config ResequenceConfig

	mu      sync.Mutex
	streams map[string]*stream
	waiting int // messages, in all streams
}

// stream is one sequence of numbers.
type stream struct {
	name    string
	begun   bool   // next is known
	next    uint64 // the number that is to run; what is below it may
	running int    // runs of next under way
	waiters map[uint64][]chan struct{}
	patient *time.Timer // runs while somebody waits and the stream stands still
}

func newSequences(c ResequenceConfig) *sequences {
	return &sequences{config: c, streams: make(map[string]*stream)}
}

// enter returns when a number may run, or with the reason why it never may. The
// caller must then leave.
func (q *sequences) enter(ctx context.Context, name string, number uint64) (*stream, error) {
	q.mu.Lock()
	s := q.stream(name)
	if !s.begun && number <= q.config.First {
		q.advance(s, number)
	}
	if s.begun && number > s.next && q.waiting >= q.config.Buffer {
		q.skip(s, number)
	}
	if s.begun && number <= s.next {
		if number == s.next {
			s.running++
		}
		q.mu.Unlock()
		return s, nil
	}
	turn := make(chan struct{})
	s.waiters[number] = append(s.waiters[number], turn)
	q.waiting++
	q.watch(s)
	q.mu.Unlock()
	select {
	case <-turn:
		return s, nil
	case <-ctx.Done():
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	all := s.waiters[number]
	for i, c := range all {
		if c == turn {
			s.waiters[number] = append(all[:i:i], all[i+1:]...)
			q.waiting--
			if len(s.waiters[number]) == 0 {
				delete(s.waiters, number)
			}
			q.watch(s)
			return nil, fmt.Errorf("resequence: number %d of %q waited for those before it: %w", number, name, context.Cause(ctx))
		}
	}
	return s, nil // its turn came first
}

// leave notes that a number has run; over, that it does not run again.
func (q *sequences) leave(s *stream, number uint64, over bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if number != s.next {
		return // one that ran late, or was skipped while it ran
	}
	s.running = max(0, s.running-1)
	if over {
		q.advance(s, number+1)
	}
}

// stream returns a stream, a new one where it is not known.
func (q *sequences) stream(name string) *stream {
	if s := q.streams[name]; s != nil {
		return s
	}
	if len(q.streams) >= streamsMost {
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

// advance sets the number that is to run, and lets go what may.
func (q *sequences) advance(s *stream, next uint64) {
	s.begun, s.next, s.running = true, next, 0
	for number, all := range s.waiters {
		if number > next {
			continue
		}
		for _, turn := range all {
			close(turn)
			q.waiting--
			if number == next {
				s.running++
			}
		}
		delete(s.waiters, number)
	}
	if s.patient != nil { // it has not stood still
		s.patient.Stop()
		s.patient = nil
	}
	q.watch(s)
}

// watch sees to it that a stream in which somebody waits does not stand still for
// longer than is configured.
func (q *sequences) watch(s *stream) {
	switch {
	case len(s.waiters) == 0 && s.patient != nil:
		s.patient.Stop()
		s.patient = nil
	case len(s.waiters) > 0 && s.patient == nil:
		wait := q.config.Wait
		if !s.begun {
			wait = min(wait, q.config.Settle)
		}
		var timer *time.Timer
		timer = time.AfterFunc(wait, func() {
			q.mu.Lock()
			defer q.mu.Unlock()
			if s.patient != timer {
				return // it has moved meanwhile
			}
			s.patient = nil
			if s.running > 0 { // the handler takes its time
				q.watch(s)
				return
			}
			q.skip(s, math.MaxUint64)
		})
		s.patient = timer
	}
}

// skip has a stream go on with the lowest number that is there, number or less.
func (q *sequences) skip(s *stream, number uint64) {
	for n := range s.waiters {
		number = min(number, n)
	}
	from, begun := s.next, s.begun
	q.advance(s, number)
	if begun && q.config.Skipped != nil {
		q.config.Skipped(s.name, from, number-1)
	}
}
