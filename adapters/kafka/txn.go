package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/delayqueue"
)

// Without transactions a process that dies between the write to a level and the commit
// of the offset leaves a copy. With Config.Transactions a reader has one txn, which
// writes all that its lanes forward, and commits all their offsets, one window after
// another: what was handed over while the last window was being committed, and within
// [txnLinger] after that.
//
// Each transaction has the offsets of all lanes whose records it forwards, with the
// member's id and generation (KIP-447): a member that was thrown out commits none of
// it. Offsets go up to the lowest unsettled record, so what is settled above it stands
// beside the offset, see [account] and [note]; the next owner skips that. Nothing else
// commits for the partition: sarama's own commits are off, notes and the marks of what
// succeeded go through here too, one commit after another, so that none undoes another.
//
// A window that was not committed has forwarded nothing. Its writers are told, and try
// again as they would without transactions. Whether it was, when the answer to the
// commit is missing, is asked: a new producer with the same id ends what is open, and
// then the text beside the offset is the window's or it is not.
//
// A transaction that a dead process has left open hides, on the partitions that it has
// written to, all that was written later. The broker ends it after [txnTimeout] and its
// next look (10 s by default); who finds the dead one's name in a note ends it at once,
// see follow.
type txn struct {
	r      *reader
	ctx    context.Context
	cancel context.CancelFunc
	done   chan struct{}
	bell   chan struct{} // has one when there is work
	busy   chan struct{} // has one while a commit is under way

	mu       sync.Mutex
	queue    []*ticket
	notes    []*inscription
	accounts map[*account]struct{}
	followed map[string]bool // owners whose transactions were ended, see follow
	closed   bool

	// Of the goroutine that runs it, which changes producers with mu held.
	producers [2]*producer // for all, and for what is too large for its batches
	apart     time.Time    // until then windows have only the offsets of what they forward
}

const (
	// txnTimeout is the transaction.timeout.ms of our producers.
	txnTimeout = 10 * time.Second
	// txnLinger is how long a window waits for more than its first record.
	txnLinger = 5 * time.Millisecond
	// txnApart is how long the offsets of other partitions are committed apart from
	// windows, after one that failed: what made it fail must not hold them up.
	txnApart = 30 * time.Second
	// leaveWait is how long a lane that ends waits for its last commit.
	leaveWait = 3 * time.Second
	// Requests of transactions are repeated for about six seconds where a broker answers, for
	// about a minute where none does. A broker that still ends the last one has the next wait
	// for some milliseconds.
	txnTries     = 64
	txnLongPause = 100 * time.Millisecond
)

// errNeighbour is why a record was not written although nothing is wrong with it.
var errNeighbour = errors.New("kafka: a write in the same transaction failed")

// ticket is a record that a window is to forward.
type ticket struct {
	confirm

	entry *entry
	large int           // the producer
	alone bool          // in its window
	err   error         // when it has ended
	ended chan struct{} // closed when it is forwarded, or was not
}

func newTxn(r *reader) (*txn, error) {
	t := &txn{r: r, done: make(chan struct{}), bell: make(chan struct{}, 1), busy: make(chan struct{}, 1), accounts: make(map[*account]struct{}), followed: make(map[string]bool)}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	if _, err := t.producer(0); err != nil {
		return nil, err
	}
	go t.run()
	return t, nil
}

// close ends it: what is not committed was not forwarded. What waits for a broker that
// does not answer ends by itself. A nil one has nothing to end.
func (t *txn) close() {
	if t == nil {
		return
	}
	t.cancel()
	patience := time.NewTimer(leaveWait)
	defer patience.Stop()
	select {
	case <-t.done:
		return
	case <-patience.C:
	}
	// Where no broker answers, sarama tries each request for about a minute, and a write
	// four times as long; without its client it gives up at once.
	t.mu.Lock()
	producers := t.producers
	t.mu.Unlock() // a client may take its time to close, and lanes take the lock
	for _, p := range producers {
		if p != nil {
			_ = p.client.Close()
		}
	}
}

