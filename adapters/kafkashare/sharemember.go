package kafkashare

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/driver"
	"github.com/redeliver/redeliver/internal/engine"
	"github.com/redeliver/redeliver/internal/kafkaname"
)

// copyAtDelivery is the delivery at which a record is copied to the retry topic, before any handler runs. The broker
// counts deliveries and drops a record at its limit; on the retry topic nothing counts them. The remaining deliveries
// up to the limit are for writing that copy.
const copyAtDelivery = 3

// shareMember is one member of the share group. It implements driver.Source.
//
// A poll of the client accepts everything that the last poll returned. So the member polls only when all records of the
// last poll are settled, and ends at the first ack that the broker refuses: the client may have lost its records, or
// may have stopped reading a partition.
type shareMember struct {
	r       *reader
	cl      *kgo.Client
	lane    driver.Lane[*kgo.Record]
	topicID [16]byte // of the origin

	records  chan *kgo.Record
	changed  chan struct{}      // holds a value when read must check again
	stop     context.CancelFunc // ends reading
	endPolls context.CancelFunc
	stopped  chan struct{} // closed when reading has ended
	flushed  chan struct{} // closed by Flush

	mu          sync.Mutex
	hasRoom     bool                          // the lane accepts messages
	unsettled   map[*kgo.Record]struct{}      // the records in hand
	delayedAcks map[*kgo.Record]kgo.AckStatus // acks during a renewal of locks; nil at other times
	broken      error
}

var _ driver.Source[*kgo.Record] = (*shareMember)(nil)

// idleTimeout is the client's maximum. The broker takes all records back when an idle connection closes.
const idleTimeout = 15 * time.Minute

// joinShareGroup makes a member of the share group.
func (r *reader) joinShareGroup(ctx context.Context) (*shareMember, error) {
	found, _, err := r.client.admin.topics(ctx, r.layout.origin)
	if err != nil {
		return nil, err
	}
	m := &shareMember{
		r: r, records: make(chan *kgo.Record), changed: make(chan struct{}, 1), stopped: make(chan struct{}), flushed: make(chan struct{}),
		unsettled: make(map[*kgo.Record]struct{}), topicID: found[r.layout.origin].TopicID,
	}
	cfg := &r.client.cfg
	m.cl, err = r.client.newClient(
		kgo.ShareGroup(cfg.Group), kgo.ConsumeTopics(r.layout.origin),
		kgo.ShareMaxRecords(int32(cfg.pollSize())), kgo.ShareMaxRecordsStrict(), // strict: a record fetched ahead would count as delivered
		kgo.ConnIdleTimeout(idleTimeout),
		kgo.ShareAckCallback(func(_ *kgo.Client, rs kgo.ShareAckResults) {
			if err := rs.Error(); err != nil {
				m.fail(fmt.Errorf("the broker refused an ack of a message of %s: %w", r.layout.origin, err))
			}
		}))
	return m, err
}

// start begins to read for a lane.
func (m *shareMember) start(l driver.Lane[*kgo.Record]) {
	m.lane = l
	ctx, stop := context.WithCancel(context.Background())
	polls, endPolls := context.WithCancel(ctx)
	m.stop, m.endPolls = stop, endPolls
	go m.read(ctx, polls)
	go m.renew()
}

// read polls whenever no record is in hand and the lane has room, until ctx ends or the member is broken. The end of
// polls ends a poll.
func (m *shareMember) read(ctx, polls context.Context) {
	defer close(m.stopped)
	defer close(m.records)
	for {
		m.mu.Lock()
		ready, broken := m.hasRoom && len(m.unsettled) == 0, len(m.unsettled) == 0 && m.broken != nil
		m.mu.Unlock()
		switch {
		case broken || ctx.Err() != nil:
			return
		case ready:
			// A poll during a pause would hold messages and use up a delivery.
			if m.awaitGate(ctx, &m.r.sub.Gate) && m.awaitGate(ctx, &m.r.sub.NewGate) {
				m.poll(polls)
			}
		default:
			select {
			case <-m.changed:
			case <-ctx.Done():
			}
		}
	}
}

// awaitGate waits until a gate is open. It returns false if read must look again first.
func (m *shareMember) awaitGate(ctx context.Context, g *engine.Gate) bool {
	select {
	case <-g.Opened():
		return true
	case <-m.changed:
	case <-ctx.Done():
	}
	return false
}

