package kafka

import (
	"errors"
	"fmt"
	"time"

	"github.com/IBM/sarama"
	"github.com/cenkalti/backoff/v4"
)

// A window of a txn: records and offsets in one transaction.

// forwards is what a window is to commit of one partition.
type forwards struct {
	account *account
	numbers []uint64 // of the records that it forwards
	at      position
}

// window writes records and commits them with the offsets of their lanes and of accounts.
// It answers the tickets, and returns an error when nothing of it is committed.
func (t *txn) window(tickets []*ticket, accounts []*account) error {
	which := tickets[0].large
	p, err := t.producer(which)
	if err == nil {
		if err = p.async.BeginTxn(); err != nil {
			t.discard(which)
		}
	}
	if err != nil {
		t.answer(tickets, err)
		return err
	}
	failed, err := t.produce(p, tickets)
	if err != nil {
		if aerr := p.async.AbortTxn(); aerr != nil {
			t.discard(which) // its successor ends what is open
		}
		for _, k := range tickets {
			if kerr, ok := failed[k]; ok {
				k.end(kerr)
			} else {
				k.end(errNeighbour)
			}
		}
		return err
	}
	all := t.together(tickets, accounts)
	offsets := make(map[string][]*sarama.PartitionOffsetMetadata)
	for _, f := range all {
		f.at = f.account.would(f.numbers)
		offsets[f.account.topic] = append(offsets[f.account.topic], &sarama.PartitionOffsetMetadata{
			Partition: f.account.partition, Offset: f.at.offset, LeaderEpoch: -1, Metadata: &f.at.text,
		})
	}
	if err := t.end(which, p, all, offsets); err != nil {
		t.answer(tickets, fmt.Errorf("kafka: the transaction of a write to %s was not committed: %w", tickets[0].record.Topic, err))
		return err
	}
	for _, f := range all {
		f.account.committed(f.at, f.numbers)
		t.r.owned.mark(f.account.topic, f.account.partition, f.at.offset)
	}
	t.answer(tickets, nil)
	return nil
}

func (t *txn) answer(tickets []*ticket, err error) {
	for _, k := range tickets {
		k.end(err)
	}
}

// produce writes records and returns when each has an answer, with those that failed.
func (t *txn) produce(p *producer, tickets []*ticket) (failed map[*ticket]error, err error) {
	failed = make(map[*ticket]error)
	for _, k := range tickets {
		if werr := p.write(t.ctx, &k.confirm, k.record, k.partition); werr != nil {
			failed[k] = werr
			k.done <- werr
		}
	}
	for _, k := range tickets {
		if werr := <-k.done; werr != nil {
			failed[k] = fmt.Errorf("kafka: writing to %s: %w", k.record.Topic, werr)
			err = failed[k]
		}
	}
	return failed, err
}

// together is the partitions of a window.
func (t *txn) together(tickets []*ticket, accounts []*account) map[*account]*forwards {
	all := make(map[*account]*forwards)
	of := func(b *account) *forwards {
		if all[b] == nil {
			all[b] = &forwards{account: b}
		}
		return all[b]
	}
	for _, k := range tickets {
		f := of(k.entry.lane.acc)
		f.numbers = append(f.numbers, k.entry.number)
	}
	for _, b := range accounts {
		of(b)
	}
	return all
}

// end commits a transaction, and returns nil when it is committed, however that was told.
func (t *txn) end(which int, p *producer, all map[*account]*forwards, offsets map[string][]*sarama.PartitionOffsetMetadata) error {
	var sess sarama.ConsumerGroupSession
	for b := range all {
		sess = b.sess
	}
	var instance *string
	if id := t.r.client.cfg.instanceID(t.r.layout.origin); id != "" {
		instance = &id
	}
	group := sarama.NewConsumerGroupMetadataFromSession(sess, t.r.layout.group, instance)
	err := p.async.AddOffsetsToTxnWithGroupMetadata(offsets, group)
	if err == nil {
		err = p.async.CommitTxn()
	}
	if err == nil {
		return nil
	}
	if p.async.TxnStatus()&sarama.ProducerTxnFlagAbortableError != 0 {
		// The coordinator has refused something before it was asked to commit.
		if aerr := p.async.AbortTxn(); aerr == nil {
			return err
		}
	}
	t.discard(which)
	if t.stands(which, all) {
		return nil
	}
	return err
}

