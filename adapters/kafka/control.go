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
	"github.com/redeliver/redeliver/adapters/kafka/internal/cluster"
	"github.com/redeliver/redeliver/adapters/kafka/internal/topiclog"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/driver"
)

const (
	// commandInterval is how often a member asks for new commands, with two small requests.
	commandInterval = time.Second
	// controlRetryPause is the pause between two looks for a missing control topic. The first command creates it.
	controlRetryPause = 5 * time.Second
	// maxCommandsWait bounds how long a partition waits for the first look at the commands. Without that wait, messages
	// could run that are cancelled, or whose group is paused.
	maxCommandsWait = 5 * time.Second
)

// control reads the commands to the group. Every member reads the whole control topic, outside of the group, and writes
// nothing to it.
//
// A command settles no message. A release makes the messages of a level due, and their lane handles them as usual. A
// cancel is looked up when a message is due; the message settles when the DLQ has confirmed it. A pause closes the gate
// of the subscription. So a program that may write to the control topic can make messages run early or late or send
// them to the DLQ, but cannot make them vanish.
type control struct {
	r        *reader
	interval time.Duration
	current  atomic.Pointer[commands]
	read     chan struct{} // closed after the first attempt to read the topic

	mu        sync.Mutex
	listeners map[*func()]struct{} // called when the commands have changed

	// Used only by run.
	log      commandLog
	exists   bool
	nextLook time.Time // when to look for the topic again
	err      error     // result of the last look
	failed   bool      // the last attempt to read the topic failed
}

// commands has the commands that have not expired. It never changes.
type commands struct{ all []deadletter.Command }

func newControl(r *reader) *control {
	c := &control{r: r, interval: commandInterval, read: make(chan struct{}), exists: r.layout.control.exists, listeners: make(map[*func()]struct{})}
	c.current.Store(&commands{})
	return c
}

// listen calls f, which must not block, when the commands have changed, until end is called.
func (c *control) listen(f func()) (end func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.listeners[&f] = struct{}{}
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.listeners, &f)
	}
}

// start begins to read commands, until stop is called.
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
	tick := time.NewTicker(c.interval)
	defer tick.Stop()
	for first := true; ; first = false {
		err := c.refresh(ctx)
		if ctx.Err() != nil {
			return
		}
		c.report(err)
		c.update(time.Now())
		if err == nil && (first || c.exists) { // a topic that is missing for a moment ends no pause
			c.r.sub.SetPaused(c.log.paused)
		}
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

// await returns after the first attempt to read the topic, or after maxCommandsWait.
func (c *control) await(ctx context.Context) {
	timer := time.NewTimer(maxCommandsWait)
	defer timer.Stop()
	select {
	case <-c.read:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// refresh reads the control topic to its end. A missing topic is no error.
func (c *control) refresh(ctx context.Context) error {
	if !c.exists {
		if time.Now().Before(c.nextLook) {
			return c.err
		}
		topic := c.r.layout.control.name
		existing, err := cluster.Call(ctx, func() (map[string]*sarama.TopicMetadata, error) { return c.r.client.admin.Topics(topic) })
		if c.exists, c.err = existing[topic] != nil, err; !c.exists {
			c.nextLook = time.Now().Add(controlRetryPause)
			return c.err
		}
	}
	err := c.log.refresh(ctx, &topiclog.Reader{Client: c.r.client.admin.Client, Topic: c.r.layout.control.name})
	if errors.Is(err, sarama.ErrUnknownTopicOrPartition) {
		c.exists, c.log.next = false, 0 // if it is created again, read it from its beginning
		return nil
	}
	return err
}

// report reports once that the control topic cannot be read, and once that it can be again. It also reports ignored
// commands.
func (c *control) report(err error) {
	switch failed := err != nil; {
	case failed && !c.failed:
		c.r.sub.EmitChange(redeliver.ChangeCommandsNotRead, "trying again; messages that wait can be neither released nor cancelled, nor the group paused or resumed; all else continues", err)
	case !failed && c.failed:
		c.r.sub.EmitChange(redeliver.ChangeCommandsRead, "", nil)
	}
	c.failed = err != nil
	for _, err := range c.log.refused {
		c.r.sub.EmitChange(redeliver.ChangeCommandIgnored, "check which programs write to "+c.r.layout.control.name, err)
	}
	c.log.refused = nil
}

// update publishes the commands that have not expired, and reports new ones.
func (c *control) update(now time.Time) {
	previous, current := c.current.Load(), &commands{}
	for _, cmd := range c.log.commands {
		if now.Before(cmd.Expires) {
			current.all = append(current.all, cmd)
		}
	}
	if slices.EqualFunc(previous.all, current.all, func(x, y deadletter.Command) bool { return reflect.DeepEqual(x, y) }) {
		return
	}
	c.current.Store(current)
	c.mu.Lock()
	for f := range c.listeners {
		(*f)()
	}
	c.mu.Unlock()
	for _, cmd := range current.all {
		if slices.ContainsFunc(previous.all, func(old deadletter.Command) bool { return old.ID == cmd.ID }) {
			continue
		}
		detail := fmt.Sprintf("%s by %s: %s", cmd.ID, cmd.Who, cmd.Why)
		if cmd.Kind == deadletter.ReleaseWaiting && c.r.perKey() {
			c.r.sub.EmitChange(redeliver.ChangeCommandIgnored, detail, errPerKeyRelease)
			continue
		}
		change := redeliver.ChangeReleased
		if cmd.Kind == deadletter.CancelWaiting {
			change = redeliver.ChangeCancelled
		}
		c.r.sub.EmitChange(change, detail, nil)
	}
}

// errPerKeyRelease is the error of a release with the order PerKey.
var errPerKeyRelease = errors.New("kafka: the order of the policy is PerKey: a message may run only when it is the first of its key, so nothing is released")

// released returns a time in Unix milliseconds. A message of the level that was written until then is due at once. It
// is 0 if nothing is released.
func (s *commands) released(level time.Duration) (until int64) {
	for i := range s.all {
		if cmd := &s.all[i]; cmd.Kind == deadletter.ReleaseWaiting && cmd.Filter.MatchLevel(level) {
			until = max(until, cmd.Created.UnixMilli())
		}
	}
	return until
}

// canceling returns the command that cancels a message which is due, or nil. The message was written to its level at
// written, in Unix milliseconds.
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
		if cmd.AppliesTo(seen, level, now) {
			return cmd
		}
	}
	return nil
}

// waitingMessage returns a message as a filter sees it.
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
