package commands

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
	"github.com/redeliver/redeliver/internal/engine"
)

const (
	// interval is how often a member asks for new commands, with two small requests.
	interval = time.Second
	// missingPause is the pause between two looks for a missing control topic. The first command creates it.
	missingPause = 5 * time.Second
	// maxFirstRead bounds how long a partition waits for the first look at the commands. Without that wait, messages
	// could run that are cancelled, or whose group is paused.
	maxFirstRead = 5 * time.Second
)

// Follower reads the commands to a subscription at intervals. It pauses the subscription and reports new commands.
type Follower struct {
	sub     *engine.Subscription
	admin   cluster.Admin
	topic   string
	current atomic.Pointer[Set]
	read    chan struct{} // closed after the first attempt to read the topic

	mu        sync.Mutex
	listeners map[*func()]struct{} // called when the commands have changed

	// Used only by run.
	log      log
	exists   bool
	nextLook time.Time // when to look for the topic again
	err      error     // result of the last look
	failure  engine.Lasting
}

// NewFollower returns a follower that has no commands until it is started. exists reports whether the topic is known to
// exist.
func NewFollower(sub *engine.Subscription, admin cluster.Admin, topic string, exists bool) *Follower {
	f := &Follower{sub: sub, admin: admin, topic: topic, exists: exists, read: make(chan struct{}), listeners: make(map[*func()]struct{})}
	f.current.Store(&Set{})
	return f
}

// Current returns the present commands.
func (f *Follower) Current() *Set { return f.current.Load() }

// Listen calls call, which must not block, when the commands have changed, until end is called.
func (f *Follower) Listen(call func()) (end func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.listeners[&call] = struct{}{}
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.listeners, &call)
	}
}

// Start begins to read commands, until stop is called.
func (f *Follower) Start() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.run(ctx)
	}()
	return func() {
		cancel()
		<-done
	}
}

func (f *Follower) run(ctx context.Context) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for first := true; ; first = false {
		err := f.refresh(ctx)
		if ctx.Err() != nil {
			return
		}
		f.report(err)
		f.update(time.Now())
		if err == nil && (first || f.exists) { // a topic that is missing for a moment ends no pause
			f.sub.SetPaused(f.log.paused)
		}
		if first {
			close(f.read)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// Await returns after the first attempt to read the topic, or after maxFirstRead.
func (f *Follower) Await(ctx context.Context) {
	timer := time.NewTimer(maxFirstRead)
	defer timer.Stop()
	select {
	case <-f.read:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// refresh reads the control topic to its end. A missing topic is no error.
func (f *Follower) refresh(ctx context.Context) error {
	if !f.exists {
		if time.Now().Before(f.nextLook) {
			return f.err
		}
		existing, err := cluster.Call(ctx, func() (map[string]*sarama.TopicMetadata, error) { return f.admin.Topics(f.topic) })
		if f.exists, f.err = existing[f.topic] != nil, err; !f.exists {
			f.nextLook = time.Now().Add(missingPause)
			return f.err
		}
	}
	err := f.log.refresh(ctx, &topiclog.Reader{Client: f.admin.Client, Topic: f.topic})
	if errors.Is(err, sarama.ErrUnknownTopicOrPartition) {
		f.exists, f.log.next = false, 0 // if it is created again, read it from its beginning
		return nil
	}
	return err
}

// report reports that the control topic cannot be read, and that it can be again. It also reports ignored
// commands.
func (f *Follower) report(err error) {
	switch {
	case err != nil && f.failure.Failed(err):
		f.sub.EmitChange(redeliver.ChangeCommandsNotRead, "trying again; messages that wait can be neither released nor cancelled, nor the group paused or resumed; all else continues", err)
	case err == nil && f.failure.Worked():
		f.sub.EmitChange(redeliver.ChangeCommandsRead, "", nil)
	}
	for _, err := range f.log.refused {
		f.sub.EmitChange(redeliver.ChangeCommandIgnored, "check which programs write to "+f.topic, err)
	}
	f.log.refused = nil
}

// update publishes the commands that have not expired, and reports new ones.
func (f *Follower) update(now time.Time) {
	previous, current := f.current.Load(), &Set{}
	for _, cmd := range f.log.commands {
		if now.Before(cmd.Expires) {
			current.all = append(current.all, cmd)
		}
	}
	if slices.EqualFunc(previous.all, current.all, func(x, y deadletter.Command) bool { return reflect.DeepEqual(x, y) }) {
		return
	}
	f.current.Store(current)
	f.mu.Lock()
	for call := range f.listeners {
		(*call)()
	}
	f.mu.Unlock()
	for _, cmd := range current.all {
		if slices.ContainsFunc(previous.all, func(old deadletter.Command) bool { return old.ID == cmd.ID }) {
			continue
		}
		detail := fmt.Sprintf("%s by %s: %s", cmd.ID, cmd.Who, cmd.Why)
		if cmd.Kind == deadletter.CommandRelease && f.sub.Policy.Order == redeliver.OrderThroughRetries {
			f.sub.EmitChange(redeliver.ChangeCommandIgnored, detail, ErrPerKeyRelease)
			continue
		}
		change := redeliver.ChangeReleased
		if cmd.Kind == deadletter.CommandCancel {
			change = redeliver.ChangeCancelled
		}
		f.sub.EmitChange(change, detail, nil)
	}
}

// ErrPerKeyRelease is the error of a release with OrderThroughRetries.
var ErrPerKeyRelease = errors.New("kafka: the order of the policy is OrderThroughRetries: a message may run only when it is the first of its key, so nothing is released")
