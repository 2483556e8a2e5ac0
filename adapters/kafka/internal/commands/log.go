// Package commands has the commands to the members of a group. An operator writes them to the group's control topic,
// "<topic>.<group>.control"; every member reads the whole topic, outside of the group, and writes nothing to it.
//
// A command settles no message. A release makes the messages of a level due, and their lane handles them as usual. A
// cancel is looked up when a message is due; the message settles when the DLQ has confirmed it. A pause closes the gate
// of the subscription. So a program that may write to the control topic can make messages run early or late or send
// them to the DLQ, but cannot make them vanish.
//
// A member has a [Follower], which reads the topic at intervals and has the current [Set]. An operator has a [Topic].
package commands

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka/internal/topiclog"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/internal/wirename"
)

// The keys of the control topic. It has one partition, so that all readers see the same order, and is compacted.
const keyPrefix = "command/" // of each command, before its id

// log has the commands of the control topic up to an offset, in order.
type log struct {
	next     int64
	paused   *redeliver.PauseMark // nil for none
	commands []deadletter.Command
	refused  []error // why commands are ignored
}

// refresh reads to the end of the topic.
func (l *log) refresh(ctx context.Context, topic *topiclog.Reader) error {
	start, end, err := topic.Bounds(ctx, 0)
	if err != nil {
		return err
	}
	if end < l.next { // the topic was deleted and created again
		*l = log{}
	}
	if l.next == 0 { // the topic is read from its beginning
		l.paused = nil
	}
	l.next, err = topic.ReadToEnd(ctx, 0, max(l.next, start), end, l.apply)
	return err
}

// apply reads one record. It ignores unknown keys.
func (l *log) apply(r *topiclog.Record) {
	if string(r.Key) == wirename.PauseKey {
		if l.paused = nil; r.Value != nil {
			mark := redeliver.ParsePauseMark(string(r.Value))
			l.paused = &mark
		}
		return
	}
	id, ours := strings.CutPrefix(string(r.Key), keyPrefix)
	if !ours {
		return
	}
	l.commands = slices.DeleteFunc(l.commands, func(c deadletter.Command) bool { return c.ID == id })
	if r.Value == nil {
		return
	}
	c, err := readCommand(id, r)
	if err != nil {
		l.refused = append(l.refused, fmt.Errorf("kafka: command %.40q: %w", id, err))
		return
	}
	l.commands = append(l.commands, c)
}

// readCommand parses a command. It refuses filters with unknown fields: a field narrows the filter, so without it the
// command would take more messages than meant.
//
// A command takes messages that were scheduled before it. The earliest of three clocks counts: the sender's, the
// broker's, which times the record, and ours. With a clock that is ahead, the command would also take messages that
// fail later.
func readCommand(id string, r *topiclog.Record) (c deadletter.Command, err error) {
	if err = json.Unmarshal(r.Value, &c); err != nil {
		return c, err
	}
	var text struct {
		Filter json.RawMessage `json:"filter"`
	}
	if err = json.Unmarshal(r.Value, &text); err != nil {
		return c, err
	}
	if text.Filter != nil {
		strict := json.NewDecoder(bytes.NewReader(text.Filter))
		strict.DisallowUnknownFields()
		if err = strict.Decode(new(deadletter.WaitingFilter)); err != nil {
			return c, err
		}
	}
	if c.ID != id {
		return c, fmt.Errorf("it says that its id is %.40q", c.ID)
	}
	for _, at := range []time.Time{r.Time, time.Now()} {
		if at.Before(c.Created) {
			c.Created = at
		}
	}
	return c, c.Check()
}
