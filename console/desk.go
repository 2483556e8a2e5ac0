package console

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/redeliver/redeliver/deadletter"
)

// desk owns the DLQs. Every read and every change goes through it with the name of the user, and it allows or refuses
// them. No page has access to a queue.
type desk struct {
	cfg   Config
	audit audit
	live  *hub
	looks chan struct{} // semaphore for concurrent readers of DLQs

	ctx  context.Context // of the background work
	jobs jobs
	turn chan struct{} // semaphore for background reads

	shown  sync.RWMutex // guards queues and notes
	queues []*openQueue // never modified in place
	notes  []string

	mu     sync.Mutex // guards closed and calls of wg.Add
	closed bool
	wg     sync.WaitGroup
}

// openQueue is a DLQ and its state at the last background read.
type openQueue struct {
	q       deadletter.Queue
	info    deadletter.Info
	cluster string
	key     string // identifies the DLQ in addresses
	costly  bool   // reading changes something
	kick    chan struct{}
	asked   atomic.Bool // the causes of a costly DLQ were requested

	mu   sync.Mutex
	seen Snapshot
}

func newDesk(ctx context.Context, cfg Config) *desk {
	d := &desk{cfg: cfg, audit: audit{w: cfg.Audit}, ctx: ctx, live: newHub(), looks: make(chan struct{}, maxLooks), turn: make(chan struct{}, 1), notes: cfg.Notes}
	names := make(map[string]int)
	for _, q := range cfg.Queues {
		names[q.Info().DLQ]++
	}
	for _, q := range cfg.Queues {
		d.queues = append(d.queues, newQueue(&q, names[q.Info().DLQ] > 1))
	}
	return d
}

// newQueue returns a DLQ to show. If its name is not unique, its key includes the broker's name.
func newQueue(q *Queue, ambiguous bool) *openQueue {
	info := q.Info()
	one := &openQueue{q: q.Queue, info: info, cluster: q.cluster(), key: info.DLQ, costly: info.ReadEffect != deadletter.NoReadEffect, kick: make(chan struct{}, 1)}
	if ambiguous {
		one.key = one.cluster + "/" + info.DLQ
	}
	return one
}

// known returns the DLQs that are shown.
func (d *desk) known() []*openQueue {
	d.shown.RLock()
	defer d.shown.RUnlock()
	return d.queues
}

// add shows one more DLQ and starts to read it.
func (d *desk) add(q *Queue) error {
	d.shown.Lock()
	defer d.shown.Unlock()
	ambiguous := false
	for _, other := range d.queues {
		if other.info.DLQ != q.Info().DLQ {
			continue
		}
		if ambiguous = true; other.cluster == q.cluster() {
			return fmt.Errorf("the console shows %s of %s already", q.Info().DLQ, q.cluster())
		}
	}
	one := newQueue(q, ambiguous)
	if err := d.background(func() { d.poll(one, d.turn) }); err != nil {
		return err
	}
	d.queues = append(slices.Clone(d.queues), one)
	d.live.poke()
	return nil
}

// told returns the notes.
func (d *desk) told() []string {
	d.shown.RLock()
	defer d.shown.RUnlock()
	return d.notes
}

// tell replaces the notes.
func (d *desk) tell(notes []string) {
	d.shown.Lock()
	changed := !slices.Equal(d.notes, notes)
	d.notes = notes
	d.shown.Unlock()
	if changed {
		d.live.poke()
	}
}

// errClosing refuses work that would outlive the console.
var errClosing = errors.New("the console is closing, and starts nothing")

// background runs do in a goroutine for which close waits. It fails once close was called, because the queues are
// closed next.
func (d *desk) background(do func()) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return errClosing
	}
	d.wg.Go(do)
	return nil
}

// close waits until all background work has ended.
func (d *desk) close() {
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	d.wg.Wait()
}

// errNoQueue reports a DLQ that the console does not have.
var errNoQueue = errors.New("there is no such dead-letter queue here")

