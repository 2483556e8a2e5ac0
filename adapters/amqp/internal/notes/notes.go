// Package notes keeps what must be known about the messages that wait in an ordered queue: their attempts, and how often they
// have killed their process. Such a message is not written again, because it would lose its place, and RabbitMQ
// counts only deliveries. So another queue has a [Note] of each of them.
//
// That queue has a single active consumer: the process that reads the ordered queue. It gets all notes when it gets its first
// message, keeps them unacked, and so replaces or removes each with one ack. When its channel ends, the next
// process gets them all.
//
// A message has no number that stays. The broker's mark that it came back, its id and a hash of it identify it: see
// [Queue.Take]. Of two equal messages each has its own note.
package notes

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/amqp/internal/link"
	"github.com/redeliver/redeliver/adapters/amqp/internal/wire"
	"github.com/redeliver/redeliver/driver"
	"github.com/redeliver/redeliver/internal/statekeys"
)

// The headers of a note beside those of its state.
const (
	headerVersion = "redeliver-amqp-note"    // the number of the note among those of its message
	headerCrashes = "redeliver-amqp-crashes" // how often the message has killed its process
)

const (
	maxMessage = 2048 // bytes of what identifies a message
	maxSpent   = 16   // messages that wait for their ack
	// maxSpentTime is how long they wait, as far as notes are written: the broker ends a channel that keeps a message for longer
	// than its consumer_timeout.
	maxSpentTime = time.Minute
)

// errLost is the error of a request on a channel that has ended.
var errLost = errors.New("amqp: the channel that reads the notes has ended")

// Options describe the queue of the notes of an ordered queue.
type Options struct {
	Name, Group string
	Max         int // how many notes are read at most
	Keys        statekeys.Keys
	Link        *link.Link
	Sender      *link.Sender
	Declare     func(ctx context.Context, missing error) error // declares the queue again
	Record      func(method, place string, err error)          // of a request
}

// Note is the note of one message. Its queue's lock guards it.
type Note struct {
	id, message string // a name of its own, and what identifies the message
	state       redeliver.State
	crashes     int
	version     int
	tag         uint64 // its newest message, or 0 if the broker has not delivered that
	written     bool   // the broker has the newest version
	ended       bool   // its message has ended
	writing     sync.Mutex
}

// Queue reads and writes the notes for one consumer of the ordered queue. It is safe for concurrent use.
type Queue struct {
	Options
	opening sync.Mutex

	mu      sync.Mutex
	ch      *amqp091.Channel // nil while it is not read
	ended   chan struct{}    // closed when ch has ended
	closed  bool
	loaded  bool      // all notes of earlier processes were read
	spent   []uint64  // messages on ch that say nothing any more
	since   time.Time // of the first of them
	notes   map[string]*Note
	untaken map[string][]*Note       // by message: read, but the message has not come
	marks   map[string]chan struct{} // closed when the queue has delivered the mark
}

// New returns the notes. They are not read before Open.
func New(opt Options) *Queue {
	return &Queue{Options: opt, notes: make(map[string]*Note), untaken: make(map[string][]*Note), marks: make(map[string]chan struct{})}
}

