package examples_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"
)

// event is a decoded line of the worker.
type event struct {
	Event   string  `json:"event"`
	ID      string  `json:"id"`
	Topic   string  `json:"topic"`
	Attempt int     `json:"attempt"`
	Due     string  `json:"due"`
	At      string  `json:"at"`
	Reason  string  `json:"reason"`
	Key     *string `json:"key"`
}

// event returns the next line of a worker.
func (p *program) event() event {
	p.t.Helper()
	line, ok := p.next()
	if !ok {
		p.t.Fatalf("the worker has ended: %s", p.errors())
	}
	p.said = append(p.said, line)
	return read(p.t, line)
}

// read decodes a line and checks its form.
func read(t *testing.T, line string) event {
	t.Helper()
	var e event
	fields := json.NewDecoder(strings.NewReader(line))
	fields.DisallowUnknownFields()
	if err := fields.Decode(&e); err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	stamp(t, e.At)
	return e
}

const millis = "2006-01-02T15:04:05.000Z"

// stamp parses a time of a line, which must be in UTC and have milliseconds.
func stamp(t *testing.T, text string) time.Time {
	t.Helper()
	at, err := time.Parse(millis, text)
	if err != nil || len(text) != len(millis) {
		t.Errorf("time %q is not of the form %s (%v)", text, millis, err)
	}
	return at
}

// step is an expected line.
type step struct {
	event   string
	attempt int
	reason  string
}

func (s step) String() string {
	return strings.TrimSpace(fmt.Sprintf("%s %d %s", s.event, s.attempt, s.reason))
}

// stepLine reads the line of a step. On a slow machine a retry may be due before the worker has written its line. Then
// the line of the next attempt comes first.
func (p *program) stepLine(want step) event {
	p.t.Helper()
	if e := p.ahead; e != nil {
		p.ahead = nil
		return *e
	}
	e := p.event()
	if want.event != "retry" || e.Event != "attempt" || e.Attempt != want.attempt+1 {
		return e
	}
	retry := p.event()
	if retry.Event != "retry" || stamp(p.t, retry.At).Before(stamp(p.t, retry.Due)) {
		p.t.Fatalf("line %q, want %q: behind it is %+v", e.Event, want, retry)
	}
	p.ahead = &e
	n := len(p.said)
	p.said[n-2], p.said[n-1] = p.said[n-1], p.said[n-2]
	return retry
}

// expect reads a line for each step and checks the times: a retry is due after its wait, and the next attempt has that
// due time and is not early.
func (p *program) expect(o *origin, id string, key *string, wait time.Duration, steps ...step) {
	p.t.Helper()
	due := ""
	for _, want := range steps {
		e := p.stepLine(want)
		if got := (step{e.Event, e.Attempt, e.Reason}); got != want {
			p.t.Fatalf("line %q, want %q", got, want)
		}
		if e.ID != id || e.Topic != o.topic || !reflect.DeepEqual(e.Key, key) {
			p.t.Errorf("%s: id %s, topic %s, key %v; want %s, %s, %v", want, e.ID, e.Topic, e.Key, id, o.topic, key)
		}
		switch e.Event {
		case "attempt":
			if e.Due != due {
				p.t.Errorf("%s: due %q, want %q", want, e.Due, due)
			}
			if due != "" && stamp(p.t, e.At).Before(stamp(p.t, due)) {
				p.t.Errorf("%s: at %s, before it was due at %s", want, e.At, due)
			}
		case "retry":
			due = e.Due
			// The wait began before the line was written.
			if left := stamp(p.t, e.Due).Sub(stamp(p.t, e.At)); left > wait+time.Millisecond {
				p.t.Errorf("%s: due %s after its report, want at most %s", want, left, wait)
			}
		default:
			if e.Due != "" {
				p.t.Errorf("%s: due %s, want none", want, e.Due)
			}
		}
	}
}

// stop ends the worker gracefully and checks that it writes nothing more.
func (p *program) stop() {
	p.t.Helper()
	p.signal(syscall.SIGTERM)
	if more := p.rest(); len(more) > 0 {
		p.t.Errorf("more lines: %q", more)
	}
	if status := p.status(); status != 0 {
		p.t.Errorf("exit status %d after SIGTERM", status)
	}
}

// every returns the steps of a message whose first attempts fail and whose retries all wait.
func every(failures int, last step) []step {
	var steps []step
	for n := 1; n <= failures; n++ {
		steps = append(steps, step{"attempt", n, ""}, step{"retry", n, ""})
	}
	return append(steps, step{"attempt", last.attempt, ""}, last)
}

// quickDelay is the wait before a retry. It is long enough for a worker to write the line of the retry, in most cases,
// before the next attempt begins.
const quickDelay = 1500 * time.Millisecond

var quick = []string{"--backoff", "fixed:" + quickDelay.String(), "--retries", "2", "--timeout", "1s"}

// rules are the steps of a message under each rule, with the policy quick.
var rules = map[string][]step{
	"never":     every(0, step{"commit", 1, ""}),
	"always":    every(2, step{"dead_letter", 3, "exhausted"}),
	"permanent": every(0, step{"dead_letter", 1, "permanent"}),
	"attempt<1": every(0, step{"commit", 1, ""}),
	"attempt<3": every(2, step{"commit", 3, ""}),
	"attempt<9": every(2, step{"dead_letter", 3, "exhausted"}),
	"hang":      every(2, step{"dead_letter", 3, "timeout"}),
	"panic":     every(2, step{"dead_letter", 3, "panic"}),
}
