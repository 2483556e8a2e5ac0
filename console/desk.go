package console

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/redeliver/redeliver/deadletter"
)

// desk is the one place that has the DLQs. Whoever wants to see or do something
// says who asks, and is served here or refused; no page has a queue of its own.
type desk struct {
	cfg    Config
	audit  audit
	queues []*queue
	live   *hub
	looks  chan struct{} // as many as look into DLQs at once

	ctx  context.Context // of what runs in the background
	jobs jobs

	mu     sync.Mutex // of closed, and of what is added to wg
	closed bool
	wg     sync.WaitGroup
}

// queue is one DLQ with what was seen of it in the background.
type queue struct {
	q       deadletter.Queue
	info    deadletter.Info
	cluster string
	key     string // names it in addresses
	costly  bool   // looking changes something
	kick    chan struct{}
	asked   atomic.Bool // for its causes, where looking changes something

	mu   sync.Mutex
	seen Snapshot
}

func newDesk(ctx context.Context, cfg Config) *desk {
	d := &desk{cfg: cfg, audit: audit{w: cfg.Audit}, ctx: ctx, live: newHub(), looks: make(chan struct{}, maxLooks)}
	names := make(map[string]int)
	for _, q := range cfg.Queues {
		names[q.Info().DLQ]++
	}
	for _, q := range cfg.Queues {
		info := q.Info()
		one := &queue{q: q.Queue, info: info, cluster: q.cluster(), key: info.DLQ, costly: info.Look != deadletter.FreeLook, kick: make(chan struct{}, 1)}
		if names[info.DLQ] > 1 {
			one.key = one.cluster + "/" + info.DLQ
		}
		d.queues = append(d.queues, one)
	}
	return d
}

// errClosing refuses what would run on when the console has been closed.
var errClosing = errors.New("the console is closing, and starts nothing")

// background runs something for whose end close waits. Once that waits, nothing
// more begins: the queues are closed next.
func (d *desk) background(do func()) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return errClosing
	}
	d.wg.Go(do)
	return nil
}

// close returns when all that runs in the background has ended.
func (d *desk) close() {
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	d.wg.Wait()
}

// errNoQueue is a DLQ that the console does not have.
var errNoQueue = errors.New("there is no such dead-letter queue here")

func (d *desk) queue(key string) (*queue, error) {
	for _, q := range d.queues {
		if q.key == key {
			return q, nil
		}
	}
	return nil, errNoQueue
}

// may tells whether somebody may do something. It is the only place that decides.
func (d *desk) may(who Actor, a Action) error {
	readOnly := d.cfg.ReadOnly && a.changes()
	if who.Role < a.needs() || readOnly {
		return &DeniedError{Action: a, Actor: who, ReadOnly: readOnly && who.Role >= a.needs()}
	}
	return nil
}

// permit is may for what is asked for and not only offered: a denial is recorded.
func (d *desk) permit(who Actor, key string, a Action) error {
	if d.may(who, a) == nil {
		return nil
	}
	_, err := d.enter(who, key, Record{Action: a})
	return err
}

// enter opens a DLQ for an action. What changes or shows something is recorded
// first, and what was denied, too.
func (d *desk) enter(who Actor, key string, r Record) (*queue, error) {
	r.Who, r.Role, r.From, r.For = who.Name, who.Role.String(), who.from, who.through
	q, err := d.queue(key)
	if err != nil {
		return nil, err
	}
	r.DLQ = q.key
	if r.Filter != nil {
		f := d.filter(auditor, q.info, r.Filter)
		r.Filter = &f
	}
	if err := d.may(who, r.Action); err != nil {
		r.Result = denied
		return nil, errors.Join(err, d.audit.write(r))
	}
	if r.Action == Look || r.Action == List {
		return q, nil
	}
	r.Result = allowed
	return q, d.audit.write(r)
}

// causes asks for the causes of a DLQ that is not read in the background.
func (d *desk) causes(who Actor, key string) error {
	q, err := d.enter(who, key, Record{Action: List})
	if err != nil {
		return err
	}
	q.asked.Store(true)
	q.poke()
	return nil
}

// left records how something ended.
func (d *desk) left(who Actor, q *queue, r Record, t *deadletter.Task, err error) error {
	r.Who, r.Role, r.From, r.For, r.DLQ, r.Result = who.Name, who.Role.String(), who.from, who.through, q.key, done
	if r.Filter != nil {
		f := d.filter(auditor, q.info, r.Filter)
		r.Filter = &f
	}
	if t != nil && t.ID != "" {
		r.Task, r.Status, r.Counts = t.ID, t.Status, &t.Counts
	}
	if err != nil {
		r.Result, r.Error = failed, d.trouble(auditor, q.info, err)
	}
	return d.audit.write(r)
}

// auditor is who reads the record: what the redactor hides, it hides there, too.
var auditor = Actor{Role: Reader}

// Overview is a DLQ with what was seen of it.
type Overview struct {
	Key, Cluster string
	Info         deadletter.Info
	Costly       bool
	Commands     bool // the consumers can be told what is to become of what waits
	Snapshot
}

func (d *desk) overview(who Actor, q *queue) Overview {
	q.mu.Lock()
	s := q.seen
	q.mu.Unlock()
	s.Summary.Groups = slices.Clone(s.Summary.Groups)
	for i := range s.Summary.Groups {
		g := &s.Summary.Groups[i]
		g.Error = d.errorText(who, q.info, nil, g.Error)
	}
	s.Trouble = d.errorText(who, q.info, nil, s.Trouble)
	s.Mute = d.errorText(who, q.info, nil, s.Mute)
	_, commands := q.q.(Commander)
	return Overview{Key: q.key, Cluster: q.cluster, Info: q.info, Costly: q.costly, Commands: commands, Snapshot: s}
}

// all is every DLQ as it was seen last. It asks no broker.
func (d *desk) all(who Actor) ([]Overview, error) {
	if err := d.may(who, Look); err != nil {
		return nil, err
	}
	list := make([]Overview, len(d.queues))
	for i, q := range d.queues {
		list[i] = d.overview(who, q)
	}
	return list, nil
}

// one is a DLQ as it was seen last.
func (d *desk) one(who Actor, key string) (Overview, error) {
	q, err := d.enter(who, key, Record{Action: Look})
	if err != nil {
		return Overview{}, err
	}
	return d.overview(who, q), nil
}