// Open begins to read the notes, unless they are read, and returns when all earlier ones were read. The consumer of the process
// before may not have ended yet: then the broker delivers nothing.
func (q *Queue) Open(ctx context.Context) error {
	q.opening.Lock()
	defer q.opening.Unlock()
	q.mu.Lock()
	done := q.ch != nil || q.closed
	q.mu.Unlock()
	if done {
		return nil
	}
	err := q.consume(ctx)
	if link.IsNotFound(err) {
		if err = q.Declare(ctx, err); err == nil {
			err = q.consume(ctx)
		}
	}
	q.Record(link.MethodConsume, q.Name, err)
	if err != nil {
		return err
	}
	if err := q.Sync(ctx); err != nil {
		if !errors.Is(err, errLost) {
			q.Record(link.MethodConsume, q.Name, err)
		}
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.loaded = true
	return nil
}

// consume starts the consumer.
func (q *Queue) consume(ctx context.Context) error {
	return q.Link.Do(ctx, func(l *link.Link) error {
		ch, err := l.Channel(ctx)
		if err != nil {
			return err
		}
		in, err := link.StartConsumer(ch, q.Name, link.ConsumerTag, 0)
		if err != nil {
			_ = ch.Close() // it may be closed already
			return err
		}
		q.mu.Lock()
		defer q.mu.Unlock()
		q.ch, q.ended = ch, make(chan struct{})
		go q.read(ch, q.ended, in)
		return nil
	})
}

// read reads the notes until the consumer ends: with its channel, or because the queue was deleted.
func (q *Queue) read(ch *amqp091.Channel, ended chan struct{}, in <-chan amqp091.Delivery) {
	for d := range in {
		q.receive(&d)
	}
	q.mu.Lock()
	q.ch, q.spent = nil, nil
	for _, n := range q.notes {
		n.tag, n.written = 0, false
	}
	close(ended)
	q.mu.Unlock()
	_ = ch.Close()
}

// receive reads one note or mark. A note is spent when a newer one replaces it, or its message has ended.
func (q *Queue) receive(d *amqp091.Delivery) {
	q.mu.Lock()
	defer q.mu.Unlock()
	spent := d.DeliveryTag
	if mark, ok := q.marks[d.MessageId]; ok {
		close(mark)
		delete(q.marks, d.MessageId)
	} else if n := q.parse(d); n != nil {
		switch known := q.notes[n.id]; {
		case known == nil && (q.loaded || len(q.notes) >= q.Max):
		case known == nil:
			n.tag, n.written, spent = d.DeliveryTag, true, 0
			q.notes[n.id] = n
			q.untaken[n.message] = append(q.untaken[n.message], n)
		case n.version >= known.version:
			if n.version > known.version { // by a consumer whose channel has ended
				known.state, known.crashes, known.version = n.state, n.crashes, n.version
			}
			known.tag, known.written, spent = d.DeliveryTag, true, known.tag
		}
	}
	q.spendLocked(spent)
}

// spendLocked marks a message as spent. It is acked with others, because a broker may refuse each ack by ending the channel: see
// the adapter's refusals.go.
func (q *Queue) spendLocked(tag uint64) {
	if tag == 0 {
		return
	}
	if len(q.spent) == 0 {
		q.since = time.Now()
	}
	if q.spent = append(q.spent, tag); len(q.spent) >= maxSpent {
		q.ackLocked()
	}
}

// ackLocked acks what is spent.
func (q *Queue) ackLocked() {
	for _, tag := range q.spent {
		_ = q.ch.Ack(tag, false) // an error means that the channel has ended
	}
	q.spent = q.spent[:0]
}

// parse returns the note in a delivery, or nil if it has none.
func (q *Queue) parse(d *amqp091.Delivery) *Note {
	_ = wire.StripUnsigned(q.Keys, statekeys.Note, d) // without them it is no note
	n := &Note{id: d.MessageId, message: string(d.Body)}
	var err error
	if n.version, err = number(d.Headers, headerVersion); err != nil || n.id == "" || len(n.message) > maxMessage {
		return nil
	}
	if n.crashes, err = number(d.Headers, headerCrashes); err != nil {
		return nil
	}
	ours, _ := wire.RestoreOriginal(d)
	n.state, _ = driver.ParseHeaders(q.Group, ours)
	return n
}

func number(headers amqp091.Table, name string) (int, error) {
	text, _ := headers[name].(string)
	n, err := strconv.ParseUint(text, 10, 31)
	return int(n), err
}

// compose returns the message of a note.
func (q *Queue) compose(n *Note) amqp091.Publishing {
	rec := wire.Record{Keys: q.Keys}
	rec.Body, rec.MessageId, rec.DeliveryMode = []byte(n.message), n.id, amqp091.Persistent
	p := rec.Publishing(&n.state)
	p.Headers[headerVersion], p.Headers[headerCrashes] = strconv.Itoa(n.version), strconv.Itoa(n.crashes)
	wire.Sign(q.Keys, statekeys.Note, &p)
	return p
}

// send writes a message to the queue, which is declared again if it was deleted.
func (q *Queue) send(ctx context.Context, p amqp091.Publishing) error {
	err := q.Sender.Send(ctx, "", q.Name, p)
	if errors.Is(err, link.ErrNoQueue) {
		if err = q.Declare(ctx, err); err == nil {
			err = q.Sender.Send(ctx, "", q.Name, p)
		}
	}
	q.Record(link.MethodPublish, link.ExchangeText("", q.Name), err)
	return err
}

// Sync returns when everything that is in the queue was read. A queue delivers what came back before what is new, so it writes a
// mark and waits for that. If the mark does not come, the broker may have forgotten the consumer, which ends then.
func (q *Queue) Sync(ctx context.Context) error {
	name, mark := rand.Text(), make(chan struct{})
	q.mu.Lock()
	if q.ch == nil {
		q.mu.Unlock()
		return errLost
	}
	ended := q.ended
	q.marks[name] = mark
	q.mu.Unlock()
	defer func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		delete(q.marks, name)
	}()
	if err := q.send(ctx, amqp091.Publishing{MessageId: name, DeliveryMode: amqp091.Persistent}); err != nil {
		return err
	}
	select {
	case <-mark:
		return nil
	case <-ended:
		return errLost
	case <-ctx.Done():
		q.end()
		return fmt.Errorf("amqp: queue %s delivers no notes: %w", q.Name, ctx.Err())
	}
}

