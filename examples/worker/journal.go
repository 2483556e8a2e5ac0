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

// line is the output for one event. Scripts read it, so fields may be added, but never changed.
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

// journal writes the lines, and other events to the log. It is the program's [redeliver.Sink].
type journal struct {
	out io.Writer
	log redeliver.Sink
	key func(*message.Message) []byte // returns nil for a message without a key

	mu   sync.Mutex
	keys map[running]*string // of running attempts, because events have no keys
}

// running identifies an attempt. The line of the next attempt may be written before the line of the retry that led to
// it, because a broker's confirm may be late.
type running struct {
	id      string
	attempt int
}

func newJournal(out io.Writer, log *slog.Logger) *journal {
	return &journal{out: out, log: redeliver.NewSlogSink(log), keys: map[running]*string{}}
}

// attempt must be the first call of the handler.
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
		// The outcome of the attempt has its own line.
	case redeliver.Abandoned:
		j.mu.Lock()
		delete(j.keys, running{e.State.ID, e.State.Attempt()})
		j.mu.Unlock()
		j.log.Event(e)
	default:
		j.log.Event(e)
	}
}

// write writes one line in a single call.
func (j *journal) write(l line, s redeliver.State) {
	if err := j.try(l, s); err != nil {
		// Exit, so that readers do not take missing lines for success. Uncommitted messages come back.
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

// stamp formats a time for a line, or returns "" for the zero time.
func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02T15:04:05.000Z")
}

const base64Prefix = "base64:"

// keyText formats a key for a line.
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
