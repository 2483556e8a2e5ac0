package kafka

import (
	"fmt"
	"hash/maphash"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/delayqueue"
)

// entry is one record on its way through a lane.
type entry struct {
	delayqueue.Seat

	lane    *lane
	rec     record
	number  uint64 // in the tracker
	weight  int    // see weigh
	key     uint64
	keyed   bool
	handed  bool      // it lies ready for a consumer, or one has it
	then    then      // what to do when its time has come
	last    then      // what to do when it is due: then, unless that is toLevel
	behind  *entry    // the next of the same key
	unsure  *confirm  // a write of it that nobody has answered
	room    *card     // for card; nil where a key does not wait for its failures
	card    *card     // its place in the line of its key; nil where it has none
	until   time.Time // when to look again, of what waits for its key on a level
	written int64     // to where it waits, in Unix milliseconds
	went    went

	busy    atomic.Bool // its handler runs: it counts in the client's turn, or has one of its own
	alone   *caution    // of a suspect that runs alone
	crashes int         // how often it was alone when its process died: too often

	state    *redeliver.State     // what it brought from a topic that we write
	d        *delayqueue.Delivery // delivery, once it leaves for the handler
	delivery delayqueue.Delivery
	msg      *message.Message    // nil where the handler takes records
	attempt  *delayqueue.Attempt // nil where it takes messages, or many records at a time
	batched  *BatchMessage       // nil where it takes one at a time
}

// then is what is to be done with an entry.
type then uint8

const (
	toHandler then = iota
	toLevel        // hop to a shorter level
	toOrigin       // a delayed publish is due
	toLine         // to a level, until those before it in its line may be through
)

// went says where a record was written.
type went struct {
	parked   bool // to a level, not to the DLQ
	buried   bool // to the DLQ, although no handler has seen it: its topic refuses it
	attempts int
	due      time.Time
}

// Delivery implements [delayqueue.Flyer].
func (e *entry) Delivery() *delayqueue.Delivery { return e.d }

// Handed implements [delayqueue.Flyer].
func (e *entry) Handed() *message.Message { return e.msg }

// Moved implements [delayqueue.Mover].
func (e *entry) Moved(forwarded bool) {
	how := delayqueue.Abandoned
	if forwarded {
		how = delayqueue.Forwarded
	}
	e.lane.flight.Report(e, how)
}

var seed = maphash.MakeSeed()

// take registers a record and sends it on its way.
func (l *lane) take(m *sarama.ConsumerMessage) {
	e := l.slab.entry(l, m)
	e.number = l.track.add(m.Offset)
	l.weigh(e)
	switch order := l.r.sub.Policy.Order; {
	case order == redeliver.PerKey:
		if l.waits == nil {
			l.line(e)
		}
	case order == redeliver.Blocking && l.waits == nil:
		e.keyed = true // all have one key
	case order != redeliver.Unordered && m.Key != nil:
		// Two keys with one hash run one after another, which does no harm.
		e.key, e.keyed = maphash.Bytes(seed, m.Key), true
	}
	if l.waits != nil {
		l.nap.read = m.Offset
		l.receive(e)
		return
	}
	l.enqueue(e)
}

// enqueue puts an entry behind its key, or makes it ready.
func (l *lane) enqueue(e *entry) {
	l.backlog++
	if e.card != nil && l.waits != nil {
		l.arrived(e)
		return
	}
	if e.keyed {
		last, busy := l.keys[e.key]
		l.keys[e.key] = e
		if busy {
			last.behind = e
			return
		}
	}
	l.ready.Push(e)
}

// free lets the next of its key go.
func (l *lane) free(e *entry) {
	if !e.keyed {
		return
	}
	if e.behind != nil {
		if !l.draining || l.owed(e.behind) {
			l.freed.push(e.behind)
		}
	} else if l.keys[e.key] == e {
		delete(l.keys, e.key)
	}
}

// peek is the message that waits to be taken, if any.
func (l *lane) peek() *message.Message {
	if l.next == nil {
		return nil
	}
	return l.next.msg
}

// unpack makes the message that the handler gets. What cannot be decoded goes
// to the DLQ as it is; ok is false then.
func (l *lane) unpack(e *entry) (ok bool) {
	e.d = l.delivery(e)
	if l.r.native != nil {
		return true // as it is
	}
	msg, err := unmarshal(&e.rec)
	if err != nil {
		undecodable := &redeliver.UndecodableError{Err: err}
		l.forward(e, l.r.sub.Decide(e.d.State(), undecodable, time.Now()), undecodable)
		return false
	}
	msg.SetContext(e.d)
	e.msg = msg
	return true
}

// delivery makes an entry's context and what the middlewares need to know.
func (l *lane) delivery(e *entry) *delayqueue.Delivery {
	d := &e.delivery
	d.Sub, d.Record, d.Waited, d.Mover, d.Alone = l.r.sub, &e.rec, e.state, e, e.alone != nil
	if e.state != nil {
		d.ID, d.Source = e.state.ID, e.state.Source
	} else {
		m := e.rec.ConsumerMessage // it knows its id, see delayqueue.Named
		d.Source = redeliver.Source{Known: true, Partition: m.Partition, Offset: m.Offset}
		if m.Timestamp.UnixMilli() > 0 { // producers that have no clock write 0 or -1
			d.Source.Timestamp = m.Timestamp
		}
		if l.r.sub.WantsSuccesses() {
			d.ID = e.rec.ID() // it is asked for more than once then
		}
		if l.r.sub.Sink != nil {
			if found := strangers(m.Headers); found != nil {
				l.r.sub.Tell(redeliver.HeadersIgnored{Topic: l.topic, ID: e.rec.ID(), Findings: found})
			}
		}
	}
	d.Begin(l.ctx)
	return d
}

func unmarshal(rec *record) (msg *message.Message, err error) {
	defer func() {
		if v := recover(); v != nil {
			msg, err = nil, &redeliver.PanicError{Value: v, Stack: debug.Stack()}
		}
	}()
	msg, err = rec.marshaler.Unmarshal(rec.ConsumerMessage)
	if err == nil && msg == nil {
		err = fmt.Errorf("the marshaler returned no message")
	}
	return msg, err
}

// nack is the answer of a message that failed without an error: a publisher of
// the Router, another middleware. It is an attempt like an error.
func (l *lane) nack(e *entry) {
	if e.d.Lost() || l.sess.Context().Err() != nil {
		// The end of the session is why, or may be: it comes back uncounted.
		l.end(e, delayqueue.Abandoned)
		return
	}
	dec, cause := l.r.sub.DecideNack(e.d, l.r.client.cfg.NackDelay, time.Now())
	l.forward(e, dec, cause)
}

// forward writes an entry in flight to where dec says, without a handler.
func (l *lane) forward(e *entry, dec *redeliver.Decision, cause error) {
	go func() { e.Moved(l.r.sub.Forward(e.d, dec, cause) == nil) }()
}