// Take returns the note of a message that has come back, and the attempts in it, or nil. Each note is taken once, so an equal
// message does not get it. identify returns what identifies the message.
func (q *Queue) Take(identify func() string) (n *Note, st redeliver.State, crashes int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.untaken) == 0 {
		return nil, st, 0
	}
	message := identify()
	all := q.untaken[message]
	if len(all) == 0 {
		return nil, st, 0
	}
	n = all[0]
	if q.untaken[message] = all[1:]; len(all) == 1 {
		delete(q.untaken, message)
	}
	return n, n.state, n.crashes
}

// DropUntaken removes the notes that nobody has taken. It is called when a message comes that was never delivered before: by then
// all that came back have come, and these notes are those of messages that were acked.
func (q *Queue) DropUntaken() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.dropUntakenLocked()
	q.ackLocked()
}

func (q *Queue) dropUntakenLocked() {
	for _, all := range q.untaken {
		for _, n := range all {
			q.removeLocked(n)
		}
	}
	clear(q.untaken)
}

// Create returns a note for a message that has none.
func (q *Queue) Create(message string) *Note { return &Note{id: rand.Text(), message: message} }

// Crashes returns how often the message has killed its process.
func (q *Queue) Crashes(n *Note) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return n.crashes
}

// Write writes the state of a message and its crashes. If st is nil, the state is what it was.
func (q *Queue) Write(ctx context.Context, n *Note, st *redeliver.State, crashes int) error {
	n.writing.Lock()
	defer n.writing.Unlock()
	if err := q.Open(ctx); err != nil {
		return err
	}
	q.mu.Lock()
	if n.ended {
		q.mu.Unlock()
		return nil
	}
	if st != nil {
		n.state = *st
	}
	if time.Since(q.since) > maxSpentTime {
		q.ackLocked()
	}
	n.crashes, n.written = crashes, false
	n.version++
	q.notes[n.id] = n
	p, version := q.compose(n), n.version
	q.mu.Unlock()
	err := q.send(ctx, p)
	if err == nil {
		q.mu.Lock()
		defer q.mu.Unlock()
		n.written = n.version == version
	}
	return err
}

// Has reports whether the broker has a state of a message.
func (q *Queue) Has(n *Note, st *redeliver.State) bool {
	if n == nil {
		return false
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	return n.written && n.state.Attempts == st.Attempts && n.state.Due.Equal(st.Due)
}

// Remove removes the note of a message that has ended. If the notes are not read now, it is removed when they are: then Remove
// returns false.
func (q *Queue) Remove(n *Note) (sent bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.removeLocked(n)
	q.ackLocked()
	return q.ch != nil || n.version == 0
}

// removeLocked removes a note. One that the broker has not delivered yet is spent when it comes.
func (q *Queue) removeLocked(n *Note) {
	n.ended = true
	delete(q.notes, n.id)
	q.spendLocked(n.tag)
}

// Confirm returns when the broker has the acks of the removed notes, or nothing is read any more.
func (q *Queue) Confirm(ctx context.Context) error {
	if err := q.Open(ctx); err != nil {
		return err
	}
	q.mu.Lock()
	ch, closed := q.ch, q.closed
	q.mu.Unlock()
	switch {
	case closed:
		return nil
	case ch == nil:
		return errLost
	}
	_, err := ch.QueueDeclarePassive(q.Name, true, false, false, false, nil) // after the answer the broker has the acks
	return err
}

// end closes the channel, and returns when it has ended.
func (q *Queue) end() {
	q.mu.Lock()
	ch, ended := q.ch, q.ended
	q.mu.Unlock()
	if ch != nil {
		_ = ch.Close() // it may be closed already
		<-ended
	}
}

// Close ends the reading. Write still writes.
func (q *Queue) Close() {
	q.mu.Lock()
	q.closed = true
	q.ackLocked()
	q.mu.Unlock()
	q.end()
}
