package amqp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/internal/deadletter/driver"
	"github.com/redeliver/redeliver/internal/statekeys"
	"github.com/redeliver/redeliver/internal/wirename"
)

// DeadLetterConfig names the DLQ to open. Topic is required.
type DeadLetterConfig struct {
	// Topic is the topic whose queue's messages failed.
	Topic string
	// DLQ is a queue that another program fills for this queue: RabbitMQ itself, by a dead-letter
	// exchange, or Watermill's poison queue. Default: the DLQ of redeliver.
	DLQ string
	// DeliveryLimit is how often the broker delivers a message of such a DLQ before it removes it.
	// Each look is a delivery. A look is refused from half of the limit on, a replay or a purge two
	// deliveries before it. Default: the limit that the management API reports; without that API
	// 20, RabbitMQ 4's own. The limit of redeliver's own DLQ is out of reach.
	DeliveryLimit int
}

// DeadLetters opens the DLQ of a topic's queue, which must exist. Its companion, "<dlq>.state", is
// created with the first write to it. The returned queue has connections of its own. Keep the
// client open while you use it.
func (c *Client) DeadLetters(ctx context.Context, cfg DeadLetterConfig) (deadletter.Queue, error) {
	queue := c.cfg.Topology.queue(cfg.Topic)
	var ps redeliver.Problems
	checkQueue(&ps, fmt.Sprintf("queue of topic %q", cfg.Topic), queue)
	c.cfg.Names.check(&ps, queue)
	info := deadletter.Info{
		Broker: "rabbitmq", DLQ: c.cfg.Names.dlq(queue), Origin: queue, Group: queue, ReplayTo: c.cfg.Names.retry(queue),
		ReadEffect: "each scan is a delivery of every message that it passes (x-delivery-count), and hides them from others until the scan ends",
	}
	foreign := cfg.DLQ != "" && cfg.DLQ != info.DLQ
	if foreign {
		checkQueue(&ps, "DLQ", cfg.DLQ)
		if cfg.DLQ == queue || cfg.DLQ == info.ReplayTo {
			ps.Add("DLQ", cfg.DLQ, "must not be the queue itself, nor the way back")
		}
		info.OwnDLQ, info.DLQ = info.DLQ, cfg.DLQ
	}
	checkQueue(&ps, "the DLQ's state", info.DLQ+wirename.StateSuffix+"."+driver.ClaimLock)
	ps.CheckCount("DeliveryLimit", cfg.DeliveryLimit, 0, noLimit)
	if err := ps.Err(); err != nil {
		return nil, fmt.Errorf("amqp: %w", err)
	}
	q := &deadLetters{client: c, info: info, foreign: foreign, keys: c.cfg.StateKeys, stateSemaphore: make(chan struct{}, 1)}
	q.stateLink = &link{cfg: &c.cfg, name: "redeliver, state of dead letters"}
	q.readLink = &link{cfg: &c.cfg, name: "redeliver, looking at dead letters", reads: true}
	err := q.checkExists(ctx, info.DLQ, "queue %[2]s has never been subscribed to, or the Names differ")
	if err == nil {
		err = q.findLimit(ctx, cfg.DeliveryLimit)
	}
	if err != nil {
		return nil, errors.Join(err, q.Close())
	}
	return deadletter.New(q), nil
}

// deadLetters is the DLQ of one queue. It implements driver.DLQ.
//
// Reading a queue of RabbitMQ hides its messages from others until they are returned. The state is in a queue beside
// it, see updateState.
type deadLetters struct {
	client  *Client
	info    deadletter.Info
	foreign bool
	keys    statekeys.Keys
	limit   int // deliveries after which the broker removes a message; 0 means no limit
	// stateLink publishes, readLink does not, see link
	stateLink, readLink *link
	stateSemaphore      chan struct{} // held while this process reads or writes the state
	stateIsNew          atomic.Bool   // this process created the state, and nothing is written yet

	mu       sync.Mutex
	sessions map[*deadSession]bool
	closed   bool
}

