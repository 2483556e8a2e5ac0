package kafka

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redeliver/redeliver/deadletter"
)

// A subscription's control topic, "<topic>.<group>.control", has the commands to its
// consumers. It has one partition, so that everybody reads the same order, and is
// compacted. Each key is "command/<id>".
const commandPrefix = "command/"

// book is the commands that the control topic has up to an offset, in the order in which
// they were given. It has no lock of its own.
type commandLog struct {
	next     int64
	commands []deadletter.Command
	refused  []error // why records are not obeyed
}

// refresh reads on to the end of the log.
func (b *commandLog) refresh(ctx context.Context, log *logReader) error {
	start, end, err := log.bounds(ctx, 0)
	if err != nil {
		return err
	}
	if end < b.next { // it was deleted and made anew
		*b = commandLog{}
	}
	b.next = max(b.next, start)
	for b.next < end {
		p, err := log.read(ctx, 0, b.next)
		if err != nil {
			return err
		}
		for i := range p.records {
			b.apply(&p.records[i])
		}
		b.next = p.next
		if p.end && p.next < end {
			return fmt.Errorf("kafka: %s could be read to offset %d of %d only: somebody writes to it in transactions", log.topic, p.next, end)
		}
	}
	return nil
}

// apply reads one record. It ignores those of other keys: older versions wrote more.
func (b *commandLog) apply(r *fetchedRecord) {
	id, ours := strings.CutPrefix(string(r.key), commandPrefix)
	if !ours {
		return
	}
	b.commands = slices.DeleteFunc(b.commands, func(c deadletter.Command) bool { return c.ID == id })
	if r.value == nil {
		return
	}
	c, err := readCommand(id, r)
	if err != nil {
		b.refused = append(b.refused, fmt.Errorf("kafka: command %.40q: %w", id, err))
		return
	}
	b.commands = append(b.commands, c)
}

// readCommand reads a command. A field of its filter that is not known here narrows it
// down: who passed that over would take more than is meant.
//
// A command takes what was scheduled before it, by the earliest of three clocks: that of
// whoever gave it, the broker's, which times the record, and ours. A clock that is ahead
// must not release again what fails later.
func readCommand(id string, r *fetchedRecord) (c deadletter.Command, err error) {
	if err = json.Unmarshal(r.value, &c); err != nil {
		return c, err
	}
	var text struct {
		Filter json.RawMessage `json:"filter"`
	}
	if err = json.Unmarshal(r.value, &text); err != nil {
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
	for _, at := range []time.Time{r.at, time.Now()} {
		if at.Before(c.Created) {
			c.Created = at
		}
	}
	return c, c.Check()
}
