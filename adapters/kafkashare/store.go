package kafkashare

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/driver"
	"github.com/redeliver/redeliver/internal/kafkaname"
)

var (
	_ driver.Store[*kgo.Record] = (*layout)(nil)
	_ driver.Truncating         = (*layout)(nil)
)

// Truncates implements [driver.Truncating].
func (*layout) Truncates() bool { return true }

// Write implements [driver.Store].
func (l *layout) Write(ctx context.Context, to driver.Place, m *driver.Message[*kgo.Record], st *redeliver.State, done driver.Done) {
	switch to {
	case driver.PlaceLevel:
		l.writeCopy(ctx, m.Record, l.topicFor(st.Due, time.Now()), st, done)
	case driver.PlaceDLQ:
		l.writeCopy(ctx, m.Record, l.dlq, st, done)
	case driver.PlaceTopic:
		l.publisher.write(ctx, copyFor(m.Record, l.origin, nil), done)
	default:
		done.Confirmed("", fmt.Errorf("kafkashare: there is no place %d", to))
	}
}

// writeCopy writes a copy of a record to one of our topics. Its partition follows from the one in the origin: see
// choosePartition.
func (l *layout) writeCopy(ctx context.Context, rec *kgo.Record, topic string, st *redeliver.State, done driver.Done) {
	c := copyFor(rec, topic, st)
	if c.Partition = rand.Int32(); st.Source.Known {
		c.Partition = st.Source.Partition
	}
	l.writer.write(ctx, c, done)
}

// choosePartition is the partitioner of our topics. It asks for their number of partitions each time, because a topic
// may be created again with fewer.
func choosePartition(string) func(*kgo.Record, int) int {
	return func(rec *kgo.Record, n int) int { return int(rec.Partition) % n }
}

// recordWriter writes records. A client of franz-go never writes to a topic that was deleted and created again, so
// recordWriter then replaces the client, and also if the client got no producer id. If the client only forgot the topic, its sequence numbers would begin again,
// and the broker could take a new record for a duplicate.
type recordWriter struct {
	newClient func() (*kgo.Client, error)

	mu     sync.Mutex
	client *kgo.Client
	closed bool
}

// newWriter makes a recordWriter. It connects at the first write.
func (c *client) newWriter(opts ...kgo.Opt) (*recordWriter, error) {
	w := &recordWriter{newClient: func() (*kgo.Client, error) { return c.newClient(opts...) }}
	var err error
	w.client, err = w.newClient()
	return w, err
}

// write writes a record. It gives up at the end of ctx, see Client.newClient.
func (w *recordWriter) write(ctx context.Context, rec *kgo.Record, done driver.Done) {
	w.mu.Lock()
	cl := w.client
	w.mu.Unlock()
	cl.Produce(ctx, rec, func(_ *kgo.Record, err error) {
		if err == nil {
			done.Confirmed(rec.Topic, nil)
			return
		}
		// In a goroutine, because Confirmed may write again, and the client's buffer may be full until this callback
		// returns.
		go func() {
			refused := kafkaname.ToTopic("Produce", "Write", rec.Topic)
			if errors.Is(err, kerr.ClusterAuthorizationFailed) { // the producer got no id, for which Write on any topic is enough
				refused = kafkaname.Request{Name: "InitProducerID", Right: "Write on topic " + rec.Topic + ", or IdempotentWrite", Kind: "the", Of: "cluster"}
			}
			if errors.Is(err, kerr.UnknownTopicID) || errors.Is(err, kerr.ClusterAuthorizationFailed) {
				w.replace(cl)
			}
			done.Confirmed(rec.Topic, classify(explain(refused, fmt.Errorf("kafkashare: writing to %s: %w", rec.Topic, err))))
		}()
	})
}

// replace replaces a client, unless another write has done that. The old one ends its other writes first.
func (w *recordWriter) replace(old *kgo.Client) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed || w.client != old {
		return
	}
	if cl, err := w.newClient(); err == nil { // otherwise the next write tries again
		w.client = cl
		go func() {
			_ = old.Flush(context.Background()) // every write ends with its context
			old.Close()
		}()
	}
}

func (w *recordWriter) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	w.client.Close()
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
