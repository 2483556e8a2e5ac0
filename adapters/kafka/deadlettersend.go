package kafka

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/IBM/sarama"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/internal/deadletter/driver"
	"github.com/redeliver/redeliver/internal/foreign"
)

// deadOut is what a session writes with. But for end it belongs to the session's goroutine.
type deadOut struct {
	state redeliver.State   // of the message that is written
	names map[string][]byte // of users' headers, see deadNames
	waits []*confirm

	own   atomic.Pointer[producer] // gathers what it is handed; nil before the first large window
	tried bool                     // to have one
}

const (
	// gatherFrom is how many messages are worth a producer of their own.
	gatherFrom = 64
	// gatherTime is how long that producer gathers. A window of the default size is sent
	// as soon as it is whole.
	gatherTime = time.Millisecond
)

// by is the producer for n messages. The client's sends the first at once, and looks with
// each that follows whether it may go, too: that suits messages that come one by one. A
// window is handed over as a whole, and what becomes of it is two notes at a time.
func (c *deadSession) by(ctx context.Context, n int) *producer {
	if own := c.out.own.Load(); own != nil {
		return own
	}
	if n < gatherFrom || c.out.tried {
		return c.q.c.producer
	}
	c.out.tried = true
	cfg := c.q.c.cfg.producerConfig()
	if f := &cfg.Producer.Flush; f.Bytes == 0 && f.Messages == 0 && f.Frequency == 0 { // else it is what the caller wants
		f.Messages, f.Frequency = deadletter.DefaultWindow, gatherTime
	}
	brokers := c.q.c.cfg.Brokers
	own, err := inDialTime(ctx, brokers, cfg, func() (*producer, error) { return newProducer(brokers, cfg) }, (*producer).close)
	if err != nil {
		return c.q.c.producer // which has its connections, or says what is wrong
	}
	c.out.own.Store(own)
	return own
}

// end lets go of what was needed to write.
func (o *deadOut) end() {
	if own := o.own.Swap(nil); own != nil {
		go own.close() // it waits for answers, and without a broker there are none for long
	}
}

// Write implements [driver.Session].
func (c *deadSession) Write(ctx context.Context, to driver.Place, msgs []*deadletter.Message) []error {
	if to == driver.Back {
		return c.write(ctx, msgs, c.q.info.Back, func(m *deadletter.Message, rec *sarama.ProducerMessage) {
			if c.q.elsewhere {
				c.out.headers(rec, deadletter.ToElsewhere(m, c.q.info))
				return
			}
			c.out.headers(rec, m.Headers)
			c.out.state = deadletter.NewState(m, c.q.info)
			appendState(rec, &c.out.state)
		})
	}
	return c.write(ctx, msgs, c.q.info.DLQ, func(m *deadletter.Message, rec *sarama.ProducerMessage) {
		c.out.headers(rec, m.Headers)
		if m.Writer == deadletter.WriterRedeliver {
			appendState(rec, &m.State)
			if c.q.c.cfg.SpringHeaders {
				appendHeaders(rec, foreign.AppendSpring(nil, &m.State))
			}
		} else {
			c.out.headers(rec, m.Foreign)
		}
	})
}

// write produces messages with the headers that head gives them, on the partition that
// belongs to their place in the origin, as the subscriber does.
func (c *deadSession) write(ctx context.Context, msgs []*deadletter.Message, topic string, head func(*deadletter.Message, *sarama.ProducerMessage)) []error {
	if err := c.leases.Check(); err != nil {
		return slices.Repeat([]error{err}, len(msgs))
	}
	errs := make([]error, len(msgs))
	by := c.by(ctx, len(msgs))
	timeout := c.q.c.cfg.SendTimeout
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("no answer within %s", timeout))
	defer cancel()
	c.out.waits = c.out.waits[:0]
	for i, m := range msgs {
		w := confirms.Get().(*confirm) //nolint:forcetypeassert // nothing else is in there
		rec := &w.room
		*rec = sarama.ProducerMessage{Topic: topic, Headers: rec.Headers[:0]}
		if m.Key != nil {
			rec.Key = sarama.ByteEncoder(m.Key)
		}
		if m.Body != nil {
			rec.Value = sarama.ByteEncoder(m.Body)
		}
		head(m, rec)
		partition := anyPartition
		if m.State.Source.Known {
			partition = m.State.Source.Partition
		}
		if topic == c.q.info.Origin && m.Key != nil && c.q.lies(partition) {
			partition = anyPartition
		}
		errs[i] = by.write(ctx, w, rec, partition)
		c.out.waits = append(c.out.waits, w)
	}
	for i, w := range c.out.waits {
		if errs[i] != nil {
			continue
		}
		if errs[i] = w.wait(ctx); errs[i] == nil {
			w.idle()
		}
	}
	clear(c.out.waits) // what nobody answered must not stay in memory
	return errs
}

// headers appends a user's headers to a record.
func (o *deadOut) headers(rec *sarama.ProducerMessage, headers []deadletter.Header) {
	for _, h := range headers {
		rec.Headers = append(rec.Headers, sarama.RecordHeader{Key: o.name(h.Name), Value: h.Value})
	}
}

func (o *deadOut) name(name string) []byte {
	if b, ok := o.names[name]; ok {
		return b
	}
	b := []byte(name)
	if len(name) <= keptName && len(o.names) < keptNames {
		if o.names == nil {
			o.names = make(map[string][]byte)
		}
		o.names[name] = b
	}
	return b
}
