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

// service owns the DLQs. It allows or refuses every read and every change, by the rights of the user. No page has
// access to a queue.
type service struct {
	cfg       Config
	audit     audit
	hub       *hub
	readSlots chan struct{} // semaphore for concurrent readers of DLQs

	ctx        context.Context // of the background work
	runs       taskRuns
	pollSlot   chan struct{} // semaphore for background reads
	decodeSlot chan struct{} // semaphore for Config.Decode

	listMu sync.RWMutex // guards queues and notes
	queues []*openQueue // never modified in place
	notes  []string

	mu     sync.Mutex // guards closed, and is locked to call wg.Add
	closed bool
	wg     sync.WaitGroup
}

// openQueue is a DLQ and its state at the last background read.
type openQueue struct {
	q               deadletter.Queue
	info            deadletter.Info
	cluster         string
	key             string // identifies the DLQ in addresses
	readCosts       bool   // reading changes something
	wakeup          chan struct{}
	causesRequested atomic.Bool // the causes of a costly DLQ were requested
	pauseChanged    atomic.Bool // the group was paused or resumed from here

	mu   sync.Mutex
	last snapshot
}

func newService(ctx context.Context, cfg Config) *service {
	svc := &service{cfg: cfg, audit: audit{w: cfg.Audit}, ctx: ctx, hub: newHub(), readSlots: make(chan struct{}, maxReads), pollSlot: make(chan struct{}, 1), decodeSlot: make(chan struct{}, 1), notes: cfg.Notes}
	names := make(map[string]int)
	for _, q := range cfg.Queues {
		names[q.Info().DLQ]++
	}
	for _, q := range cfg.Queues {
		svc.queues = append(svc.queues, newQueue(&q, names[q.Info().DLQ] > 1))
	}
	return svc
}

// newQueue returns a DLQ to show. If ambiguous is set, several DLQs have its name, and its key includes the broker's name.
func newQueue(q *Queue, ambiguous bool) *openQueue {
	info := q.Info()
	one := &openQueue{q: q.Queue, info: info, cluster: q.cluster(), key: info.DLQ, readCosts: info.ReadEffect != deadletter.NoReadEffect, wakeup: make(chan struct{}, 1)}
	if ambiguous {
		one.key = one.cluster + "/" + info.DLQ
	}
	return one
}

// allQueues returns the DLQs that are shown.
func (svc *service) allQueues() []*openQueue {
	svc.listMu.RLock()
	defer svc.listMu.RUnlock()
	return svc.queues
}

// addQueue shows one more DLQ and starts to read it.
func (svc *service) addQueue(q *Queue) error {
	svc.listMu.Lock()
	defer svc.listMu.Unlock()
	ambiguous := false
	for _, other := range svc.queues {
		if other.info.DLQ != q.Info().DLQ {
			continue
		}
		if ambiguous = true; other.cluster == q.cluster() {
			return fmt.Errorf("the console shows %s of %s already", q.Info().DLQ, q.cluster())
		}
	}
	one := newQueue(q, ambiguous)
	if err := svc.runInBackground(func() { svc.pollQueue(one, svc.pollSlot) }); err != nil {
		return err
	}
	svc.queues = append(slices.Clone(svc.queues), one)
	svc.hub.notify()
	return nil
}

// currentNotes returns the notes.
func (svc *service) currentNotes() []string {
	svc.listMu.RLock()
	defer svc.listMu.RUnlock()
	return svc.notes
}

// setNotes replaces the notes.
func (svc *service) setNotes(notes []string) {
	svc.listMu.Lock()
	changed := !slices.Equal(svc.notes, notes)
	svc.notes = notes
	svc.listMu.Unlock()
	if changed {
		svc.hub.notify()
	}
}

// errClosing refuses work that would outlive the console.
var errClosing = errors.New("the console is closing, and starts nothing")

// runInBackground runs do in a goroutine for which close waits. It fails once close was called, because the queues are
// closed next.
func (svc *service) runInBackground(do func()) error {
	svc.mu.Lock()
	defer svc.mu.Unlock()
	if svc.closed {
		return errClosing
	}
	svc.wg.Go(do)
	return nil
}

// close waits until all background work has ended.
func (svc *service) close() {
	svc.mu.Lock()
	svc.closed = true
	svc.mu.Unlock()
	svc.wg.Wait()
}

// errNoQueue reports a DLQ that the console does not have.
var errNoQueue = errors.New("there is no such dead-letter queue here")

// findQueue returns the DLQ with a key, and the user with their role for it.
func (svc *service) findQueue(who Actor, key string) (*openQueue, Actor, error) {
	for _, q := range svc.allQueues() {
		if q.key == key {
			if here := who.forQueue(q); here.Role >= RoleViewer {
				return q, here, nil
			}
			break // a user without a role must not learn that the DLQ exists
		}
	}
	return nil, Actor{}, errNoQueue
}