// queue returns the DLQ with a key, and the user with their role for it.
func (d *desk) queue(who Actor, key string) (*openQueue, Actor, error) {
	for _, q := range d.known() {
		if q.key == key {
			if here := who.on(q); here.Role >= Viewer {
				return q, here, nil
			}
			break // a user without a role must not learn that the DLQ exists
		}
	}
	return nil, Actor{}, errNoQueue
}

// may returns an error if the user may not perform an action on a DLQ. who must be the Actor that queue returned. Only
// may decides about rights.
func (d *desk) may(who Actor, a Action) error {
	readOnly := d.cfg.ReadOnly && a.changes()
	if who.Role < a.needs() || readOnly {
		return &DeniedError{Action: a, Actor: who, ReadOnly: readOnly && who.Role >= a.needs()}
	}
	return nil
}

// permit is like may, and records a denial. It is for requests; may is for what a page offers.
func (d *desk) permit(who Actor, key string, a Action) error {
	_, here, err := d.queue(who, key)
	if err == nil && d.may(here, a) != nil {
		_, err = d.enter(&who, key, Record{Action: a})
	}
	return err
}

// enter opens a DLQ for an action. It records changes, reveals and denials first. If it returns no error, the user has
// the required role for this DLQ.
func (d *desk) enter(who *Actor, key string, r Record) (*openQueue, error) {
	q, here, err := d.queue(*who, key)
	if err != nil {
		return nil, err
	}
	*who = here
	d.sign(&r, who, q)
	if err := d.may(*who, r.Action); err != nil {
		r.Result = denied
		return nil, errors.Join(err, d.audit.write(r))
	}
	if r.Action == Look || r.Action == List {
		return q, nil
	}
	r.Result = allowed
	return q, d.audit.write(r)
}

// sign sets the user and the DLQ of a record, and redacts its filter.
func (d *desk) sign(r *Record, who *Actor, q *openQueue) {
	r.Who, r.Role, r.From, r.For, r.DLQ = who.Name, who.Role.String(), who.from, who.through, q.key
	if r.Filter != nil {
		f := d.filter(auditor, q.info, r.Filter)
		r.Filter = &f
	}
}

// causes requests the causes of a DLQ that is not read in the background.
func (d *desk) causes(who Actor, key string) error {
	q, err := d.enter(&who, key, Record{Action: List})
	if err != nil {
		return err
	}
	q.asked.Store(true)
	q.poke()
	return nil
}

// left records how an action ended.
func (d *desk) left(who Actor, q *openQueue, r Record, t *deadletter.Task, err error) error {
	d.sign(&r, &who, q)
	r.Result = done
	if t != nil && t.ID != "" {
		r.Task, r.Status, r.Counts = t.ID, t.Status, &t.Counts
	}
	if err != nil {
		r.Result, r.Error = failed, d.trouble(auditor, q.info, err)
	}
	return d.audit.write(r)
}

// auditor is the reader of the audit record. It makes the redactor hide the same parts there as on pages.
var auditor = Actor{Role: Reader}

// Overview is a DLQ with its state at the last background read.
type Overview struct {
	Key, Cluster string
	Info         deadletter.Info
	Costly       bool
	Commands     bool // the consumers accept commands about waiting messages
	Snapshot
}

func (d *desk) overview(who Actor, q *openQueue) Overview {
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

// all returns every DLQ with its last known state. It sends no request to a broker.
func (d *desk) all(who Actor) (list []Overview) {
	for _, q := range d.known() {
		if here := who.on(q); d.may(here, Look) == nil {
			list = append(list, d.overview(here, q))
		}
	}
	return list
}

// one returns a DLQ with its last known state.
func (d *desk) one(who Actor, key string) (Overview, error) {
	q, err := d.enter(&who, key, Record{Action: Look})
	if err != nil {
		return Overview{}, err
	}
	return d.overview(who, q), nil
}
