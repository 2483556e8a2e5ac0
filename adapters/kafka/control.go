package kafka

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/IBM/sarama"
)

const (
	// commandsEvery is how often a consumer asks for new commands: two small requests.
	commandsEvery = time.Second
	// tidyEvery is how often what is known of records below the committed offset is
	// forgotten.
	tidyEvery = 30 * time.Second
	// commandsLate bounds how long a partition waits, before it is read, for what was
	// settled of it ahead. Without that, what was released runs once more.
	commandsLate = 5 * time.Second
)

// control is what a reader knows of the commands to its group. Every member reads all
// of the control topic, from its start and outside of the group.
//
// A delay topic is read in order, and its reader waits for the first that is not due,
// so what a command takes may stand far behind. Beside each lane a walker reads on
// (see walker): it writes copies of what is taken to where they go, the way back or the
// DLQ, and notes in the control topic that the originals are settled; the lane passes
// over those when it comes to them (see ahead). Nothing else moves: what is not taken
// stays where it is and keeps its due time. The lane itself cancels what comes due
// before the walker has come to it.
//
// Killed between a copy and its note, at most walkWindow messages of a partition are
// there twice: the copies run, or rest in the DLQ, and the originals are taken once
// more, or run when they are due. No original is passed over before its copy is confirmed.
type control struct {
	r     *reader
	every time.Duration

	reading chan struct{} // has one while the topic is read
	read    time.Time     // when what the book says was asked for; guarded by reading

	state    atomic.Int32             // of the topic: controlOff, controlUnsure or controlReads
	standing atomic.Pointer[standing] // nil for none

	mu     sync.Mutex
	book   *book
	aheads map[*ahead]struct{}
	counts map[countKey]*progress // ours, of the partitions that we read
	dirty  map[countKey]struct{}
	paces  map[string]*pacer // by command
	client sarama.Client     // of the walkers: fetches of megabytes hold up what else goes over their connection
	dials  *dialling         // the try to make it; nil while there is none
	told   bool              // that the topic is out of reach
	stuck  int               // walkers that cannot go on

	life context.Context // ends with what start has begun
	work sync.WaitGroup

	pages, slowPages chan struct{} // bound what walkers have in memory; those that keep a rate have their own
}

// What is known of the control topic.
const (
	controlOff    int32 = iota // it is not there, or will not do: no commands are read
	controlUnsure              // it could not be made, or looked at; that is tried again
	controlReads
)

// walkersMost is how many walkers have a page of records in memory at once, twice.
const walkersMost = 2

func newControl(r *reader) *control {
	c := &control{
		r: r, every: commandsEvery, book: newBook(), aheads: make(map[*ahead]struct{}),
		reading: make(chan struct{}, 1), counts: make(map[countKey]*progress), dirty: make(map[countKey]struct{}), paces: make(map[string]*pacer),
		pages: make(chan struct{}, walkersMost), slowPages: make(chan struct{}, walkersMost),
	}
	switch {
	case r.layout.control.exists:
		c.state.Store(controlReads)
	case r.layout.controlUnsure:
		c.state.Store(controlUnsure)
		c.told = true
	}
	return c
}

// on tells whether there is a topic to read commands from, or may be one in a while.
func (c *control) on() bool { return c.state.Load() != controlOff }

// start begins to read commands; the returned function ends that. No lane may run then.
func (c *control) start() (stop func()) {
	if !c.on() {
		return func() {}
	}
	if c.r.client.commandsEvery > 0 {
		c.every = c.r.client.commandsEvery
	}
	ctx, cancel := context.WithCancel(context.Background())
	c.life = ctx
	c.work.Go(func() { c.run(ctx) })
	return func() {
		cancel()
		c.work.Wait()
		if c.client != nil {
			_ = c.client.Close() // nobody reads any more
		}
	}
}

func (c *control) run(ctx context.Context) {
	if !c.opened(ctx) {
		return
	}
	tick := time.NewTicker(c.every)
	defer tick.Stop()
	tidied := time.Now()
	greeted := c.greet(ctx)
	for {
		err := errors.Join(greeted, c.refresh(ctx))
		c.staff()
		if err == nil {
			err = c.save(ctx)
		}
		if err == nil && time.Since(tidied) > tidyEvery {
			err = c.tidy(ctx)
			tidied = time.Now()
		}
		if greeted != nil && time.Since(tidied) > tidyEvery {
			greeted, tidied = c.greet(ctx), time.Now()
		}
		if ctx.Err() == nil {
			c.tell(err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// tell tells once that the control topic is out of reach, and that it is back.
func (c *control) tell(err error) {
	c.mu.Lock()
	was := c.told
	c.told = err != nil
	c.mu.Unlock()
	switch {
	case err != nil && !was:
		c.r.tell("commands are not read", "trying again; nothing else waits for it", err)
	case err == nil && was:
		c.r.tell("commands are read", "", nil)
	}
}

// hold tells once that walkers cannot go on, and that all can again.
func (c *control) hold(err error) {
	c.mu.Lock()
	was := c.stuck
	if err != nil {
		c.stuck++
	} else {
		c.stuck--
	}
	now := c.stuck
	c.mu.Unlock()
	switch {
	case was == 0:
		c.r.tell("commands are not obeyed", "trying again; see whether the group may write to "+c.r.layout.control.name, err)
	case now == 0:
		c.r.tell("commands are obeyed", "", nil)
	}
}

// refresh reads the control topic to its end, or lets somebody do so who began later.
func (c *control) refresh(ctx context.Context) error {
	asked := time.Now()
	select {
	case c.reading <- struct{}{}:
		defer func() { <-c.reading }()
	case <-ctx.Done():
		return fmt.Errorf("kafka: reading %s: %w", c.r.layout.control.name, ctx.Err())
	}
	if c.read.After(asked) {
		return nil
	}
	began := time.Now()
	log := logReader{client: c.r.client.admin.client, topic: c.r.layout.control.name}
	c.mu.Lock()
	err := c.book.refresh(ctx, &log, &c.mu)
	if err == nil {
		for a := range c.aheads {
			a.known = true
			a.learn(c.book.settled[a.at])
		}
	}
	c.mu.Unlock()
	if err != nil {
		return err
	}
	c.read = began
	c.stand(time.Now())
	return nil
}

// dialling is a try to connect, one for all walkers.
type dialling struct {
	done   chan struct{} // closed when there is an answer
	client sarama.Client
	err    error
}

// connection is the client of the walkers.
func (c *control) connection(ctx context.Context) (sarama.Client, error) {
	c.mu.Lock()
	client, d := c.client, c.dials
	if client == nil && d == nil {
		d = &dialling{done: make(chan struct{})}
		c.dials = d
		c.work.Go(func() { c.dial(d) })
	}
	c.mu.Unlock()
	if client != nil {
		return client, nil
	}
	select {
	case <-d.done:
		return d.client, d.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (c *control) dial(d *dialling) {
	cfg := c.r.client.cfg
	d.client, d.err = dial(c.life, cfg.Brokers, cfg.clientConfig())
	c.mu.Lock()
	c.client, c.dials = d.client, nil
	c.mu.Unlock()
	close(d.done)
}

// gone tells whether a record was settled ahead, as far as is known.
func (c *control) gone(at waitPlace, offset int64, when time.Time) bool {
	if c == nil || !c.on() {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.book.settled[at].has(offset, when.UnixMilli())
}