// poll hands the records of one poll to the lane.
func (m *shareMember) poll(ctx context.Context) {
	pollCtx, cancel, retries := m.r.pollContext(ctx, shareFetchRequest)
	fetched := m.cl.PollFetches(pollCtx)
	cancel()
	records := slices.DeleteFunc(fetched.Records(), func(rec *kgo.Record) bool {
		late := m.r.client.group.isLate(rec.DeliveryCount(), time.Until(rec.AcquisitionDeadline()))
		if late {
			rec.Ack(kgo.AckRelease)
		}
		return late
	})
	m.mu.Lock()
	for _, rec := range records {
		m.unsettled[rec] = struct{}{}
	}
	m.mu.Unlock()
	for _, rec := range records {
		select {
		case m.records <- rec:
		case <-m.flushed:
			return
		}
	}
	hint := fmt.Sprintf(": the client gives back records that it cannot read; the broker drops them after %d deliveries", m.r.client.group.deliveryLimit)
	if retries && ctx.Err() == nil && (fetched.NumRecords() > 0 || errors.Is(fetched.Err0(), context.DeadlineExceeded)) {
		_ = m.r.done(kafkaname.ToTopic(shareFetchRequest, "Read", m.r.layout.origin), nil)
		return
	}
	if err := m.r.reportFetchErrors(ctx, fetched, shareFetchRequest, hint); err != nil {
		m.fail(err)
	}
}

// isLate reports whether a polled record must go back to the broker: its lock may end before the next renewal, and
// another member would get it, too. That happens if the client has fetched the record long before the poll. A record at
// its last delivery is kept and copied, because the broker would drop it.
func (g groupSettings) isLate(delivery int32, lock time.Duration) bool {
	return lock < g.renewInterval() && int(delivery) < g.deliveryLimit
}

// renewInterval is the time between two renewals of locks.
func (g groupSettings) renewInterval() time.Duration { return min(g.lockDuration, idleTimeout) / 3 }

// fail makes the member end when its records are settled. It also ends a poll, which may wait as long as nothing is
// published.
func (m *shareMember) fail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.broken == nil {
		m.broken = err
	}
	m.endPolls()
	m.wakeReader()
}

// wakeReader makes read check again.
func (m *shareMember) wakeReader() {
	select {
	case m.changed <- struct{}{}:
	default:
	}
}

// renew renews the locks of all records in hand, after each third of their duration. Acks wait meanwhile: during a
// renewal the client would send an ack twice, and the broker refuses the second.
func (m *shareMember) renew() {
	third := m.r.client.group.renewInterval()
	tick := time.NewTicker(third)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-m.flushed:
			return
		}
		m.mu.Lock()
		none := len(m.unsettled) == 0
		if !none {
			m.delayedAcks = make(map[*kgo.Record]kgo.AckStatus)
		}
		for rec := range m.unsettled {
			rec.Ack(kgo.AckRenew)
		}
		m.mu.Unlock()
		ctx, cancel := context.WithTimeout(context.Background(), third)
		if none {
			m.checkTopicID(ctx)
		} else if err := m.cl.FlushAcks(ctx); err != nil {
			m.fail(fmt.Errorf("the broker did not renew the locks of messages of %s in %s: %w", m.r.layout.origin, third, err))
		}
		cancel()
		m.ackDelayed()
	}
}

// checkTopicID makes the member end if its origin was deleted and created again. The client would ask for the earlier
// topic forever and report no error: the broker answers UNKNOWN_SERVER_ERROR to the whole request.
func (m *shareMember) checkTopicID(ctx context.Context) {
	origin := m.r.layout.origin
	found, _, err := m.r.client.admin.topics(ctx, origin)
	if t, exists := found[origin]; err == nil && exists && t.TopicID != m.topicID {
		m.fail(fmt.Errorf("the topic %s was deleted and created again", origin))
	}
}

// ackDelayed ends a renewal, and acks the records that were settled meanwhile.
func (m *shareMember) ackDelayed() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for rec, status := range m.delayedAcks {
		m.ackLocked(rec, status)
	}
	m.delayedAcks = nil
}

