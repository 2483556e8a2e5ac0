package kafka

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/IBM/sarama"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka/internal/cluster"
	"github.com/redeliver/redeliver/adapters/kafka/internal/produce"
	"github.com/redeliver/redeliver/adapters/kafka/internal/record"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/internal/deadletter/driver"
	"github.com/redeliver/redeliver/internal/foreign"
)

// deadWriter is what a session needs to write. Only the session's goroutine uses it, except close.
type deadWriter struct {
	state   redeliver.State   // of the message that is written
	names   map[string][]byte // of users' headers, see deadNames
	pending []*produce.Write

	producer      atomic.Pointer[produce.Producer] // batches records; nil before the first large window
	triedProducer bool
}

const (
	// minGathered is the number of messages for which a session makes its own producer.
	minGathered = 64
	// gatherLinger is how long that producer waits for more records. It sends a window of the default size as soon as
	// it is complete.
	gatherLinger = time.Millisecond
)

// producerFor returns the producer for n messages. The client's producer sends the first record at once, which is good
// for messages that come one by one. A window is handed over as a whole, so its producer batches.
func (c *deadSession) producerFor(ctx context.Context, n int) *produce.Producer {
	if own := c.writer.producer.Load(); own != nil {
		return own
	}
	if n < minGathered || c.writer.triedProducer {
		return c.q.client.producer
	}
	c.writer.triedProducer = true
	cfg := c.q.client.cfg.producerConfig()
	if f := &cfg.Producer.Flush; f.Bytes == 0 && f.Messages == 0 && f.Frequency == 0 { // otherwise the caller's settings stay
		f.Messages, f.Frequency = deadletter.DefaultWindow, gatherLinger
	}
	brokers := c.q.client.cfg.Brokers
	own, err := cluster.WithinDialTimeout(ctx, brokers, cfg, func() (*produce.Producer, error) { return produce.New(brokers, cfg) }, (*produce.Producer).Close)
	if err != nil {
		return c.q.client.producer // it is connected, or returns the error
	}
	c.writer.producer.Store(own)
	return own
}

// close releases the session's producer.
func (o *deadWriter) close() {
	if own := o.producer.Swap(nil); own != nil {
		go own.Close() // in the background: without a broker it waits long for answers
	}
}

// Write implements [driver.Session].
func (c *deadSession) Write(ctx context.Context, to driver.Destination, msgs []*deadletter.Message) []error {
	if to == driver.ToGroup {
		return c.write(ctx, msgs, c.q.info.ReplayTo, func(m *deadletter.Message, w *produce.Write) {
			rec := &w.Record.Message
			if c.q.foreignBack {
				c.writer.addHeaders(rec, deadletter.ForeignReplayHeaders(m, c.q.info))
				return
			}
			c.writer.addHeaders(rec, m.Headers)
			c.writer.state = deadletter.ReplayState(m, c.q.info)
			w.Record.AppendWaiting(&c.writer.state)
		})
	}
	return c.write(ctx, msgs, c.q.info.DLQ, func(m *deadletter.Message, w *produce.Write) {
		rec := &w.Record.Message
		c.writer.addHeaders(rec, m.Headers)
		if m.Writer == deadletter.WriterRedeliver {
			record.AppendState(rec, &m.State)
			if c.q.client.cfg.SpringHeaders {
				record.AppendHeaders(rec, foreign.AppendSpring(nil, &m.State))
			}
		} else {
			c.writer.addHeaders(rec, m.Foreign)
		}
	})
}

// write produces messages with the headers that head adds. The partition follows from the one in the origin, as in the
// subscriber.
func (c *deadSession) write(ctx context.Context, msgs []*deadletter.Message, topic string, head func(*deadletter.Message, *produce.Write)) []error {
	if err := c.leases.Check(); err != nil {
		return slices.Repeat([]error{err}, len(msgs))
	}
	errs := make([]error, len(msgs))
	writer := c.producerFor(ctx, len(msgs))
	timeout := c.q.client.cfg.SendTimeout
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("no answer within %s", timeout))
	defer cancel()
	c.writer.pending = c.writer.pending[:0]
	for i, m := range msgs {
		w := produce.PooledWrite()
		rec := &w.Record.Message
		*rec = sarama.ProducerMessage{Topic: topic, Headers: rec.Headers[:0]}
		if m.Key != nil {
			rec.Key = sarama.ByteEncoder(m.Key)
		}
		if m.Body != nil {
			rec.Value = sarama.ByteEncoder(m.Body)
		}
		head(m, w)
		partition := produce.AnyPartition
		if m.State.Source.Known {
			partition = m.State.Source.Partition
		}
		if topic == c.q.info.Origin && m.Key != nil && c.q.isOutsideOrigin(partition) {
			partition = produce.AnyPartition
		}
		errs[i] = writer.Send(ctx, w, rec, partition)
		c.writer.pending = append(c.writer.pending, w)
	}
	for i, w := range c.writer.pending {
		if errs[i] != nil {
			continue
		}
		if errs[i] = w.Wait(ctx); errs[i] == nil {
			w.Recycle()
		}
	}
	clear(c.writer.pending) // do not keep unanswered writes in memory
	return errs
}

// addHeaders adds a user's headers to a record.
func (o *deadWriter) addHeaders(rec *sarama.ProducerMessage, headers []deadletter.Header) {
	for _, h := range headers {
		rec.Headers = append(rec.Headers, sarama.RecordHeader{Key: o.name(h.Name), Value: h.Value})
	}
}

func (o *deadWriter) name(name string) []byte {
	if b, ok := o.names[name]; ok {
		return b
	}
	b := []byte(name)
	if len(name) <= maxKeptName && len(o.names) < maxKeptNames {
		if o.names == nil {
			o.names = make(map[string][]byte)
		}
		o.names[name] = b
	}
	return b
}