// join makes the account of a lane.
func (t *txn) join(l *lane) {
	if t == nil {
		return
	}
	sess := l.sess
	if m, ok := sess.(marker); ok {
		sess = m.ConsumerGroupSession // lanes of one session have one
	}
	l.acc = &account{sess: sess, lane: l.ctx, topic: l.topic, partition: l.partition}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.accounts[l.acc] = struct{}{}
}

// leave is the end of a lane.
func (t *txn) leave(b *account) {
	if t == nil {
		return
	}
	b.left.Store(time.Now().UnixNano())
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.accounts, b)
}

// between returns when no commit of a session whose lanes have ended is under way, or ctx ends.
func (t *txn) between(ctx context.Context) {
	if t == nil {
		return
	}
	select {
	case t.busy <- struct{}{}:
		<-t.busy // what begins now has nothing of lanes that have ended, see take
	case <-t.done:
	case <-ctx.Done():
	}
}

// inscribe has what a lane's account says committed, and tells when that stands.
func (t *txn) inscribe(i *inscription) {
	i.version = i.acc.now()
	t.mu.Lock()
	closed := t.closed
	if !closed {
		t.notes = append(t.notes, i)
	}
	t.mu.Unlock()
	if closed {
		close(i.ended)
	}
	t.ring()
}

// flush returns when what an account says is committed, or will not be soon.
func (t *txn) flush(b *account) {
	i := &inscription{sess: b.sess, topic: b.topic, partition: b.partition, acc: b, told: func(error) {}, ended: make(chan struct{})}
	t.inscribe(i)
	patience := time.NewTimer(leaveWait)
	defer patience.Stop()
	select {
	case <-i.ended:
	case <-patience.C:
		i.stale.Store(true)
	}
}

func (t *txn) ring() {
	select {
	case t.bell <- struct{}{}:
	default:
	}
}

// send has a record forwarded, and returns when that is committed. When ctx ends before,
// the next send waits for the same.
func (t *txn) send(ctx context.Context, rec *record, topic string, st *redeliver.State, more []deadletter.Header, partition int32) (string, error) {
	e, large, alone := rec.entry, 0, false
	for {
		k := e.ticket
		if k == nil {
			k = &ticket{entry: e, alone: alone, ended: make(chan struct{})}
			k.confirm.done = make(chan error, 1)
			rec.produce(&k.room, topic, st)
			appendHeaders(&k.room, more)
			k.record, k.partition = &k.room, partition
			if k.large = large; k.room.ByteSize(2) > t.r.client.cfg.Sarama.Producer.MaxMessageBytes {
				k.large = 1
			}
			t.put(k)
		}
		select {
		case <-k.ended:
		case <-ctx.Done():
			e.ticket = k
			return k.record.Topic, fmt.Errorf("kafka: %w to a write to %s, it may or may not be there: %w", errUnsure, k.record.Topic, ctx.Err())
		}
		e.ticket = nil
		switch {
		case k.err == nil:
			return k.record.Topic, nil
		case e.lane.ctx.Err() != nil:
			return topic, k.err
		case errors.Is(k.err, sarama.ErrMessageSizeTooLarge) && k.large == 0:
			large = 1 // by itself, and compressed
		case errors.Is(refused(k.err), delayqueue.ErrRefused) && !k.alone:
			alone = true // what is refused in a window is the answer to all that comes after it
		case errors.Is(k.err, errNeighbour) && ctx.Err() == nil:
		default:
			return topic, refused(k.err)
		}
	}
}

// put queues a record.
func (t *txn) put(k *ticket) {
	t.mu.Lock()
	closed := t.closed
	if !closed {
		t.queue = append(t.queue, k)
	}
	t.mu.Unlock()
	if closed {
		k.end(errClosed)
	}
	t.ring()
}

func (k *ticket) end(err error) {
	k.err = err
	close(k.ended)
}

// run makes one commit after another.
func (t *txn) run() {
	defer close(t.done)
	defer t.shut()
	tick := time.NewTicker(t.r.commits)
	defer tick.Stop()
	linger := time.NewTimer(time.Hour)
	defer linger.Stop()
	for {
		select {
		case <-t.bell:
		case <-tick.C:
		case <-t.ctx.Done():
			return
		}
		if t.waiting() {
			linger.Reset(txnLinger)
			select {
			case <-linger.C:
			case <-t.ctx.Done():
				return
			}
		}
		t.busy <- struct{}{}
		t.commit()
		<-t.busy
	}
}