// stands tells whether a window was committed whose answer is missing. Once a new
// producer of the same name has begun, the last one's transaction has ended, so what is
// found beside an offset is final: the window's text, or not. What a record was forwarded
// from says one more is settled than ever before, so its text is new. It is asked until
// somebody answers, or the lanes have ended so long ago that what they would commit is refused.
// Where a partition has got another owner, it is no more this one's business:
// its records are lost to this process.
func (t *txn) stands(which int, all map[*account]*forwards) bool {
	pause := backoff.NewExponentialBackOff(backoff.WithInitialInterval(50*time.Millisecond),
		backoff.WithMaxInterval(2*time.Second), backoff.WithMaxElapsedTime(0))
	began, told := time.Now(), false
	for t.ctx.Err() == nil && t.concerns(all) {
		stands, err := t.lookUp(which, all)
		if err == nil {
			return stands
		}
		if !told && time.Since(began) > txnTimeout {
			told = true
			t.r.tell("commits stand still", fmt.Sprintf("whether the last transaction of group %s was committed cannot be asked; until that is known nothing is committed, and little is read. "+
				"Look whether the group's coordinator answers, and takes transactions", t.r.layout.group), err)
		}
		timer := time.NewTimer(pause.NextBackOff())
		select {
		case <-timer.C:
		case <-t.ctx.Done():
			timer.Stop()
		}
	}
	return false
}

// concerns tells whether somebody may still act upon how a window ended.
func (t *txn) concerns(all map[*account]*forwards) bool {
	for b := range all {
		if left := b.left.Load(); left == 0 || time.Since(time.Unix(0, left)) < t.r.fencedAfter() {
			return true
		}
	}
	return false
}

func (t *txn) lookUp(which int, all map[*account]*forwards) (bool, error) {
	if _, err := t.producer(which); err != nil {
		return false, err
	}
	partitions := make(map[string][]int32)
	for b := range all {
		partitions[b.topic] = append(partitions[b.topic], b.partition)
	}
	found, err := t.r.client.admin.stable(t.r.layout.group, partitions)
	if err != nil {
		return false, err
	}
	for b, f := range all {
		if len(f.numbers) == 0 {
			continue // it may stand there from before
		}
		offset, err := found.of(b.topic, b.partition)
		if err != nil {
			return false, err
		}
		if offset == f.at.offset && found.found.GetBlock(b.topic, b.partition).Metadata == f.at.text {
			return true, nil
		}
	}
	return false, nil
}

// stable is committed without what an open transaction may still change: it fails for as
// long as there is something.
func (a admin) stable(group string, partitions map[string][]int32) (commits, error) {
	coordinator, err := a.client.Coordinator(group)
	if err != nil {
		return commits{}, fmt.Errorf("kafka: reading the offsets of group %s: %w", group, err)
	}
	req := sarama.NewOffsetFetchRequest(a.client.Config().Version, group, partitions)
	if req.Version >= 7 {
		req.RequireStable = true
	}
	res, err := coordinator.FetchOffset(req)
	if err == nil {
		if gerr := res.GroupError(); !errors.Is(gerr, sarama.ErrNoError) {
			err = gerr
		}
	} else {
		_ = coordinator.Close()
	}
	if err != nil {
		_ = a.client.RefreshCoordinator(group)
		return commits{}, fmt.Errorf("kafka: reading the offsets of group %s: %w", group, err)
	}
	return commits{group, res}, nil
}

// largeID ends the transactional id of the producer for what is too large for a batch.
const largeID = ".large"

// producer is one of the two, made when it is needed.
func (t *txn) producer(which int) (*producer, error) {
	if p := t.producers[which]; p != nil {
		return p, nil
	}
	cfg := t.r.client.cfg
	id := txnID(cfg.Group, t.r.layout.origin, t.r.owner)
	if which > 0 {
		id += largeID
	}
	config := cfg.txnConfig(id, which > 0)
	backoff := config.Producer.Transaction.Retry.BackoffFunc
	config.Producer.Transaction.Retry.BackoffFunc = func(retries, most int) time.Duration {
		if t.ctx.Err() != nil {
			return 0
		}
		return backoff(retries, most)
	}
	p, err := startProducer(cfg.Brokers, config)
	if err != nil {
		if errors.Is(err, sarama.ErrTransactionalIDAuthorizationFailed) {
			err = fmt.Errorf("%w; grant Write and Describe on the transactional ids that begin with %s", err, txnPrefix(cfg.Group))
		}
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.producers[which] = p
	return p, nil
}

// discard gives up a producer of which nobody knows how it stands.
func (t *txn) discard(which int) {
	if p := t.producers[which]; p != nil {
		p.close() // close may help it
		t.mu.Lock()
		t.producers[which] = nil
		t.mu.Unlock()
	}
}