// checkExists fails if a queue does not exist. why is a format that explains it; its arguments are the queue and the
// origin.
func (q *deadLetters) checkExists(ctx context.Context, queue, why string) error {
	ch, err := q.readLink.channel(ctx)
	if err != nil {
		return err
	}
	defer ch.Close()
	_, _, err = stat(ch, queue)
	if isNotFound(err) {
		return fmt.Errorf("amqp: %[1]s does not exist: "+why, queue, q.info.Origin)
	}
	return err
}

// findLimit determines the delivery limit of the DLQ. The limit of redeliver's own DLQ is unreachable unless a policy
// lowers it.
func (q *deadLetters) findLimit(ctx context.Context, given int) error {
	defer func() {
		if q.limit > unreachableLimit {
			q.limit = 0
		}
		if q.limit > 0 {
			q.info.MaxReads = q.limit / 2
			q.info.ReadEffect += fmt.Sprintf("; after %d deliveries the broker removes a message, so a scan is refused from the %dth on", q.limit, q.info.MaxReads)
		}
	}()
	hasAPI := q.client.cfg.ManagementURL != ""
	switch {
	case given > 0:
		q.limit = given
		return nil
	case !hasAPI && q.foreign:
		q.limit = rabbitMQ4Limit
		return nil
	case !hasAPI:
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, q.client.cfg.DialTimeout)
	defer cancel()
	err := q.queryLimit(ctx)
	if err != nil && !q.foreign {
		return nil // redeliver's own arguments are known
	}
	return err
}

// unreachableLimit is a delivery limit that no message reaches.
const unreachableLimit = 1 << 24

func (q *deadLetters) queryLimit(ctx context.Context) error {
	r, err := q.readSettings(ctx)
	if err != nil || r == nil || r.Type != amqp091.QueueTypeQuorum {
		return err // a classic queue has no limit
	}
	if low, ok := r.lowest("delivery-limit"); ok {
		n, _ := low.number()
		q.limit = int(min(n, noLimit))
	} else if len(r.settings("delivery-limit")) == 0 && r.DeliveryLimit != nil && fmt.Sprint(r.DeliveryLimit) != "unlimited" {
		q.limit = rabbitMQ4Limit
	}
	return nil
}

// Info implements [driver.DLQ].
func (q *deadLetters) Info() deadletter.Info { return q.info }

// Count implements [driver.DLQ]. It does not count unacked messages.
func (q *deadLetters) Count(ctx context.Context) (n int64, exact bool, err error) {
	ch, err := q.readLink.channel(ctx)
	if err != nil {
		return 0, false, err
	}
	defer ch.Close()
	ready, _, err := stat(ch, q.info.DLQ)
	return int64(ready), false, err
}

// holderPrefix is the prefix of the state's keys for the holders of locks.
const holderPrefix = "holder/"

// LockHolder implements [driver.DLQ].
func (q *deadLetters) LockHolder(ctx context.Context, lock string) (h deadletter.Holder, ok bool, err error) {
	if ok, err = q.isFenced(ctx, q.fenceName(lock)); err != nil || !ok {
		return h, false, err
	}
	state, err := q.Load(ctx)
	if err != nil {
		return h, false, err
	}
	if json.Unmarshal(state[holderPrefix+lock], &h) != nil {
		h = deadletter.Holder{Who: "unknown, because the lock was just taken", Task: "unknown", Since: time.Now().UTC()}
	}
	return h, true, nil
}

// Connect implements [driver.DLQ].
func (q *deadLetters) Connect(ctx context.Context) (driver.Session, error) {
	s := &deadSession{q: q, link: &link{cfg: &q.client.cfg, name: "redeliver, dead letters", reads: true}}
	var err error
	if s.conn, err = s.link.get(ctx); err != nil {
		return nil, err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		s.link.close()
		return nil, errClosed
	}
	if q.sessions == nil {
		q.sessions = make(map[*deadSession]bool)
	}
	q.sessions[s] = true
	return s, nil
}

// Close implements [driver.DLQ]. It frees all locks.
func (q *deadLetters) Close() error {
	q.mu.Lock()
	sessions := q.sessions
	q.sessions, q.closed = nil, true
	q.mu.Unlock()
	for s := range sessions {
		s.link.close()
	}
	q.readLink.close()
	q.stateLink.close()
	return nil
}
