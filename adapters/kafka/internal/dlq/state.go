package dlq

import (
	"context"
	"fmt"

	"github.com/IBM/sarama"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka/internal/topiclog"
	"github.com/redeliver/redeliver/internal/check"
	"github.com/redeliver/redeliver/internal/kafkaname"
)

// refresh reads the state topic to its end, and reports records that redeliver cannot have written.
func (q *Queue) refresh(ctx context.Context) error {
	unreadable, err := q.readState(ctx)
	if unreadable > 0 {
		q.Sink.Event(redeliver.SubscriptionChanged{
			Origin: q.Where.Origin, Group: q.Where.Group, Change: redeliver.ChangeDLQStateUnknown,
			Detail: fmt.Sprintf("%d records of %s are skipped; check which other programs write to it", unreadable, q.state.Topic),
		})
	}
	return err
}

// readState reads the state topic to its end. It returns how many records it could not read.
func (q *Queue) readState(ctx context.Context) (unreadable int, err error) {
	if err := q.asking.Lock(ctx); err != nil {
		return 0, err
	}
	defer q.asking.Unlock()
	if !q.knowsState() {
		existing, err := q.findTopics(ctx)
		if err != nil {
			return 0, err
		}
		q.setTopics(existing)
		if !q.knowsState() {
			return 0, nil
		}
	}
	start, end, err := q.state.Bounds(ctx, 0)
	if err != nil {
		return 0, err
	}
	q.mu.Lock()
	if end < q.ledger.next { // the topic was deleted and created again
		q.ledger = newLedger()
	}
	ledger := q.ledger // only the owner of asking replaces it
	before, next := ledger.unreadable, max(ledger.next, start)
	q.mu.Unlock()
	next, err = q.state.ReadToEnd(ctx, 0, next, end, func(r *topiclog.Record) {
		q.mu.Lock()
		defer q.mu.Unlock()
		ledger.apply(r.Key, r.Value)
	})
	q.mu.Lock()
	defer q.mu.Unlock()
	ledger.next = next
	return ledger.unreadable - before, err
}

// provisionState creates the state topic, or checks the existing one. existing is the result of findTopics.
func (q *Queue) provisionState(ctx context.Context, existing map[string]*sarama.TopicMetadata) error {
	if err := q.asking.Lock(ctx); err != nil {
		return err
	}
	defer q.asking.Unlock()
	q.setTopics(existing)
	if state := existing[q.state.Topic]; state != nil {
		return q.checkState(len(state.Partitions))
	}
	if err := q.CreateState(q.state.Topic, existing[q.Where.DLQ]); err != nil {
		return err
	}
	q.mu.Lock()
	q.hasState = true
	q.mu.Unlock()
	return q.checkState(1) // the broker may have refused a setting, or ignored one
}

func (q *Queue) checkState(partitions int) error {
	settings, err := q.Admin.Settings(q.state.Topic)
	if err != nil {
		return err
	}
	var ps check.Problems
	kafkaname.CheckPartition(&ps, q.state.Topic, partitions)
	kafkaname.CheckCompacted(&ps, q.state.Topic, false, settings[q.state.Topic])
	if err := ps.Err(); err != nil {
		return fmt.Errorf("kafka: %w", err)
	}
	return nil
}
