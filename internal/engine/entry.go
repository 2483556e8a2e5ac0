package engine

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/driver"
)

// entryPhase says where an entry is in its lane. Only the lane's goroutine changes it.
type entryPhase uint8

const (
	entryRead    entryPhase = iota // it is parsed, and in no queue yet
	entryWaits                     // it waits until it is due
	entryChained                   // it waits behind another message of its key
	entryReady                     // it may begin, unless a gater refuses it
	entryRuns                      // it has begun, and the lane has not finished it
	entryGone                      // it was settled, returned or abandoned
)

// entry is one message in a lane, from Parse to Settle or Return. It contains its first Delivery, so that a message
// that succeeds needs no allocation except its part of a slab. Every later attempt in this process allocates a Delivery.
type entry[R any] struct {
	driver.Message[R]

	lane        *lane[R]
	prev, next  *entry[R]    // of all entries of the lane, in the order of their arrival
	chain       *keyChain[R] // of its key; nil before it is in one, and after it has left
	behind      *entry[R]    // the next of its key
	batched     *Batched     // as it waits for a batch, or is in one; nil before
	phase       entryPhase
	letIn       bool        // its key lets it begin
	recalled    bool        // while it ran, an earlier message of its key failed: it must not join a batch
	single      bool        // it must be the only message of its batch
	finishes    bool        // it has ended, and finishInOrder has not called finish yet
	slotted     bool        // it has a slot
	endReported atomic.Bool // the attempt's end is reported to Turn or gaters, or need not be
	lost        atomic.Bool // others may have it

	first   Delivery
	current atomic.Pointer[Delivery]

	member *BatchMember[R] // for its first batch; nil if there are no batches
	ending Ending
}

var _ anyEntry = (*entry[any])(nil)

// newDelivery creates the delivery of the next attempt. state is nil while the record has the message's state.
func (e *entry[R]) newDelivery(state *redeliver.State) {
	d := &e.first
	if e.current.Load() != nil {
		d = new(Delivery)
	}
	d.sub, d.entry, d.state, d.alone = e.lane.e.sub, e, state, e.Alone
	d.displaced, d.single = e.Displaced, e.single || e.Alone
	d.Init(e.lane.ctx)
	e.current.Store(d)
}

func (e *entry[R]) class() int {
	if e.Retry {
		return retry
	}
	return firstDelivery
}

// readyQueue returns the index in lane.ready of the queue for an entry. Entries that need no slot have their own queue, so
// that they never wait behind one that needs a slot. A suspect needs no slot: messages that have slots may wait for its end.
func (e *entry[R]) readyQueue() int {
	if e.Alone || e.Step != driver.StepHandle {
		return noSlot
	}
	return e.class()
}

func (e *entry[R]) record() any  { return e.Record }
func (e *entry[R]) key() []byte  { return e.lane.e.opt.Codec.Key(&e.Message) }
func (e *entry[R]) body() []byte { return e.lane.e.opt.Codec.Body(&e.Message) }
func (e *entry[R]) size() int    { return e.Size }
func (e *entry[R]) orderKey() uint64 {
	if e.Key == 0 {
		return 0
	}
	return e.Key*2 + e.lane.salt | 1
}
func (e *entry[R]) headers() redeliver.Headers    { return e.lane.e.opt.Codec.Headers(&e.Message) }
func (e *entry[R]) readState(st *redeliver.State) { e.lane.e.opt.Codec.State(&e.Message, st) }
func (e *entry[R]) age() (*redeliver.State, time.Time, time.Time) {
	return e.lane.e.opt.Codec.Age(&e.Message)
}
func (e *entry[R]) isFirst() bool             { return !e.Retry && !e.Returned }
func (e *entry[R]) isLost() bool              { return e.lost.Load() || e.lane.drainIsOver() || e.lane.isLost() }
func (e *entry[R]) draining() <-chan struct{} { return e.lane.draining }
func (e *entry[R]) isDraining() bool          { return e.lane.isDraining() }
func (e *entry[R]) session() context.Context  { return e.lane.ctx }
func (e *entry[R]) truncates() bool {
	t, ok := e.lane.e.opt.Store.(driver.Truncating)
	return ok && t.Truncates()
}

func (e *entry[R]) write(ctx context.Context, to driver.Place, st *redeliver.State, done driver.Done) {
	e.lane.e.opt.Store.Write(ctx, to, &e.Message, st, done)
}

// end implements anyEntry.
func (e *entry[R]) end(how Ending) {
	e.ending = how
	e.handlerEnded()
	e.lane.report(e)
}

// handlerEnded implements anyEntry.
func (e *entry[R]) handlerEnded() {
	if e.endReported.Swap(true) {
		return
	}
	d, turn := e.current.Load(), e.lane.e.sub.Turn
	switch {
	case d.late != nil && turn != nil: // its time is over, and its handler may still run
		if e.Alone {
			turn.add()
		}
		d.late.afterReturn(turn.End)
	case !e.Alone:
		turn.End()
	}
	if !e.Alone {
		return
	}
	e.lane.Post(func() {
		if e.phase == entryRuns && e.current.Load() == d { // otherwise it has ended here
			for _, g := range e.lane.opt.Gaters {
				g.HandlerEnded(&e.Message)
			}
		}
	})
}

// runAgain implements anyEntry.
func (e *entry[R]) runAgain(st *redeliver.State) {
	probe := e.current.Load().probe
	e.newDelivery(st)
	e.current.Load().probe = probe
	e.lane.e.sub.slots.beginWithoutSlot()
	e.lane.e.pool.Submit(e)
}

// serve runs a message that has begun, in a worker.
func (e *entry[R]) serve() {
	d, eng := e.current.Load(), e.lane.e
	if eng.batches != nil {
		if m := eng.newMember(e, d); m != nil {
			e.join(eng.batches, m)
		}
		return
	}
	if d.Lost() { // its session ended while it was ready
		_ = d.abandon(nil)
		return
	}
	d.runs = true
	defer d.End(nil)
	eng.opt.Handler.Handle(d, &e.Message)
}

func (d *Delivery) succeed() {
	if d.answerIgnored {
		d.endUnsettled()
		return
	}
	if d.claim() {
		if !d.noHandler.Load() {
			d.signal = signalSuccess
		}
		d.entry.end(Ending{Kind: Acked})
	}
}