// checkRight returns an error if the user may not perform an action on a DLQ. who must be the Actor that findQueue
// returned. Only checkRight decides about rights.
func (svc *service) checkRight(who Actor, a Action) error {
	readOnly := svc.cfg.ReadOnly && a.isChange()
	if who.Role < a.minRole() || readOnly {
		return &DeniedError{Action: a, Actor: who, ReadOnly: readOnly && who.Role >= a.minRole()}
	}
	return nil
}

// requireRight is like checkRight, and records a denial. It is for requests; checkRight is for what a page offers.
func (svc *service) requireRight(who Actor, key string, a Action) error {
	_, here, err := svc.findQueue(who, key)
	if err == nil && svc.checkRight(here, a) != nil {
		_, err = svc.openFor(&who, key, Record{Action: a})
	}
	return err
}

// openFor opens a DLQ for an action. It first records changes, searches, reveals and denials. If it returns no error,
// the user has the required role.
func (svc *service) openFor(who *Actor, key string, r Record) (*openQueue, error) {
	q, here, err := svc.findQueue(*who, key)
	if err != nil {
		return nil, err
	}
	*who = here
	svc.completeRecord(&r, who, q)
	if err := svc.checkRight(*who, r.Action); err != nil {
		r.Result = denied
		return nil, errors.Join(err, svc.audit.write(r))
	}
	if r.Action == ActionLook || r.Action == ActionList {
		return q, nil
	}
	r.Result = allowed
	return q, svc.audit.write(r)
}

// completeRecord sets the user and the DLQ of a record, and redacts its filter.
func (svc *service) completeRecord(r *Record, who *Actor, q *openQueue) {
	r.Who, r.Role, r.From, r.For, r.DLQ = who.Name, who.Role.String(), who.remoteAddr, who.forwardedFor, q.key
	if r.Filter != nil {
		f := svc.redactFilter(auditor, q.info, r.Filter)
		r.Filter = &f
	}
}

// requestCauses requests the causes of a DLQ that is not read in the background.
func (svc *service) requestCauses(who Actor, key string) error {
	q, err := svc.openFor(&who, key, Record{Action: ActionList})
	if err != nil {
		return err
	}
	q.causesRequested.Store(true)
	q.wake()
	return nil
}

// recordResult records how an action ended.
func (svc *service) recordResult(who Actor, q *openQueue, r Record, t *deadletter.Task, err error) error {
	svc.completeRecord(&r, &who, q)
	r.Result = done
	if t != nil && t.ID != "" {
		r.Task, r.Status, r.Counts = t.ID, t.Status, &t.Counts
	}
	if err != nil {
		r.Result, r.Error = failed, svc.redactError(auditor, q.info, err)
	}
	return svc.audit.write(r)
}

// auditor is the reader of the audit record, which hides the same parts as the pages for a Reader.
var auditor = Actor{Role: RoleReader}

// overview is a DLQ with its state at the last background read.
type overview struct {
	Key, Cluster string
	Info         deadletter.Info
	ReadCosts    bool
	Commands     bool // the consumers accept commands about waiting messages
	Pausable     bool // the group can be paused
	snapshot
}

func (svc *service) overviewOf(who Actor, q *openQueue) overview {
	q.mu.Lock()
	s := q.last
	q.mu.Unlock()
	s.Summary.Groups = slices.Clone(s.Summary.Groups)
	for i := range s.Summary.Groups {
		g := &s.Summary.Groups[i]
		g.Error = svc.redactErrorText(who, q.info, nil, g.Error)
	}
	s.ReadError = svc.redactErrorText(who, q.info, nil, s.ReadError)
	s.WaitingError = svc.redactErrorText(who, q.info, nil, s.WaitingError)
	if s.Paused != nil {
		mark := *s.Paused
		mark.Reason = svc.redactErrorText(who, q.info, nil, mark.Reason)
		s.Paused = &mark
	}
	s.PausedError = svc.redactErrorText(who, q.info, nil, s.PausedError)
	_, commands := q.q.(Commander)
	_, pausable := q.q.(Pauser)
	return overview{Key: q.key, Cluster: q.cluster, Info: q.info, ReadCosts: q.readCosts, Commands: commands, Pausable: pausable, snapshot: s}
}

// overviews returns every DLQ with its last known state. It sends no request to a broker.
func (svc *service) overviews(who Actor) (list []overview) {
	for _, q := range svc.allQueues() {
		if here := who.forQueue(q); svc.checkRight(here, ActionLook) == nil {
			list = append(list, svc.overviewOf(here, q))
		}
	}
	return list
}

// openOverview returns a DLQ with its last known state.
func (svc *service) openOverview(who Actor, key string) (overview, error) {
	q, err := svc.openFor(&who, key, Record{Action: ActionLook})
	if err != nil {
		return overview{}, err
	}
	return svc.overviewOf(who, q), nil
}
