package kafka

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/IBM/sarama"
)

// followTries is how often it is tried to end a dead owner's transaction, which takes two
// at least: the broker says that it has begun to.
const followTries = 100

// follow ends the transaction that the last owner of a partition may have left open, if
// that has died: nobody sees what was written behind it before. One that lives has its
// window aborted by this, and tries again. It does so once for each, and does not wait.
func (t *txn) follow(found note) {
	if t == nil || !found.transacts || found.state == stateLeft || found.owner == t.r.owner || found.owner == "" {
		return
	}
	t.mu.Lock()
	was := t.followed[found.owner]
	t.followed[found.owner] = true
	t.mu.Unlock()
	if !was {
		id := txnID(t.r.layout.group, t.r.layout.origin, found.owner)
		go t.endOf(found.owner, id)
		go t.endOf(found.owner, id+largeID)
	}
}

// endOf begins a producer under the name of another one, which ends the other's
// transaction and shuts it out.
func (t *txn) endOf(owner, id string) {
	a := t.r.client.admin
	req := &sarama.InitProducerIDRequest{Version: 3, TransactionalID: &id, TransactionTimeout: txnTimeout, ProducerID: -1, ProducerEpoch: -1}
	for range followTries {
		coordinator, err := a.client.TransactionCoordinator(id)
		var res *sarama.InitProducerIDResponse
		if err == nil {
			if res, err = coordinator.InitProducerID(req); err != nil {
				_ = coordinator.Close()
			}
		}
		switch {
		case err != nil || errors.Is(res.Err, sarama.ErrNotCoordinatorForConsumer) || errors.Is(res.Err, sarama.ErrConsumerCoordinatorNotAvailable):
			_ = a.client.RefreshTransactionCoordinator(id)
		case errors.Is(res.Err, sarama.ErrConcurrentTransactions) || errors.Is(res.Err, sarama.ErrOffsetsLoadInProgress):
		case errors.Is(res.Err, sarama.ErrNoError):
			return
		default:
			t.r.tell("transactions of a dead member stay open", fmt.Sprintf("what is written behind them is late by up to %s and the broker's next look", txnTimeout), res.Err)
			return
		}
		timer := time.NewTimer(txnLongPause / 2)
		select {
		case <-timer.C:
		case <-t.ctx.Done():
			timer.Stop()
			return
		}
	}
	t.mu.Lock()
	delete(t.followed, owner) // who finds its note the next time tries again
	t.mu.Unlock()
}

// unstable ends what dead owners have left open where that keeps this member from its
// offsets: they were about to commit. Their notes before that can be read.
func (t *txn) unstable(ctx context.Context, err error) {
	if t == nil || !errors.Is(err, sarama.ErrUnstableOffsetCommit) || ctx.Err() != nil {
		return
	}
	found, ferr := t.r.client.admin.committed(t.r.layout.group, nil)
	if ferr != nil {
		return // the next time
	}
	for topic, partitions := range found.found.Blocks {
		if _, waits := t.r.levels[topic]; !waits && topic != t.r.layout.origin {
			continue
		}
		for p := range partitions {
			if f, err := found.note(topic, p); err == nil {
				t.follow(f.note)
			}
		}
	}
}
