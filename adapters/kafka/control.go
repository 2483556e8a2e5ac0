package kafka

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync/atomic"
	"time"

	"github.com/IBM/sarama"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/deadletter"
)

const (
	// commandsEvery is how often a member asks for new commands: two small requests.
	commandsEvery = time.Second
	// maxControlPause bounds the time between two looks for a control topic that does not
	// exist.
	maxControlPause = 5 * time.Minute
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

	// Of the goroutine of run.
	book   book
	exists bool
	again  time.Time     // when to look for the topic again
	pause  time.Duration // between two such looks
	err    error         // of the last look
	failed bool          // the last try to read the topic failed
}

// commands are those that have not expired. A value never changes.
type commands struct {
	all      []deadletter.Command
	replaced chan struct{} // closed when there are others
}

func newControl(r *reader) *control {
	c := &control{r: r, every: commandsEvery, read: make(chan struct{}), exists: r.layout.control.exists}
	c.current.Store(&commands{replaced: make(chan struct{})})
	return c
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
		c.exists, c.err = until(ctx, aside, func() (bool, error) { return c.r.client.createControl(c.r.layout.control) }, nil)
		if !c.exists {
			c.pause = min(max(2*c.pause, c.every), maxControlPause)
			c.again = time.Now().Add(c.pause)
			return c.err
		}
	}
	err := c.book.refresh(ctx, &logReader{client: c.r.client.admin.client, topic: c.r.layout.control.name})
	if errors.Is(err, sarama.ErrUnknownTopicOrPartition) {
		c.exists, c.pause = false, 0
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
	was, is := c.current.Load(), &commands{replaced: make(chan struct{})}
	for _, cmd := range c.book.commands {
		if now.Before(cmd.Expires) {
			is.all = append(is.all, cmd)
		}
	}
	if slices.EqualFunc(was.all, is.all, func(x, y deadletter.Command) bool { return reflect.DeepEqual(x, y) }) {
		return
	}
	c.current.Store(is)
	close(was.replaced)
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

// canceling returns the command that cancels a message which falls due, nil for none.
func (s *commands) canceling(e *entry, level time.Duration, now time.Time) *deadletter.Command {
	var m *deadletter.Message
	for i := range s.all {
		cmd := &s.all[i]
		if cmd.Kind != deadletter.CancelWaiting {
			continue
		}
		if m == nil {
			m = waitingMessage(e)
		}
		if cmd.Takes(m, level, now) {
			return cmd
		}
	}
	return nil
}

// waitingMessage is an entry as a filter sees it.
func waitingMessage(e *entry) *deadletter.Message {
	m := &deadletter.Message{
		ID: e.state.ID, Key: e.rec.Key, Body: e.rec.Value, State: *e.state, Filler: deadletter.FilledByRedeliver, Time: time.UnixMilli(e.written),
		Headers: make([]deadletter.Header, 0, len(e.rec.Headers)),
	}
	for _, h := range e.rec.Headers {
		if h != nil {
			m.Headers = append(m.Headers, deadletter.Header{Name: string(h.Key), Value: h.Value})
		}
	}
	return m
}

// obey makes due what the lane holds and a new release takes.
func (l *lane) obey(now time.Time) {
	current := l.r.control.current.Load()
	if current == l.commands {
		return
	}
	l.commands = current
	was := l.released
	if l.lines == nil { // a key that waits for its failures keeps its order
		l.released = current.released(l.waits.level)
	}
	if l.released <= was {
		return
	}
	var due []*entry
	l.hold.Delete(func(e *entry) bool {
		if !l.isReleased(e) {
			return false
		}
		due = append(due, e)
		return true
	})
	slices.SortFunc(due, func(x, y *entry) int { return int(int64(x.number) - int64(y.number)) })
	for _, e := range due {
		l.hold.Put(e.makeDue(now), e)
	}
}

func (l *lane) isReleased(e *entry) bool { return e.written <= l.released && l.released > 0 }

// makeDue makes an entry due at once, and returns until when it is held.
func (e *entry) makeDue(now time.Time) time.Time {
	e.then = e.last
	if now = redeliver.CeilMilli(now.UTC()); now.Before(e.state.Due) {
		e.state.Due = now
	}
	return e.state.Due
}

// canceled dead-letters an entry in flight that a command cancels. It is settled when the
// DLQ has confirmed it.
func (l *lane) canceled(e *entry) bool {
	if l.waits == nil || l.lines != nil && e.then != toHandler { // what hops has not asked its line
		return false
	}
	now := time.Now()
	cmd := l.r.control.current.Load().canceling(e, l.waits.level, now)
	if cmd == nil {
		return false
	}
	e.then = toHandler
	e.d = l.delivery(e)
	cause := cmd.Cancelled()
	l.forward(e, l.r.sub.Decide(*e.state, cause, now), cause)
	return true
}
