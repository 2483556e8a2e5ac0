package main

import (
	"encoding/base64"
	"encoding/json"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
)

// line is what is written for one event. Scripts read it: fields are added, never
// changed.
type line struct {
	Event   string  `json:"event"`
	ID      string  `json:"id"`
	Topic   string  `json:"topic"`
	Attempt int     `json:"attempt"`
	Due     string  `json:"due,omitempty"`
	At      string  `json:"at"`
	Reason  string  `json:"reason,omitempty"`
	Key     *string `json:"key,omitempty"`
}

// journal writes the lines, and what is no line to the log. It is the program's
// [redeliver.Sink].
type journal struct {
	out io.Writer
	log redeliver.Sink
	key func(*message.Message) []byte // nil for a message without a key

	mu   sync.Mutex
	keys map[running]*string // of the messages whose attempt was written: events know no keys
}

// running is an attempt. The next one may be written before a broker's confirm, which is late,
// has the retry written that it came of.
type running struct {
	id      string
	attempt int
}

func newJournal(out io.Writer, log *slog.Logger) *journal {
	return &journal{out: out, log: redeliver.NewSlogSink(log), keys: map[running]*string{}}
}

// attempt is called by the handler, first of all.
func (j *journal) attempt(msg *message.Message) {
	state, _ := redeliver.FromContext(msg.Context())
	j.write(line{Event: "attempt", Attempt: state.Attempt(), Due: stamp(state.Due), Key: keyText(j.key(msg))}, state)
}

// Event implements [redeliver.Sink].
func (j *journal) Event(e redeliver.Event) {
	switch e := e.(type) {
	case redeliver.Committed:
		j.write(line{Event: "commit", Attempt: e.State.Attempt()}, e.State)
	case redeliver.RetryScheduled:
		j.write(line{Event: "retry", Attempt: e.State.Attempts, Due: stamp(e.State.Due)}, e.State)
	case redeliver.DeadLettered:
		j.write(line{Event: "dead_letter", Attempt: e.State.Attempts, Reason: string(e.State.Reason)}, e.State)
	case redeliver.Attempted:
		// Its outcome is a line of its own.
	case redeliver.Abandoned:
		j.mu.Lock()
		delete(j.keys, running{e.State.ID, e.State.Attempt()})
		j.mu.Unlock()
		j.log.Event(e)
	default:
		j.log.Event(e)
	}
}

// write writes one line, at once and whole.
func (j *journal) write(l line, s redeliver.State) {
	if err := j.try(l, s); err != nil {
		// Readers of the lines must not take silence for success. Uncommitted messages come back.
		slog.Error("writing an event", "error", err)
		os.Exit(exitFailed)
	}
}

func (j *journal) try(l line, s redeliver.State) error {
	l.ID, l.Topic = s.ID, s.Origin
	j.mu.Lock()
	defer j.mu.Unlock()
	this := running{s.ID, l.Attempt}
	if l.Event == "attempt" {
		j.keys[this] = l.Key
	} else {
		l.Key = j.keys[this]
		delete(j.keys, this)
	}
	l.At = stamp(time.Now())
	text, err := json.Marshal(l)
	if err != nil {
		return err
	}
	_, err = j.out.Write(append(text, '\n'))
	return err
}

// stamp writes a time for a line, empty for none.
func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02T15:04:05.000Z")
}

const base64Prefix = "base64:"

// keyText writes a key for a line.
func keyText(key []byte) *string {
	if key == nil {
		return nil
	}
	text := string(key)
	if !utf8.ValidString(text) || strings.HasPrefix(text, base64Prefix) {
		text = base64Prefix + base64.StdEncoding.EncodeToString(key)
	}
	return &text
}
