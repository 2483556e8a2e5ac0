package kafka

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/delayqueue"
)

// A subscription's control topic, "<topic>.<group>.control", has the commands to its
// consumers, and what these did because of them. It has one partition, so that
// everybody reads the same order, and is compacted. Its keys:
//
//	seen                                    that a member has begun to read this
//	command/<id>                            what is asked
//	progress/<id>/<level>/<partition>       how far that is on a partition of a level
//	settled/<level>/<partition>/<block>/<session>  which records of it a session has settled although records before them wait
const (
	seenKey        = "seen"
	commandPrefix  = "command/"
	progressPrefix = "progress/"
	settledPrefix  = "settled/"
)

// waitPlace is a partition of a topic on which messages wait.
type waitPlace struct {
	level     time.Duration // 0 for the way back
	partition int32
}

// String is the place as it stands in keys.
func (p waitPlace) String() string {
	name := string(retryTopic)
	if p.level > 0 {
		name = delayqueue.LevelName(p.level)
	}
	return name + "/" + strconv.FormatInt(int64(p.partition), 10)
}

func parseWaitPlace(text string) (p waitPlace, err error) {
	name, number, _ := strings.Cut(text, "/")
	if name != string(retryTopic) {
		level, ok := delayqueue.ParseLevel(name)
		if !ok {
			return p, fmt.Errorf("%q is no level", name)
		}
		p.level = level
	}
	n, err := strconv.ParseInt(number, 10, 32)
	p.partition = int32(n)
	return p, err
}

// progress is how far a command is on one partition of a level.
type progress struct {
	Released  int64     `json:"released,omitempty"`
	Cancelled int64     `json:"cancelled,omitempty"`
	Refused   int64     `json:"refused,omitempty"`
	Walked    bool      `json:"walked,omitempty"` // all of it was looked at
	Updated   time.Time `json:"updated"`
	Note      string    `json:"note,omitempty"`
}

// seen says when a member last began to read commands.
type seen struct {
	Began time.Time `json:"began"`
}

// book is what the control topic says up to an offset. It has no lock of its own.
type book struct {
	next     int64                // of the control topic
	commands []deadletter.Command // in the order in which they were given
	progress map[string]map[waitPlace]progress
	settled  map[waitPlace]blocks
	strange  int // records that nobody here can have written
}

func newBook() *book {
	return &book{progress: make(map[string]map[waitPlace]progress), settled: make(map[waitPlace]blocks)}
}

// refresh reads on to the end of the log. mu guards the book, and is let go while the
// broker is asked.
func (b *book) refresh(ctx context.Context, log *logReader, mu sync.Locker) error {
	mu.Unlock()
	start, end, err := log.bounds(ctx, 0)
	mu.Lock()
	if err != nil {
		return err
	}
	if end < b.next { // it was deleted and made anew
		*b = *newBook()
	}
	b.next = max(b.next, start)
	for b.next < end {
		next := b.next
		mu.Unlock()
		p, err := log.read(ctx, 0, next)
		mu.Lock()
		if err != nil {
			return err
		}
		for _, r := range p.records {
			b.apply(r.key, r.value)
		}
		b.next = p.next
		if p.end && p.next < end {
			return fmt.Errorf("kafka: %s could be read to offset %d of %d only: somebody writes to it in transactions", log.topic, p.next, end)
		}
	}
	return nil
}

// apply reads one record. What is garbage is passed over: it asks nothing and
// settles nothing.
func (b *book) apply(key, value []byte) {
	k := string(key)
	var err error
	switch {
	case k == seenKey: // for people, and to be read at all
	case strings.HasPrefix(k, commandPrefix):
		err = b.command(strings.TrimPrefix(k, commandPrefix), value)
	case strings.HasPrefix(k, progressPrefix):
		err = b.note(strings.TrimPrefix(k, progressPrefix), value)
	case strings.HasPrefix(k, settledPrefix):
		err = b.settle(strings.TrimPrefix(k, settledPrefix), value)
	default:
		err = errors.New("no key of ours")
	}
	if err != nil {
		b.strange++
	}
}

func (b *book) command(id string, value []byte) error {
	i := slices.IndexFunc(b.commands, func(c deadletter.Command) bool { return c.ID == id })
	if value == nil {
		if i >= 0 {
			b.commands = slices.Delete(b.commands, i, i+1)
		}
		return nil
	}
	c, err := readCommand(value)
	if err != nil || c.ID != id {
		return fmt.Errorf("command %s is unreadable: %w", id, err)
	}
	if c.Kind != deadletter.ReleaseWaiting && c.Kind != deadletter.CancelWaiting || c.Filter.All() != c.Everything || c.Rate < 0 {
		return fmt.Errorf("command %s asks what cannot be asked", id)
	}
	if err := c.Filter.Check(); err != nil {
		return err
	}
	if i >= 0 {
		b.commands[i] = c
	} else {
		b.commands = append(b.commands, c)
	}
	return nil
}

// readCommand reads a command. A field of its filter that is not known here narrows it
// down: who passed that over would take more than is meant.
func readCommand(value []byte) (c deadletter.Command, err error) {
	if err = json.Unmarshal(value, &c); err != nil {
		return c, err
	}
	var text struct {
		Filter json.RawMessage `json:"filter"`
	}
	if err = json.Unmarshal(value, &text); err != nil || text.Filter == nil {
		return c, err
	}
	strict := json.NewDecoder(bytes.NewReader(text.Filter))
	strict.DisallowUnknownFields()
	var f deadletter.WaitingFilter
	return c, strict.Decode(&f)
}

func (b *book) note(key string, value []byte) error {
	id, rest, _ := strings.Cut(key, "/")
	place, err := parseWaitPlace(rest)
	if err != nil {
		return err
	}
	if value == nil {
		if delete(b.progress[id], place); len(b.progress[id]) == 0 {
			delete(b.progress, id)
		}
		return nil
	}
	var p progress
	if err := json.Unmarshal(value, &p); err != nil {
		return err
	}
	if b.progress[id] == nil {
		b.progress[id] = make(map[waitPlace]progress)
	}
	b.progress[id][place] = p
	return nil
}

func (b *book) settle(key string, value []byte) error {
	parts := strings.SplitN(key, "/", 4)
	if len(parts) < 3 {
		return errors.New("no block")
	}
	place, err := parseWaitPlace(parts[0] + "/" + parts[1])
	if err != nil {
		return err
	}
	n, err := strconv.ParseInt(parts[2], 10, 64)
	if err != nil || n < 0 {
		return errors.Join(err, errors.New("no block"))
	}
	var session string // without one: of versions whose sessions went on with each other's blocks
	if len(parts) == 4 {
		session = parts[3]
	}
	if value == nil {
		if b.settled[place].drop(n, session); len(b.settled[place]) == 0 {
			delete(b.settled, place)
		}
		return nil
	}
	var read block
	if err := json.Unmarshal(value, &read); err != nil || len(read.Bits) != blockSize/8 {
		return fmt.Errorf("block %s has %d bytes: %w", key, len(read.Bits), err)
	}
	if b.settled[place] == nil {
		b.settled[place] = make(blocks)
	}
	b.settled[place].put(n, session, &read)
	return nil
}

func commandEntry(c *deadletter.Command) (stateEntry, error) { return jsonEntry(commandPrefix+c.ID, c) }

func progressKey(id string, p waitPlace) string { return progressPrefix + id + "/" + p.String() }

func blockKey(p waitPlace, ref blockRef) string {
	key := settledPrefix + p.String() + "/" + strconv.FormatInt(ref.n, 10)
	if ref.session != "" {
		key += "/" + ref.session
	}
	return key
}
