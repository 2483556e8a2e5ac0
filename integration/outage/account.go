package main

import (
	"slices"
	"sync"
	"time"
)

// keys is the number of different keys of the messages.
const keys = 100

// account records the state of each message of one service. Messages are numbered in the order of their writes.
type account struct {
	time timeline
	call *dependency

	mu          sync.Mutex
	written     []time.Time // when the write began
	done        []time.Time // first success, or zero
	runs        []int       // successes
	dead        []bool      // the service has reported it as dead-lettered
	latest      [keys]int   // by key: one more than the highest number that has succeeded
	left        int         // neither done nor dead
	deadLetters int

	overtook int
	samples  []sample
}

// sample is the state at one point in time.
type sample struct {
	at      time.Duration
	backlog int // written, neither done nor dead
	dead    int
}

func newAccount(t timeline) *account {
	return &account{
		time: t, call: &dependency{time: t}, left: t.messages,
		written: make([]time.Time, t.messages), done: make([]time.Time, t.messages), runs: make([]int, t.messages), dead: make([]bool, t.messages),
	}
}

func (a *account) write(first, end int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	for id := first; id < end; id++ {
		a.written[id] = now
	}
}

// succeed records that a handler is about to return nil.
func (a *account) succeed(id int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.runs[id]++; a.runs[id] > 1 {
		return
	}
	now := time.Now()
	a.done[id] = now
	if id < a.latest[id%keys] {
		a.overtook++
	}
	a.latest[id%keys] = max(a.latest[id%keys], id+1)
	if !a.dead[id] {
		a.left--
	}
}

// addDeadLetter records a message that the service has reported as dead-lettered.
func (a *account) addDeadLetter(id int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.dead[id] {
		return
	}
	a.dead[id] = true
	a.deadLetters++
	if a.runs[id] == 0 {
		a.left--
	}
}

// sample adds a sample, and reports whether all is settled.
func (a *account) sample(at time.Duration) (all bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	unwritten := 0
	for id := len(a.written) - 1; id >= 0 && a.written[id].IsZero(); id-- {
		unwritten++
	}
	a.samples = append(a.samples, sample{at: at, backlog: a.left - unwritten, dead: a.deadLetters})
	return a.left == 0
}

// figures are the results of a service.
type figures struct {
	Messages, Done int
	Dead           int // different messages in the DLQ, as an independent reader found it
	Lost           int // neither done nor in the DLQ at the end
	Twice          int // successes of messages beyond the first
	Both           int // done, and in the DLQ
	Copies         int // copies in the DLQ beyond the first of a message
	Calls          int64
	Overtook       int           // done after a later one of their key
	P50, P99, Max  time.Duration // from the write to the success
	Recovered      time.Duration // from the end of the outage until all messages written before it, except dead letters, were done
	Again          time.Duration // from the end of the outage until the first was done
}

// figures computes the results. dead has what an independent reader found in the DLQ: the number of copies by message.
func (a *account) figures(dead map[int]int) figures {
	a.mu.Lock()
	defer a.mu.Unlock()
	f := figures{Messages: len(a.written), Dead: len(dead), Calls: a.call.during.Load(), Overtook: a.overtook, Again: a.time.maxWait}
	var took []time.Duration
	up := a.time.began.Add(a.time.up)
	for id, at := range a.done {
		switch {
		case at.IsZero() && dead[id] == 0:
			f.Lost++
			continue
		case at.IsZero():
			continue
		}
		f.Done++
		if dead[id] > 0 {
			f.Both++
		}
		f.Twice += a.runs[id] - 1
		took = append(took, at.Sub(a.written[id]))
		if at.After(up) {
			f.Again = min(f.Again, at.Sub(up))
		}
		if a.written[id].Before(up) {
			f.Recovered = max(f.Recovered, at.Sub(up))
		}
	}
	for _, n := range dead {
		f.Copies += n - 1
	}
	slices.Sort(took)
	if n := len(took); n > 0 {
		f.P50, f.P99, f.Max = took[n/2], took[n*99/100], took[n-1]
	}
	return f
}
