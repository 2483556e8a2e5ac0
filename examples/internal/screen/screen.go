// Package screen prints events of messages for people, one line for each event. The demonstrations share it.
package screen

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/redeliver/redeliver"
)

// Screen is a service's [redeliver.Sink].
type Screen struct {
	out    io.Writer
	colour bool
	began  time.Time
	prefix string // of the service's topics or queues; omitted from the lines

	mu    sync.Mutex
	late  map[string]time.Duration // of the latest attempt, by id
	again map[string]bool          // ids that the bank had charged before
	ready chan struct{}            // closed when the service reads messages
	once  sync.Once
}

// New returns a screen for a process that began at that time. The names of the topics or queues on which messages wait
// begin with prefix.
func New(out *os.File, began time.Time, prefix string) *Screen {
	info, err := out.Stat()
	terminal := err == nil && info.Mode()&os.ModeCharDevice != 0
	return &Screen{
		out: out, began: began, prefix: prefix, late: map[string]time.Duration{}, again: map[string]bool{}, ready: make(chan struct{}),
		colour: terminal && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb",
	}
}

// Colours are ANSI escape codes.
const (
	faint  = "2"
	red    = "31"
	green  = "32"
	yellow = "33"
)

// linef prints one event: time, order, event and details.
func (s *Screen) linef(colour, id, what, format string, args ...any) {
	text := fmt.Sprintf("%-12s %s", what, fmt.Sprintf(format, args...))
	if s.colour {
		text = "\x1b[" + colour + "m" + text + "\x1b[0m"
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprintf(s.out, "%6.2fs  %-8s  %s\n", time.Since(s.began).Seconds(), id, text)
}

// Placed prints that a message is sent.
func (s *Screen) Placed(id, what string) { s.linef(faint, id, "placed", "%s", what) }

// Elapsed returns how long the process has run.
func (s *Screen) Elapsed() time.Duration { return time.Since(s.began) }

// Sayf prints text that is not about an event.
func (s *Screen) Sayf(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprintf(s.out, format+"\n", args...)
}

// Event implements [redeliver.Sink].
func (s *Screen) Event(e redeliver.Event) {
	switch e := e.(type) {
	case redeliver.Attempted:
		s.mu.Lock()
		if due := e.State.Due; !due.IsZero() {
			s.late[e.State.ID] = e.Start.Sub(due)
		}
		s.mu.Unlock()
	case redeliver.Committed:
		if s.isRepeat(e.State.ID) {
			s.linef(faint, e.State.ID, "again", "on attempt %d: the bank knew the id and charged nothing", e.State.Attempt())
			return
		}
		s.linef(green, e.State.ID, "charged", "on attempt %d%s", e.State.Attempt(), s.lateness(e.State.ID, 0))
	case redeliver.RetryScheduled:
		s.linef(yellow, e.State.ID, "retry in "+short(e.Delay), "attempt %d failed: %s%s; waits on %s", e.State.Attempts, e.State.Error, s.lateness(e.State.ID, minShownLateness), s.tail(e.Where))
	case redeliver.Hopped:
		s.linef(faint, e.State.ID, "hops", "from %s to %s", s.tail(e.From), s.tail(e.To))
	case redeliver.DeadLettered:
		s.linef(red, e.State.ID, "DLQ", "attempt %d failed: %s%s; reason %s", e.State.Attempts, e.State.Error, s.lateness(e.State.ID, minShownLateness), e.State.Reason)
	case redeliver.SubscriptionChanged:
		if e.Change == redeliver.ChangeAssigned || e.Change == redeliver.ChangeConsuming {
			s.once.Do(func() { close(s.ready) })
		}
		if e.Err != nil {
			s.linef(red, "", string(e.Change), "%v", e.Err)
		}
	}
}

// Reading reports whether the service reads messages.
func (s *Screen) Reading() (bool, error) {
	select {
	case <-s.ready:
		return true, nil
	default:
		return false, nil
	}
}

// Repeat records that the bank was asked to charge an order again.
func (s *Screen) Repeat(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.again[id] = true
}

func (s *Screen) isRepeat(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	repeat := s.again[id]
	delete(s.again, id)
	return repeat
}

// minShownLateness is the lateness that is printed even in a line with other details.
const minShownLateness = 50 * time.Millisecond

// lateness describes how long after its due time an attempt began. It returns "" if that is less than minLateness.
func (s *Screen) lateness(id string, minLateness time.Duration) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	late, ok := s.late[id]
	if !ok || late < minLateness {
		return ""
	}
	if late >= time.Second {
		return fmt.Sprintf(", begun %.1f s after it was due", late.Seconds())
	}
	return fmt.Sprintf(", begun %.1f ms after it was due", late.Seconds()*1000)
}

// short formats a duration in few characters.
func short(d time.Duration) string {
	return d.Round(time.Millisecond).String()
}

// tail returns the name of a topic or queue without the common prefix.
func (s *Screen) tail(name string) string {
	if name == s.prefix { // SQS, where messages wait in the queue itself
		return name
	}
	return strings.TrimPrefix(name, s.prefix)
}
