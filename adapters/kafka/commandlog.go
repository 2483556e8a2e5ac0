package kafka

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
)

// commandPrefix begins the key of each command, "command/<id>". The control topic, "<topic>.<group>.control", has one
// partition, so that all readers see the same order, and is compacted.
const commandPrefix = "command/"

// commandLog has the commands of the control topic up to an offset, in order. It has no lock of its own.
type commandLog struct {
	next     int64
	paused   *redeliver.PauseMark // nil for none
	commands []deadletter.Command
	refused  []error // why commands are ignored
}

// refresh reads to the end of the log.
func (b *commandLog) refresh(ctx context.Context, log *topiclog.Reader) error {
	start, end, err := log.Bounds(ctx, 0)
	if err != nil {
		return err
	}
	if end < b.next { // the topic was deleted and created again
		*b = commandLog{}
	}
	if b.next == 0 { // the topic is read from its beginning
		b.paused = nil
	}
	b.next, err = log.ReadToEnd(ctx, 0, max(b.next, start), end, b.apply)
	return err
}

// apply reads one record. It ignores unknown keys.
func (b *commandLog) apply(r *topiclog.Record) {
	if string(r.Key) == pauseKey {
		if b.paused = nil; r.Value != nil {
			mark := redeliver.ParsePauseMark(string(r.Value))
			b.paused = &mark
		}
		return
	}
	id, ours := strings.CutPrefix(string(r.Key), commandPrefix)
	if !ours {
		return
	}
	b.commands = slices.DeleteFunc(b.commands, func(c deadletter.Command) bool { return c.ID == id })
	if r.Value == nil {
		return
	}
	c, err := readCommand(id, r)
	if err != nil {
		b.refused = append(b.refused, fmt.Errorf("kafka: command %.40q: %w", id, err))
		return
	}
	b.commands = append(b.commands, c)
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
