package redelivertest

import (
	"bytes"
	"context"
	"maps"
	"strconv"
	"time"

	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/deadletter/driver"
	"github.com/redeliver/redeliver/internal/wirename"
)

// deadRecord is a record in the DLQ. Its number is its position there and never changes.
type deadRecord struct {
	record
	n  int64
	at time.Time
}

// dlqState is the state of a DLQ besides its records. The broker's mu guards it.
type dlqState struct {
	written int64 // number of records ever written to it
	state   driver.State
	locks   map[string]*deadSession
}

// deadLetterLocked writes a record to the DLQ, which is also a topic that a group may read. after is nil, or a delivery that must
// end before a reader gets the record from there.
func (q *queue) deadLetterLocked(rec record, after *delivery) {
	q.dead = append(q.dead, deadRecord{record: rec, n: q.dlqState.written, at: time.Now()})
	q.dlqState.written++
	q.b.putLocked(q.dlq(), rec, after)
}

// DeadLetterQueue returns the DLQ for package deadletter, to browse, replay or purge it. Reading has no effect on it. Its Close has
// the same effect as the death of a process: its claims end.
func (s *Subscription) DeadLetterQueue() deadletter.Queue { return driver.New(&deadQueue{q: s.q}) }

// deadQueue implements [driver.DLQ].
type deadQueue struct {
	q      *queue
	closed bool // mu guards it
}

// do calls f under the broker's lock, unless the queue was closed.
func (d *deadQueue) do(f func(q *queue)) error {
	d.q.b.mu.Lock()
	defer d.q.b.mu.Unlock()
	if d.closed {
		return errClosed
	}
	f(d.q)
	return nil
}

// Info implements [driver.DLQ].
func (d *deadQueue) Info() deadletter.Info {
	return deadletter.Info{
		Broker: "memory", DLQ: d.q.dlq(), Origin: d.q.topic, Group: d.q.group, ReplayTo: d.q.retry(), ReadEffect: deadletter.NoReadEffect,
	}
}

// Count implements [driver.DLQ].
func (d *deadQueue) Count(context.Context) (n int64, exact bool, err error) {
	err = d.do(func(q *queue) { n = int64(len(q.dead)) })
	return n, true, err
}

// Oldest implements [driver.DLQ].
func (d *deadQueue) Oldest(context.Context) (at time.Time, ok bool, err error) {
	err = d.do(func(q *queue) {
		for _, c := range q.dead {
			if !ok || c.at.Before(at) {
				at, ok = c.at, true
			}
		}
	})
	return at, ok, err
}

// Retention implements [driver.DLQ]: nothing expires.
func (d *deadQueue) Retention(context.Context) (time.Duration, error) {
	return 0, d.do(func(*queue) {})
}

// DropLimit implements [driver.DLQ].
func (d *deadQueue) DropLimit(context.Context) (string, error) { return "", nil }

// Load implements [driver.DLQ].
func (d *deadQueue) Load(context.Context) (s driver.State, err error) {
	err = d.do(func(q *queue) { s = maps.Clone(q.dlqState.state) })
	return s, err
}

// Append implements [driver.DLQ].
func (d *deadQueue) Append(_ context.Context, entries ...driver.Entry) error {
	return d.do(func(q *queue) { q.dlqState.addEntries(entries) })
}

func (s *dlqState) addEntries(entries []driver.Entry) {
	if s.state == nil {
		s.state = make(driver.State)
	}
	for _, e := range entries {
		s.state.Put(e)
	}
}

// LockHolder implements [driver.DLQ].
func (d *deadQueue) LockHolder(_ context.Context, lock string) (h deadletter.Holder, ok bool, err error) {
	err = d.do(func(q *queue) {
		if s := q.dlqState.locks[lock]; s != nil {
			h, ok = s.holder, true
		}
	})
	return h, ok, err
}

// Connect implements [driver.DLQ].
func (d *deadQueue) Connect(context.Context) (driver.Session, error) {
	return &deadSession{d: d}, d.do(func(*queue) {})
}

// Close implements [driver.DLQ]. It releases the locks of its sessions.
func (d *deadQueue) Close() error {
	d.q.b.mu.Lock()
	defer d.q.b.mu.Unlock()
	d.closed = true
	maps.DeleteFunc(d.q.dlqState.locks, func(_ string, s *deadSession) bool { return s.d == d })
	return nil
}

func (d *deadQueue) message(c *deadRecord) *deadletter.Message {
	users, ours := c.split()
	m := &deadletter.Message{
		Position: deadletter.Position(strconv.FormatInt(c.n, 10)), Time: c.at,
		Key: bytes.Clone(users.key), Body: bytes.Clone(users.body), Native: c.n,
	}
	if users.uuid != "" {
		m.Headers = append(m.Headers, deadletter.Header{Name: wirename.WatermillUUID, Value: []byte(users.uuid)})
	}
	for _, h := range users.headers {
		m.Headers = append(m.Headers, deadletter.Header{Name: h.name, Value: bytes.Clone(h.value)})
	}
	driver.ReadHeaders(m, d.Info(), ours, func() string { return users.idOf(d.q.dlq(), c.n, c.at) })
	return m
}

// recordFrom returns the record of a message, without redeliver's headers.
func recordFrom(m *deadletter.Message, headers []deadletter.Header) record {
	rec := record{key: bytes.Clone(m.Key), body: bytes.Clone(m.Body)}
	for _, h := range headers {
		if h.Name == wirename.WatermillUUID && rec.uuid == "" {
			rec.uuid = string(h.Value)
			continue
		}
		rec.headers = append(rec.headers, header{h.Name, bytes.Clone(h.Value)})
	}
	return rec
}