// ack acks a record for good.
func (m *shareMember) ack(rec *kgo.Record, status kgo.AckStatus) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.delayedAcks != nil {
		m.delayedAcks[rec] = status
		return
	}
	m.ackLocked(rec, status)
}

func (m *shareMember) ackLocked(rec *kgo.Record, status kgo.AckStatus) {
	rec.Ack(status)
	delete(m.unsettled, rec)
	if m.isLastDelivery(rec) {
		m.r.countLastDeliveries(-1, "")
	}
	if len(m.unsettled) == 0 {
		m.wakeReader()
	}
}

// Messages implements [driver.Source].
func (m *shareMember) Messages() <-chan *kgo.Record { return m.records }

// Lost implements [driver.Source]. It returns nil: the broker refuses late acks.
func (m *shareMember) Lost() <-chan struct{} { return nil }

// Accept implements [driver.Source].
func (m *shareMember) Accept(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.hasRoom = n > 0
	m.wakeReader()
}

// Stop implements [driver.Source].
func (m *shareMember) Stop() <-chan struct{} {
	m.stop()
	return m.stopped
}

// Parse implements [driver.Source].
func (m *shareMember) Parse(msg *driver.Message[*kgo.Record]) error {
	rec, l := msg.Record, m.r.layout
	unread := cutHeaders(rec, false)
	msg.Place, msg.Size = rec.Topic, sizeOf(rec)
	dead, found := l.readDeadLetter(rec)
	if dead != nil {
		st := new(redeliver.State)
		m.r.codec().State(msg, st)
		st.DeadLetter = dead
		if dead.ID != "" {
			st.ID = dead.ID
		}
		msg.State = st
	}
	if found = append(found, foreignHeaders(rec)...); found != nil {
		id := recordID(rec)
		if msg.State != nil {
			id = msg.State.ID
		}
		m.r.sub.Emit(redeliver.HeadersIgnored{Topic: rec.Topic, ID: id, Findings: found})
	}
	if rec.DeliveryCount() >= copyAtDelivery {
		msg.Step = driver.StepHop // topicFor then returns the retry topic
	}
	if unread != nil {
		m.r.codec().makeStub(msg, unread)
	}
	if m.isLastDelivery(rec) {
		m.r.countLastDeliveries(1, fmt.Sprintf("%s/%d at offset %d", rec.Topic, rec.Partition, rec.Offset))
	}
	return nil
}

// isLastDelivery reports whether the broker will not deliver a record again.
func (m *shareMember) isLastDelivery(rec *kgo.Record) bool {
	return int(rec.DeliveryCount()) >= m.r.client.group.deliveryLimit
}

// Settle implements [driver.Source].
func (m *shareMember) Settle(msg *driver.Message[*kgo.Record]) { m.ack(msg.Record, kgo.AckAccept) }

// Return implements [driver.Source]. The broker delivers the record again at once, and counts that.
func (m *shareMember) Return(msg *driver.Message[*kgo.Record], _ time.Duration, _ bool) {
	if rec := msg.Record; m.isLastDelivery(rec) {
		m.r.sub.Emit(redeliver.MessagesLost{
			Origin: m.r.layout.origin, Group: m.r.layout.group, Where: fmt.Sprintf("%s/%d", rec.Topic, rec.Partition), Count: 1,
			Detail: fmt.Sprintf("the message at offset %d was delivered %d times and given back each time, and the broker drops it; copy it from the topic", rec.Offset, rec.DeliveryCount()),
		})
	}
	m.ack(msg.Record, kgo.AckRelease)
}

// Commit implements [driver.Source]: the client sends acks with the next fetch, or after a second.
func (m *shareMember) Commit() {}

// Flush implements [driver.Source].
func (m *shareMember) Flush(ctx context.Context) {
	close(m.flushed)
	m.ackDelayed()          // even during a renewal; the broker may refuse these acks
	_ = m.cl.FlushAcks(ctx) // without its ack the broker delivers a record again
}

// close leaves the group.
func (m *shareMember) close() error {
	m.stop()
	ctx, cancel := context.WithTimeout(context.Background(), leaveTimeout)
	defer cancel()
	_ = m.cl.LeaveGroupContext(ctx) // the broker removes a member that does not leave
	m.cl.Close()
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.broken
}

// leaveTimeout bounds how long a member takes to leave its group.
const leaveTimeout = 10 * time.Second
