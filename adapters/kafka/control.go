package kafka

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/IBM/sarama"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/internal/driver"
)

const (
	// commandsEvery is how often a member asks for new commands: two small requests.
	commandsEvery = time.Second
	// controlPause is the time between two looks for a control topic that does not exist: it
	// is created with the first command.
	controlPause = 5 * time.Second
	// maxCommandsWait is how long a partition of a delay topic waits for the first answer
	// of the control topic. Without it, a canceled message that is due could run.
	maxCommandsWait = 5 * time.Second
)

// control reads the commands to the group. Every member reads the whole control topic,
// outside of the group, and writes nothing to it.
//
// A command settles no message. A release makes the messages of a level due; their lane
// then lets them go like all others. A cancel is looked up when a message falls due, and
// a message that it takes is settled when the DLQ has confirmed it. So whoever may write
// to the control topic can make messages run early, or send them to the DLQ, but cannot
// make them vanish.
type control struct {
	r       *reader
	every   time.Duration
	current atomic.Pointer[commands]
	read    chan struct{} // closed after the first try to read the topic

	mu      sync.Mutex
	hearers map[*func()]struct{} // are called when there are other commands

	// Of the goroutine of run.
	book   book
	exists bool
	again  time.Time // when to look for the topic again
	err    error     // of the last look
	failed bool      // the last try to read the topic failed
}

// commands are those that have not expired. A value never changes.
type commands struct{ all []deadletter.Command }

func newControl(r *reader) *control {
	c := &control{r: r, every: commandsEvery, read: make(chan struct{}), exists: r.layout.control.exists, hearers: make(map[*func()]struct{})}
	c.current.Store(&commands{})
	return c
}

// listen calls f, which must not block, when there are other commands, until end is called.
func (c *control) listen(f func()) (end func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hearers[&f] = struct{}{}
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.hearers, &f)
	}
}

// start begins to read commands. The returned function ends that.
func (c *control) start() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.run(ctx)
	}()
	return func() {
		cancel()
		<-done
	}
}

func (c *control) run(ctx context.Context) {
	tick := time.NewTicker(c.every)
	defer tick.Stop()
	for first := true; ; first = false {
		err := c.refresh(ctx)
		if ctx.Err() != nil {
			return
		}
		c.report(err)
		c.update(time.Now())
		if first {
			close(c.read)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// await returns when the topic was read once, or cannot be read.
func (c *control) await(ctx context.Context) {
	timer := time.NewTimer(maxCommandsWait)
	defer timer.Stop()
	select {
	case <-c.read:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// refresh reads the control topic to its end. It is no error that there is none.
func (c *control) refresh(ctx context.Context) error {
	if !c.exists {
		if time.Now().Before(c.again) {
			return c.err
		}
		topic := c.r.layout.control.name
		there, err := until(ctx, aside, func() (map[string]*sarama.TopicMetadata, error) { return c.r.client.admin.topics(topic) }, nil)
		if c.exists, c.err = there[topic] != nil, err; !c.exists {
			c.again = time.Now().Add(controlPause)
			return c.err
		}
	}
	err := c.book.refresh(ctx, &logReader{client: c.r.client.admin.client, topic: c.r.layout.control.name})
	if errors.Is(err, sarama.ErrUnknownTopicOrPartition) {
		c.exists, c.book.next = false, 0 // one that is created again is read from its beginning
		return nil
	}
	return err
}

// report reports once that the control topic cannot be read, and that it can be again. It
// also reports the commands that are not obeyed.
func (c *control) report(err error) {
	switch failed := err != nil; {
	case failed && !c.failed:
		c.r.tell(redeliver.ChangeCommandsNotRead, "trying again; messages that wait can be neither released nor cancelled, all else goes on", err)
	case !failed && c.failed:
		c.r.tell(redeliver.ChangeCommandsRead, "", nil)
	}
	c.failed = err != nil
	for _, err := range c.book.refused {
		c.r.tell(redeliver.ChangeCommandIgnored, "see who writes to "+c.r.layout.control.name, err)
	}
	c.book.refused = nil
}

// update publishes the commands that have not expired, and reports those that are new.
func (c *control) update(now time.Time) {
	was, is := c.current.Load(), &commands{}
	for _, cmd := range c.book.commands {
		if now.Before(cmd.Expires) {
			is.all = append(is.all, cmd)
		}
	}
	if slices.EqualFunc(was.all, is.all, func(x, y deadletter.Command) bool { return reflect.DeepEqual(x, y) }) {
		return
	}
	c.current.Store(is)
	c.mu.Lock()
	for f := range c.hearers {
		(*f)()
	}
	c.mu.Unlock()
	for _, cmd := range is.all {
		if slices.ContainsFunc(was.all, func(old deadletter.Command) bool { return old.ID == cmd.ID }) {
			continue
		}
		detail := fmt.Sprintf("%s by %s: %s", cmd.ID, cmd.Who, cmd.Why)
		if cmd.Kind == deadletter.ReleaseWaiting && c.r.perKey() {
			c.r.tell(redeliver.ChangeCommandIgnored, detail, errPerKeyRelease)
			continue
		}
		change := redeliver.ChangeReleased
		if cmd.Kind == deadletter.CancelWaiting {
			change = redeliver.ChangeCancelled
		}
		c.r.tell(change, detail, nil)
	}
}

// errPerKeyRelease is the error of a release where a key waits for its failures.
var errPerKeyRelease = errors.New("kafka: the order of the policy is PerKey: a message may run only when it is the first of its key, so nothing is released")

// released returns until when a message must have been written to a level to be due at
// once, in Unix milliseconds. It is 0 where nothing is released.
func (s *commands) released(level time.Duration) (until int64) {
	for i := range s.all {
		if cmd := &s.all[i]; cmd.Kind == deadletter.ReleaseWaiting && cmd.Filter.OnLevel(level) {
			until = max(until, cmd.Created.UnixMilli())
		}
	}
	return until
}

// canceling returns the command that cancels a message which falls due, nil for none. written is when it was written to where
// it waits, in Unix milliseconds.
func (s *commands) canceling(m *driver.Message[*sarama.ConsumerMessage], written int64, level time.Duration, now time.Time) *deadletter.Command {
	var seen *deadletter.Message
	for i := range s.all {
		cmd := &s.all[i]
		if cmd.Kind != deadletter.CancelWaiting {
			continue
		}
		if seen == nil {
			seen = waitingMessage(m, written)
		}
		if cmd.Takes(seen, level, now) {
			return cmd
		}
	}
	return nil
}

// waitingMessage is a message as a filter sees it.
func waitingMessage(m *driver.Message[*sarama.ConsumerMessage], written int64) *deadletter.Message {
	rec := m.Record
	seen := &deadletter.Message{
		ID: m.State.ID, Key: rec.Key, Body: rec.Value, State: *m.State, Writer: deadletter.WriterRedeliver, Time: time.UnixMilli(written),
		Headers: make([]deadletter.Header, 0, len(rec.Headers)),
	}
	for _, h := range rec.Headers {
		if h != nil {
			seen.Headers = append(seen.Headers, deadletter.Header{Name: string(h.Key), Value: h.Value})
		}
	}
	return seen
}