func (t *txn) waiting() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.queue) > 0
}

// shut ends what still waits.
func (t *txn) shut() {
	t.mu.Lock()
	t.closed = true
	queue, notes := t.queue, t.notes
	t.queue, t.notes = nil, nil
	t.mu.Unlock()
	for _, k := range queue {
		k.end(errClosed)
	}
	for _, i := range notes {
		close(i.ended)
	}
	for _, p := range t.producers {
		if p != nil {
			p.close()
		}
	}
}

// take is what is to be committed next: records of one session for one producer, and the
// accounts of that session that have moved. What is left comes next.
func (t *txn) take() (tickets []*ticket, notes []*inscription, accounts []*account) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var sess sarama.ConsumerGroupSession
	var later []*ticket
	for _, k := range t.queue {
		switch {
		case k.entry.lane.ctx.Err() != nil:
			k.end(delayqueue.ErrAbandoned)
		case tickets == nil || !k.alone && !tickets[0].alone && k.entry.lane.acc.sess == tickets[0].entry.lane.acc.sess && k.large == tickets[0].large:
			tickets = append(tickets, k)
		default:
			later = append(later, k)
		}
	}
	t.queue = later
	if len(later) > 0 {
		t.ring()
	}
	if tickets != nil {
		sess = tickets[0].entry.lane.acc.sess
	}
	of := func(s sarama.ConsumerGroupSession) bool {
		if sess == nil {
			sess = s
		}
		return s == sess
	}
	t.notes = slices.DeleteFunc(t.notes, func(i *inscription) bool {
		switch {
		case i.stale.Load() || i.acc.over():
			close(i.ended)
			return true
		case !of(i.acc.sess):
			return false
		}
		notes = append(notes, i)
		if !slices.Contains(accounts, i.acc) {
			accounts = append(accounts, i.acc)
		}
		return true
	})
	if len(t.notes) > 0 {
		t.ring()
	}
	for b := range t.accounts {
		if b.moved() && !b.over() && of(b.sess) && !slices.Contains(accounts, b) {
			accounts = append(accounts, b)
		}
	}
	return tickets, notes, accounts
}

// commit makes one commit of all there is: a transaction where something is forwarded.
// What a window could not commit is committed without it.
func (t *txn) commit() {
	tickets, notes, accounts := t.take()
	if len(tickets) > 0 {
		with := accounts
		if time.Now().Before(t.apart) {
			with = nil
		}
		switch err := t.window(tickets, with); {
		case err != nil:
			t.apart = time.Now().Add(txnApart)
		case with != nil:
			accounts = nil // they stand
		}
		accounts = slices.DeleteFunc(accounts, func(b *account) bool { return !b.moved() })
	}
	if len(accounts) > 0 {
		t.mark(accounts)
	}
	for _, i := range notes {
		switch {
		case i.acc.has(i.version):
			i.told(nil)
			close(i.ended)
		case i.acc.gone.Load():
			close(i.ended)
		default:
			t.mu.Lock()
			t.notes = append(t.notes, i) // again, at the next tick
			t.mu.Unlock()
		}
	}
}

// mark commits offsets alone, those that may be.
func (t *txn) mark(accounts []*account) {
	all := make([]*inscription, len(accounts))
	for i, b := range accounts {
		p := b.would(nil)
		all[i] = &inscription{sess: b.sess, topic: b.topic, partition: b.partition, offset: p.offset, text: p.text, last: true, ended: make(chan struct{})}
		all[i].told = func(err error) {
			switch {
			case err == nil:
				b.committed(p, nil)
				t.r.owned.mark(b.topic, b.partition, p.offset)
			case thrownOut(err):
				b.gone.Store(true)
			}
		}
	}
	t.r.client.admin.inscribe(t.r.layout.group, all) // what is left moves still
}
