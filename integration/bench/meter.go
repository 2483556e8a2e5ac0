package main

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

// meter counts the messages that a side settles, and reads clock and CPU time at the first and at the last wanted
// message. It is safe for concurrent use.
type meter struct {
	want    int64
	settled atomic.Int64
	entries tally // all runs of the handler
	began   time.Time
	cpu     time.Duration // when it began
	first   atomic.Int64  // unix nanoseconds; 0 for none
	busy    atomic.Int64  // the CPU time until then, in nanoseconds
	done    chan struct{}
	end     time.Time     // is set when done is closed
	endCPU  time.Duration // as end
}

// newMeter starts the measurement.
func newMeter(want int) *meter {
	return &meter{want: int64(want), began: time.Now(), cpu: cpuTime(), done: make(chan struct{})}
}

// enter notes a run of the handler.
func (m *meter) enter(value []byte) {
	if m.entries.add(value) == 1 {
		m.busy.Store(int64(cpuTime()))
		m.first.Store(time.Now().UnixNano())
	}
}

// settle records that a message has reached its end. Messages after the last wanted one are only counted.
func (m *meter) settle() {
	if m.settled.Add(1) == m.want {
		m.end, m.endCPU = time.Now(), cpuTime()
		close(m.done)
	}
}

// outcome returns what was measured until the last wanted message or, if no number is wanted, until now.
func (m *meter) outcome() *outcome {
	if m.want == 0 {
		m.end, m.endCPU = time.Now(), cpuTime()
	}
	first := time.Unix(0, m.first.Load())
	return &outcome{
		Count: m.settled.Load(), Sum: m.entries.sum.Load(), Entries: m.entries.count.Load(),
		Seconds: m.end.Sub(first).Seconds(), Joined: first.Sub(m.began).Seconds(),
		CPU: (m.endCPU - m.cpu).Seconds(), Busy: (m.endCPU - time.Duration(m.busy.Load())).Seconds(), PeakRSS: memory("VmHWM"), Finished: m.end,
	}
}

// cpuTime is the user and system time of this process.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// memory reads a line of /proc/self/status: VmRSS, or VmHWM for its peak. ru_maxrss is wrong for the peak: it
// survives exec, so a child would show its parent's.
func memory(field string) int64 {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for l := range bytes.Lines(text) {
		rest, ok := bytes.CutPrefix(l, []byte(field+":"))
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(string(bytes.TrimSpace(bytes.TrimSuffix(bytes.TrimSpace(rest), []byte("kB")))), 10, 64)
		if err != nil {
			return 0
		}
		return n << 10
	}
	return 0
}

// samples collects durations without a lock; those that do not fit are counted and dropped. They are outside
// Go's heap, where they would make the garbage collector of the side under test run less often.
type samples struct {
	n    atomic.Int64
	room []time.Duration
}

func newSamples(capacity int) (*samples, error) {
	b, err := syscall.Mmap(-1, 0, capacity*8, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		return nil, fmt.Errorf("memory for %d samples: %w", capacity, err)
	}
	return &samples{room: unsafe.Slice((*time.Duration)(unsafe.Pointer(&b[0])), capacity)}, nil //nolint:gosec // The mapping is page-aligned and stays.
}

func (s *samples) add(d time.Duration) {
	if i := s.n.Add(1) - 1; i < int64(len(s.room)) {
		s.room[i] = d
	}
}

// lateness is a distribution of durations in milliseconds.
type lateness struct {
	Samples   int64   `json:"samples"`
	Min       float64 `json:"min"`
	P50       float64 `json:"p50"`
	P99       float64 `json:"p99"`
	P999      float64 `json:"p999"`
	Max       float64 `json:"max"`
	Early     int64   `json:"early"` // below zero
	Over10ms  int64   `json:"over10ms"`
	Over100ms int64   `json:"over100ms"`
	Overflow  int64   `json:"overflow"`
}

func (s *samples) summary() *lateness {
	n := s.n.Load()
	all := s.room[:min(n, int64(len(s.room)))]
	if len(all) == 0 {
		return nil
	}
	slices.Sort(all)
	ms := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
	at := func(q float64) float64 { return ms(all[min(len(all)-1, int(q*float64(len(all))))]) }
	above := func(d time.Duration) int64 {
		i, _ := slices.BinarySearch(all, d)
		return int64(len(all) - i)
	}
	return &lateness{
		Samples: n, Min: ms(all[0]), P50: at(0.5), P99: at(0.99), P999: at(0.999), Max: ms(all[len(all)-1]),
		Early: int64(len(all)) - above(0), Over10ms: above(10 * time.Millisecond), Over100ms: above(100 * time.Millisecond),
		Overflow: n - int64(len(all)),
	}
}
