package dlq

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redeliver/redeliver/adapters/amqp/internal/layout"
	"github.com/redeliver/redeliver/adapters/amqp/internal/link"
	"github.com/redeliver/redeliver/adapters/amqp/internal/management"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/deadletter/driver"
	"github.com/redeliver/redeliver/internal/statekeys"
	"github.com/redeliver/redeliver/internal/wirename"
)

// Options configure how to work on a DLQ.
type Options struct {
	Foreign        bool // another program fills it
	DeliveryLimit  int  // how often the broker delivers a message before it removes it; 0 means to find out
	Keys           statekeys.Keys
	Link           link.Options    // without name and direction
	Sender         *link.Sender    // writes copies
	Management     *management.API // nil if there is none
	SendTimeout    time.Duration
	DialTimeout    time.Duration
	RetryBytes     int // bounds the bodies that are in transit at once
	NoProvisioning bool
}

// Open opens a DLQ, which must exist.
func Open(ctx context.Context, info deadletter.Info, opt Options) (*Queue, error) {
	q := &Queue{
		Options: opt, info: info, sessions: make(map[*deadSession]bool),
		stateQueue: info.DLQ + wirename.StateSuffix, semaphore: make(chan struct{}, 1),
	}
	q.stateLink = q.newLink("redeliver, state of dead letters", false)
	q.stateSender = link.NewSender(q.stateLink)
	q.readLink = q.newLink("redeliver, looking at dead letters", true)
	err := q.checkExists(ctx, info.DLQ, "queue %[2]s has never been subscribed to, or the Names differ")
	if err == nil {
		err = q.findLimit(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, q.Close())
	}
	return q, nil
}

func (q *Queue) newLink(name string, reads bool) *link.Link {
	opt := q.Link
	opt.Name, opt.Reads = name, reads
	return link.New(opt)
}

// Queue is the DLQ of one queue. It implements driver.DLQ.
//
// Reading a queue of RabbitMQ hides its messages from others until they are returned. The state is in a queue beside
// it.
type Queue struct {
	Options

	info     deadletter.Info
	limit    int // deliveries after which the broker removes a message; 0 means no limit
	readLink *link.Link

	stateQueue  string // see state.go
	stateLink   *link.Link
	stateSender *link.Sender
	semaphore   chan struct{} // held while this process reads or writes the state
	isNew       atomic.Bool   // this process created stateQueue, and nothing is written yet

	mu       sync.Mutex
	sessions map[*deadSession]bool // open ones; nil if the DLQ is closed
}

// checkExists fails if a queue does not exist. why is a format that explains it; its arguments are the queue and the
// origin.
func (q *Queue) checkExists(ctx context.Context, queue, why string) error {
	_, err := q.readLink.Stat(ctx, queue)
	if link.IsNotFound(err) {
		return fmt.Errorf("amqp: %[1]s does not exist: "+why, queue, q.info.Origin)
	}
	return err
}

// findLimit determines the delivery limit of the DLQ, if messages can reach it.
func (q *Queue) findLimit(ctx context.Context) error {
	limit, err := q.readLimit(ctx)
	if err == nil && limit > 0 && limit <= unreachableLimit {
		q.limit, q.info.MaxReads = limit, limit/2
		q.info.ReadEffect += fmt.Sprintf("; after %d deliveries the broker removes a message, so a scan is refused from the %dth on", limit, q.info.MaxReads)
	}
	return err
}

// unreachableLimit is a delivery limit that no message reaches.
const unreachableLimit = 1 << 24

// readLimit returns the delivery limit, or 0 for none. The limit of redeliver's own DLQ is unreachable unless a policy
// lowers it.
func (q *Queue) readLimit(ctx context.Context) (int, error) {
	switch {
	case q.DeliveryLimit > 0:
		return q.DeliveryLimit, nil
	case q.Management == nil && q.Foreign:
		return management.RabbitMQ4Limit, nil
	}
	ctx, cancel := context.WithTimeout(ctx, q.DialTimeout)
	defer cancel()
	r, err := q.readSettings(ctx)
	if err != nil && !q.Foreign {
		err = nil // redeliver's own arguments are known
	}
	if err != nil || r == nil {
		return 0, err
	}
	limit, ok := r.MaxDeliveries(r.DeliveryLimit != nil)
	if !ok {
		return 0, nil
	}
	n, _ := limit.Number()
	return int(min(n, layout.NoLimit)), nil
}

// Info implements [driver.DLQ].
func (q *Queue) Info() deadletter.Info { return q.info }

// Count implements [driver.DLQ]. Consumers hold unacked messages, which only the management API counts.
func (q *Queue) Count(ctx context.Context) (n int64, exact bool, err error) {
	c, err := q.readLink.Stat(ctx, q.info.DLQ)
	if n = int64(c.Ready); err == nil && c.Consumers > 0 {
		held, _, err := q.unacked(ctx)
		return n + held, false, err
	}
	return n, false, err
}

// Uncounted implements [deadletter.Uncounter].
func (q *Queue) Uncounted(ctx context.Context) (consumers int, err error) {
	c, err := q.readLink.Stat(ctx, q.info.DLQ)
	if err != nil || c.Consumers == 0 {
		return 0, err
	}
	_, known, err := q.unacked(ctx)
	if known {
		return 0, err
	}
	return c.Consumers, err
}

// unacked returns how many messages the consumers of the DLQ hold, if the management API knows it.
func (q *Queue) unacked(ctx context.Context) (n int64, known bool, err error) {
	if q.Management == nil {
		return 0, false, nil
	}
	found, err := q.Management.Queues(ctx, "^"+regexp.QuoteMeta(q.info.DLQ)+"$")
	if held := found[q.info.DLQ].Unacked; err == nil && held != nil {
		return *held, true, nil
	}
	return 0, false, err
}

// holderPrefix is the prefix of the state's keys for the holders of locks.
const holderPrefix = "holder/"

// LockHolder implements [driver.DLQ].
func (q *Queue) LockHolder(ctx context.Context, lock string) (h deadletter.Holder, ok bool, err error) {
	if ok, err = q.isLocked(ctx, LockQueue(q.info.DLQ, lock)); err != nil || !ok {
		return h, false, err
	}
	all, err := q.Load(ctx)
	if err != nil {
		return h, false, err
	}
	if json.Unmarshal(all[holderPrefix+lock], &h) != nil {
		h = deadletter.Holder{Who: "unknown, because the lock was just taken", Task: "unknown", Since: time.Now().UTC()}
	}
	return h, true, nil
}

// Connect implements [driver.DLQ].
func (q *Queue) Connect(ctx context.Context) (driver.Session, error) {
	s := &deadSession{q: q, link: q.newLink("redeliver, dead letters", true)}
	var err error
	if s.conn, err = s.link.Get(ctx); err != nil {
		return nil, err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.sessions == nil {
		s.link.Close()
		return nil, link.ErrClosed
	}
	q.sessions[s] = true
	return s, nil
}

// Close implements [driver.DLQ]. It frees all locks.
func (q *Queue) Close() error {
	q.mu.Lock()
	sessions := q.sessions
	q.sessions = nil
	q.mu.Unlock()
	for s := range sessions {
		s.link.Close()
	}
	q.readLink.Close()
	q.stateLink.Close()
	return nil
}
