package redelivertest

import (
	"bytes"
	"context"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/redeliver/redeliver/deadletter"
)

// corpse is a record in the DLQ. Its number is its place there; it never changes.
type corpse struct {
	record
	n    int64
	at   time.Time
	mark deadletter.Outcome
}

// graves is what a DLQ has besides its records. The broker's mu guards it.
type graves struct {
	buried int64 // records that were ever written to it
	claim  *claim
	tasks  []deadletter.Task
	wanted map[string]deadletter.Wanted
}

// bury writes a record to the DLQ. The caller holds mu.
func (q *queue) bury(rec record) {
	q.dead = append(q.dead, corpse{record: rec, n: q.graves.buried, at: time.Now()})
	q.graves.buried++
	q.b.change()
}

// DeadLetterQueue is the DLQ for package deadletter: to browse, replay, purge. It
// behaves as a connection to a broker on which removal is real and looking costs
// nothing; Close is also what the death of its process looks like.
func (s *Subscription) DeadLetterQueue() deadletter.Queue { return &deadQueue{q: s.q} }

type deadQueue struct {
	q      *queue
	closed bool // mu guards it
}

// Info implements [deadletter.Queue].
func (d *deadQueue) Info() deadletter.Info {
	return deadletter.Info{
		Broker: "memory", DLQ: d.q.dlq(), Origin: d.q.topic, Group: d.q.group, Back: d.q.retry(), Look: deadletter.FreeLook,
	}
}

// Count implements [deadletter.Queue].
func (d *deadQueue) Count(context.Context) (n int64, exact bool, err error) {
	d.q.b.mu.Lock()
	defer d.q.b.mu.Unlock()
	return int64(len(d.q.dead)), true, d.open()
}

// open is the error of a queue that was closed. The caller holds mu.
func (d *deadQueue) open() error {
	if d.closed {
		return errClosed
	}
	return nil
}

// Oldest implements [deadletter.Dater].
func (d *deadQueue) Oldest(context.Context) (at time.Time, ok bool, err error) {
	d.q.b.mu.Lock()
	defer d.q.b.mu.Unlock()
	for _, c := range d.q.dead {
		if !ok || c.at.Before(at) {
			at, ok = c.at, true
		}
	}
	return at, ok, d.open()
}

// Keeps implements [deadletter.Keeper]: nothing ends by itself.
func (d *deadQueue) Keeps(context.Context) (time.Duration, error) {
	d.q.b.mu.Lock()
	defer d.q.b.mu.Unlock()
	return 0, d.open()
}

// Drops implements [deadletter.Dropper].
func (d *deadQueue) Drops(context.Context) (string, error) { return "", nil }

// Scan implements [deadletter.Queue].
func (d *deadQueue) Scan(_ context.Context, from deadletter.From) (deadletter.Scan, error) {
	d.q.b.mu.Lock()
	defer d.q.b.mu.Unlock()
	s := &deadScan{d: d, end: d.q.graves.buried}
	if from == deadletter.End {
		s.next = s.end
	}
	return s, d.open()
}

// Tasks implements [deadletter.Queue].
func (d *deadQueue) Tasks(context.Context) ([]deadletter.Task, error) {
	d.q.b.mu.Lock()
	defer d.q.b.mu.Unlock()
	return slices.Clone(d.q.graves.tasks), d.open()
}

// Want implements [deadletter.Queue].
func (d *deadQueue) Want(_ context.Context, task string, w deadletter.Wanted) error {
	d.q.b.mu.Lock()
	defer d.q.b.mu.Unlock()
	if d.q.graves.wanted == nil {
		d.q.graves.wanted = make(map[string]deadletter.Wanted)
	}
	d.q.graves.wanted[task] = w
	return d.open()
}

// Holder implements [deadletter.Queue].
func (d *deadQueue) Holder(context.Context) (h deadletter.Holder, ok bool, err error) {
	d.q.b.mu.Lock()
	defer d.q.b.mu.Unlock()
	if c := d.q.graves.claim; c != nil {
		return c.holder, true, d.open()
	}
	return h, false, d.open()
}

// Claim implements [deadletter.Queue].
func (d *deadQueue) Claim(_ context.Context, holder deadletter.Holder) (deadletter.Claim, error) {
	d.q.b.mu.Lock()
	defer d.q.b.mu.Unlock()
	if err := d.open(); err != nil {
		return nil, err
	}
	if c := d.q.graves.claim; c != nil {
		return nil, &deadletter.HeldError{DLQ: d.q.dlq(), Holder: c.holder}
	}
	holder.Since, holder.Until = time.Now(), time.Time{}
	c := &claim{d: d, holder: holder}
	d.q.graves.claim = c
	return c, nil
}

// Close implements [deadletter.Queue]. What it had claimed is free.
func (d *deadQueue) Close() error {
	d.q.b.mu.Lock()
	defer d.q.b.mu.Unlock()
	d.closed = true
	if c := d.q.graves.claim; c != nil && c.d == d {
		d.q.graves.claim = nil
	}
	return nil
}

// deadScan reads the DLQ by the numbers of its records.
type deadScan struct {
	d         *deadQueue
	next, end int64
}

// Next implements [deadletter.Scan].
func (s *deadScan) Next(ctx context.Context) (*deadletter.Message, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	q := s.d.q
	q.b.mu.Lock()
	defer q.b.mu.Unlock()
	if err := s.d.open(); err != nil {
		return nil, err
	}
	i, _ := slices.BinarySearchFunc(q.dead, s.next, func(c corpse, n int64) int { return int(c.n - n) })
	if i == len(q.dead) || q.dead[i].n >= s.end {
		s.next, s.end = max(s.next, s.end), q.graves.buried
		return nil, io.EOF
	}
	s.next = q.dead[i].n + 1
	return s.d.message(&q.dead[i]), nil
}

// Close implements [deadletter.Scan].
func (s *deadScan) Close() error { return nil }

// uuidHeader is how a message's UUID is shown, as on Kafka.
const uuidHeader = "_watermill_message_uuid"

func (d *deadQueue) message(c *corpse) *deadletter.Message {
	users, ours := c.split()
	m := &deadletter.Message{
		Position: deadletter.Position(strconv.FormatInt(c.n, 10)), Time: c.at,
		Key: bytes.Clone(users.key), Body: bytes.Clone(users.body), Mark: c.mark, Native: c.n,
	}
	if users.uuid != "" {
		m.Headers = append(m.Headers, deadletter.Header{Name: uuidHeader, Value: []byte(users.uuid)})
	}
	for _, h := range users.headers {
		m.Headers = append(m.Headers, deadletter.Header{Name: h.name, Value: bytes.Clone(h.value)})
	}
	deadletter.Read(m, d.Info(), ours, func() string { return users.idOf(d.q.dlq(), c.n) })
	return m
}

// recordFrom makes the record of a message, without redeliver's headers.
func recordFrom(m *deadletter.Message, headers []deadletter.Header) record {
	rec := record{key: bytes.Clone(m.Key), body: bytes.Clone(m.Body)}
	for _, h := range headers {
		if h.Name == uuidHeader && rec.uuid == "" {
			rec.uuid = string(h.Value)
			continue
		}
		rec.headers = append(rec.headers, header{h.Name, bytes.Clone(h.Value)})
	}
	return rec
}
