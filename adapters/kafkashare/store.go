package kafkashare

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/driver"
)

var (
	_ driver.Store[*kgo.Record] = (*layout)(nil)
	_ driver.Truncating         = (*layout)(nil)
)

// Truncates implements [driver.Truncating].
func (*layout) Truncates() bool { return true }

// Write implements [driver.Store]: to where messages wait, to the DLQ, and, for a delayed publish, to the origin.
func (l *layout) Write(ctx context.Context, to driver.Place, m *driver.Message[*kgo.Record], st *redeliver.State, done driver.Done) {
	switch to {
	case driver.Level:
		l.writeCopy(ctx, m.Record, l.topicFor(st.Due, time.Now()), st, done)
	case driver.DLQ:
		l.writeCopy(ctx, m.Record, l.dlq, st, done)
	case driver.Topic:
		produce(ctx, l.publisher, copyFor(m.Record, l.origin, nil), done)
	default:
		done.Confirmed("", fmt.Errorf("kafkashare: there is no place %d", to))
	}
}

// writeCopy writes a copy of a record to one of our topics. Its partition follows from the one in the origin.
func (l *layout) writeCopy(ctx context.Context, rec *kgo.Record, topic string, st *redeliver.State, done driver.Done) {
	c := copyFor(rec, topic, st)
	n := l.partitions[topic]
	if c.Partition = rand.Int32N(n); st.Source.Known {
		c.Partition = st.Source.Partition % n
	}
	produce(ctx, l.writer, c, done)
}

// produce writes a record. The try ends with ctx: see newClient.
func produce(ctx context.Context, cl *kgo.Client, rec *kgo.Record, done driver.Done) {
	cl.Produce(ctx, rec, func(_ *kgo.Record, err error) {
		if err == nil {
			done.Confirmed(rec.Topic, nil)
			return
		}
		// In a goroutine: it may write again, and the client's buffer may be full until this function returns.
		go done.Confirmed(rec.Topic, classify(fmt.Errorf("kafkashare: writing to %s: %w", rec.Topic, err)))
	})
}

// classify marks write errors that concern, or may concern, one record only.
func classify(err error) error {
	if errors.Is(err, kerr.MessageTooLarge) || errors.Is(err, kerr.RecordListTooLarge) || errors.Is(err, kerr.InvalidRecord) {
		return fmt.Errorf("%w: %w", driver.ErrRefused, err)
	}
	answer, ok := errors.AsType[*kerr.Error](err)
	if !ok || answer.Retriable || errors.Is(err, kerr.TopicAuthorizationFailed) || errors.Is(err, kerr.ClusterAuthorizationFailed) {
		return err
	}
	return fmt.Errorf("%w: %w", driver.ErrDoubtful, err)
}
