package dlq

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/IBM/sarama"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka/internal/cluster"
	"github.com/redeliver/redeliver/adapters/kafka/internal/produce"
	"github.com/redeliver/redeliver/adapters/kafka/internal/record"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/deadletter/driver"
	"github.com/redeliver/redeliver/internal/foreign"
)

// writer has the state that a session needs for writing. Only the session's goroutine uses it, except close.
type writer struct {
	state redeliver.State  // of the message that is written; one for all, because each would be on the heap
	names record.NameBytes // of users' headers

	producer      atomic.Pointer[produce.Producer] // batches records; nil before the first large window
	triedProducer bool
}

const (
	// minGathered is the least number of messages for a producer of the session's own.
	minGathered = 64
	// gatherLinger is how long that producer waits for more records. It sends a complete window of the default size
	// at once.
	gatherLinger = time.Millisecond
)

// producerFor returns the producer for n messages. The client's producer sends the first record at once, which suits
// single messages. For many messages a session makes a producer that batches.
func (s *session) producerFor(ctx context.Context, n int) *produce.Producer {
	if own := s.writer.producer.Load(); own != nil {
		return own
	}
	if n < minGathered || s.writer.triedProducer {
		return s.q.Producer
	}
	s.writer.triedProducer = true
	cfg := s.q.BatchingConfig()
	if f := &cfg.Producer.Flush; f.Bytes == 0 && f.Messages == 0 && f.Frequency == 0 { // otherwise the caller's settings stay
		f.Messages, f.Frequency = deadletter.DefaultWindow, gatherLinger
	}
	brokers := s.q.Brokers
	own, err := cluster.WithinDialTimeout(ctx, brokers, cfg, func() (*produce.Producer, error) { return produce.New(brokers, cfg) }, (*produce.Producer).Close)
	if err != nil {
		return s.q.Producer // it is connected, or returns the error
	}
	s.writer.producer.Store(own)
	return own
}

// close releases the session's producer.
func (w *writer) close() {
	if own := w.producer.Swap(nil); own != nil {
		go own.Close() // in the background: without a broker it waits long for answers
	}
}

// Write implements [driver.Session].
func (s *session) Write(ctx context.Context, to driver.Destination, msgs []*deadletter.Message) []error {
	if to == driver.DestinationGroup {
		return s.writeTo(ctx, msgs, s.q.Where.ReplayTo, func(m *deadletter.Message, w *produce.Write) {
			rec := &w.Record.Message
			if s.q.ForeignBack {
				s.writer.addHeaders(rec, driver.ForeignReplayHeaders(m, s.q.Where))
				return
			}
			s.writer.addHeaders(rec, m.Headers)
			s.writer.state = driver.ReplayState(m, s.q.Where)
			record.AppendState(rec, &s.writer.state)
		})
	}
	return s.writeTo(ctx, msgs, s.q.Where.DLQ, func(m *deadletter.Message, w *produce.Write) {
		rec := &w.Record.Message
		s.writer.addHeaders(rec, m.Headers)
		if m.Writer == deadletter.WriterRedeliver {
			record.AppendState(rec, &m.State)
			if s.q.SpringHeaders {
				record.AppendHeaders(rec, foreign.AppendSpring(nil, &m.State))
			}
		} else {
			s.writer.addHeaders(rec, m.Foreign)
		}
	})
}

// writeTo produces messages to a topic, with the headers that setHeaders adds. The partition follows from the one in
// the origin, as in the subscriber.
func (s *session) writeTo(ctx context.Context, msgs []*deadletter.Message, topic string, setHeaders func(*deadletter.Message, *produce.Write)) []error {
	errs := make([]error, len(msgs))
	producer := s.producerFor(ctx, len(msgs))
	timeout := s.q.SendTimeout
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("no answer within %s", timeout))
	defer cancel()
	writes := make([]*produce.Write, len(msgs))
	for i, m := range msgs {
		w := produce.PooledWrite()
		writes[i] = w
		rec := &w.Record.Message
		*rec = sarama.ProducerMessage{Topic: topic, Headers: rec.Headers[:0]}
		if m.Key != nil {
			rec.Key = sarama.ByteEncoder(m.Key)
		}
		if m.Body != nil {
			rec.Value = sarama.ByteEncoder(m.Body)
		}
		setHeaders(m, w)
		partition := produce.AnyPartition
		if m.State.Source.Known {
			partition = m.State.Source.Partition
		}
		if topic == s.q.Where.Origin && m.Key != nil && s.q.isOutsideOrigin(partition) {
			partition = produce.AnyPartition
		}
		errs[i] = producer.Send(ctx, w, rec, partition)
	}
	for i, w := range writes {
		if errs[i] != nil {
			continue
		}
		if errs[i] = w.Wait(ctx); errs[i] == nil {
			w.Recycle()
		}
	}
	return errs
}

// addHeaders adds a user's headers to a record.
func (w *writer) addHeaders(rec *sarama.ProducerMessage, headers []deadletter.Header) {
	for _, h := range headers {
		rec.Headers = append(rec.Headers, sarama.RecordHeader{Key: w.names.Of(h.Name), Value: h.Value})
	}
}
