package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/IBM/sarama"

	"github.com/redeliver/redeliver/internal/driver"
)

// producer writes records and tells when the broker has confirmed each.
type producer struct {
	client  sarama.Client
	async   sarama.AsyncProducer
	readers sync.WaitGroup
	mu      sync.RWMutex // held for reading while a record is handed over
	closed  bool

	// An origin takes records whose batch is small enough once its producer has
	// compressed it, and they must fit on their way through here too: packer
	// makes a second producer, that compresses, when the first record needs it.
	// It is nil in that producer itself.
	maxRecordBytes int // the largest record for this one
	newOversize    func() (*producer, error)
	oversizeMu     sync.Mutex
	oversize       *producer
}

// confirm waits for one record's answer. It rides as the record's metadata.
type pendingWrite struct {
	producer  *producer
	record    *sarama.ProducerMessage
	partition int32 // where to, or anyPartition
	done      chan error
	room      sarama.ProducerMessage // record, where that is ours to use again

	// With post, in the place of done.
	then driver.Done
	ctx  context.Context // bounds how long the producer may take to take the record

	unwatch  func() bool // stops watch
	mu       sync.Mutex
	answered bool
}

// confirms are those whose answer has come: every retry takes one, with room for
// a record and its headers. One without an answer must not come back here.
var pendingWrites = sync.Pool{New: func() any { return &pendingWrite{done: make(chan error, 1)} }}

// idle gives back what would keep the record that was written in memory.
func (c *pendingWrite) recycle() {
	if cap(c.room.Headers) > 1024 {
		return // somebody's thousands of headers
	}
	clear(c.room.Headers)
	c.room = sarama.ProducerMessage{Headers: c.room.Headers[:0]}
	c.producer, c.record, c.then, c.ctx, c.unwatch, c.answered = nil, nil, nil, nil, nil, false
	pendingWrites.Put(c)
}

// watch reports a record that has no answer when its time is over, once: sarama cannot take it back.
func (c *pendingWrite) watchDeadline() {
	then, topic, ctx := c.then, c.room.Topic, c.ctx
	c.unwatch = context.AfterFunc(ctx, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if !c.answered {
			then.Unanswered(topic, unansweredError(ctx, topic))
		}
	})
}

// endWatch ends the watch for an answer. It reports whether c may be used again: not where the watch has begun to look at it.
func (c *pendingWrite) stopWatch() (stopped bool) {
	stopped = c.unwatch()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answered = true
	return stopped
}

const anyPartition int32 = -1

var (
	errClosed     = errors.New("kafka: the client is closed")
	errUnanswered = errors.New("no answer")
)

func newProducer(brokers []string, cfg *sarama.Config) (*producer, error) {
	p, err := startProducer(brokers, cfg)
	if err != nil {
		return nil, err
	}
	p.maxRecordBytes = cfg.Producer.MaxMessageBytes
	p.newOversize = func() (*producer, error) {
		return startProducer(brokers, oversizeConfig(cfg))
	}
	return p, nil
}

// packing is cfg for what is too large: one record a batch, of any size that the broker
// takes. The limit of a topic is for the batch: that is why the other producer, which
// gathers, keeps to sarama's own bound.
func oversizeConfig(cfg *sarama.Config) *sarama.Config {
	oversize := *cfg
	oversize.Producer.MaxMessageBytes = int(sarama.MaxRequestSize) - 1<<20
	oversize.Producer.Flush.MaxMessages = 1
	oversize.Producer.Flush.Messages, oversize.Producer.Flush.Bytes = 0, 0
	oversize.Producer.Compression = sarama.CompressionGZIP
	if oversize.Version.IsAtLeast(sarama.V2_1_0_0) {
		oversize.Producer.Compression = sarama.CompressionZSTD
	}
	oversize.Producer.CompressionLevel = sarama.CompressionLevelDefault
	return &oversize
}

func startProducer(brokers []string, cfg *sarama.Config) (*producer, error) {
	client, err := sarama.NewClient(brokers, cfg)
	if err != nil {
		return nil, fmt.Errorf("kafka: making a producer for %v: %w", brokers, err)
	}
	async, err := sarama.NewAsyncProducerFromClient(client)
	if err != nil {
		_ = client.Close() // sarama's own constructor leaves it open
		return nil, fmt.Errorf("kafka: making a producer for %v: %w", brokers, err)
	}
	p := &producer{client: client, async: async}
	p.readers.Go(func() {
		for m := range async.Successes() {
			deliverAnswer(m, nil)
		}
	})
	p.readers.Go(func() {
		for e := range async.Errors() {
			deliverAnswer(e.Msg, e.Err)
		}
	})
	return p, nil
}

func deliverAnswer(m *sarama.ProducerMessage, err error) {
	c, ok := m.Metadata.(*pendingWrite)
	switch {
	case !ok: // all of ours are
	case c.then == nil:
		c.done <- err
	case err == nil:
		then, topic := c.then, m.Topic
		if c.stopWatch() {
			c.recycle()
		}
		then.Confirmed(topic, nil)
	default:
		go c.handleFailure(err) // which may write: the producer takes nothing while nobody reads its answers
	}
}

// failed is the end of a try of post, unless the record is written once more by itself.
func (c *pendingWrite) handleFailure(err error) {
	retried, err := c.retryAlone(c.ctx, err)
	if retried {
		return
	}
	c.stopWatch()
	c.then.Confirmed(c.record.Topic, err) // sarama reads a record on that it has given back with an error: it is not used again
}

// post hands a record over and returns at once. then hears what became of it, when that is known: sarama cannot take
// a record back. ctx bounds how long the producer may take to take it.
func (p *producer) post(ctx context.Context, c *pendingWrite, partition int32, then driver.Done) {
	c.then, c.ctx = then, ctx
	c.watchDeadline()
	if p.tryWrite(c, partition) {
		return
	}
	go func() {
		if err := p.write(ctx, c, &c.room, partition); err != nil {
			c.stopWatch()
			then.Confirmed(c.room.Topic, err)
		}
	}()
}

// offer is write where that does not block.
func (p *producer) tryWrite(c *pendingWrite, partition int32) bool {
	m := &c.room
	if m.ByteSize(2) > p.maxRecordBytes {
		return false // it may need another producer
	}
	c.producer, c.record, c.partition = p, m, partition
	m.Metadata = c
	p.mu.RLock()
	defer p.mu.RUnlock()
	if p.closed {
		return false
	}
	select {
	case p.async.Input() <- m:
		return true
	default:
		return false
	}
}

// start hands a record over and returns at once; wait tells what became of it.
func (p *producer) start(ctx context.Context, m *sarama.ProducerMessage, partition int32) (*pendingWrite, error) {
	c := &pendingWrite{done: make(chan error, 1)}
	return c, p.write(ctx, c, m, partition)
}

// write is start with a confirm of the caller's, which must not wait for another.
func (p *producer) write(ctx context.Context, c *pendingWrite, m *sarama.ProducerMessage, partition int32) error {
	if p.newOversize != nil && m.ByteSize(2) > p.maxRecordBytes {
		packed, err := p.oversizeProducer()
		if err != nil {
			return err
		}
		return packed.write(ctx, c, m, partition)
	}
	c.producer, c.record, c.partition = p, m, partition
	m.Metadata = c
	p.mu.RLock()
	defer p.mu.RUnlock()
	if p.closed {
		return errClosed
	}
	select {
	case p.async.Input() <- m:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("kafka: the producer does not take a record for %s: %w", m.Topic, ctx.Err())
	}
}

// wait returns when the record is confirmed, refused, or ctx ends: then it may
// still be written, and after that errUnsure wait may be called again.
func (c *pendingWrite) wait(ctx context.Context) error {
	for {
		var err error
		select {
		case err = <-c.done:
		case <-ctx.Done():
			return unansweredError(ctx, c.record.Topic)
		}
		if err == nil {
			return nil
		}
		if retried, err := c.retryAlone(ctx, err); !retried {
			return err
		}
	}
}

// unsure is the error of a write that has no answer when ctx has ended.
func unansweredError(ctx context.Context, topic string) error {
	return fmt.Errorf("kafka: %w to a write to %s, it may or may not be there: %w", errUnanswered, topic, ctx.Err())
}

// alone writes a record by itself, and compressed, that was refused: the answer is for a whole batch. again is false where
// it is not, because of err.
func (c *pendingWrite) retryAlone(ctx context.Context, refusal error) (retried bool, err error) {
	err = classify(fmt.Errorf("kafka: writing to %s: %w", c.record.Topic, refusal))
	if c.producer.newOversize == nil || !errors.Is(err, driver.ErrRefused) && !errors.Is(err, driver.ErrDoubtful) {
		return false, err
	}
	packed, perr := c.producer.oversizeProducer()
	if perr != nil {
		return false, errors.Join(err, perr)
	}
	if perr := packed.write(ctx, c, c.record, c.partition); perr != nil {
		return false, perr
	}
	return true, nil
}

// refusals are the errors of a write that concern the record, however often it is sent.
var refusals = []error{sarama.ErrMessageSizeTooLarge, sarama.ErrMessageSetSizeTooLarge, sarama.ErrInvalidRecord}

// outages are Kafka's errors of a write that concern no record, but the partition, the
// cluster, or the producer.
var outages = []error{
	sarama.ErrUnknownTopicOrPartition, sarama.ErrLeaderNotAvailable, sarama.ErrNotLeaderForPartition, sarama.ErrRequestTimedOut,
	sarama.ErrBrokerNotAvailable, sarama.ErrReplicaNotAvailable, sarama.ErrNetworkException, sarama.ErrNotEnoughReplicas,
	sarama.ErrNotEnoughReplicasAfterAppend, sarama.ErrTopicAuthorizationFailed, sarama.ErrClusterAuthorizationFailed,
	sarama.ErrSASLAuthenticationFailed, sarama.ErrOutOfOrderSequenceNumber, sarama.ErrDuplicateSequenceNumber,
	sarama.ErrInvalidProducerEpoch, sarama.ErrInvalidProducerIDMapping, sarama.ErrUnknownProducerID, sarama.ErrProducerFenced,
	sarama.ErrKafkaStorageError, sarama.ErrFencedLeaderEpoch, sarama.ErrUnknownLeaderEpoch, sarama.ErrStaleBrokerEpoch,
	sarama.ErrPreferredLeaderNotAvailable, sarama.ErrThrottlingQuotaExceeded,
}

// classify marks the errors of a write that concern, or may concern, one record alone.
func classify(err error) error {
	is := func(target error) bool { return errors.Is(err, target) }
	if slices.ContainsFunc(refusals, is) {
		return fmt.Errorf("%w: %w", driver.ErrRefused, err)
	}
	if _, tooLarge := errors.AsType[sarama.ConfigurationError](err); tooLarge { // for this client, uncompressed
		return fmt.Errorf("%w: %w", driver.ErrRefused, err)
	}
	_, answered := errors.AsType[sarama.KError](err)
	_, unsent := errors.AsType[sarama.PacketEncodingError](err)
	if unsent || answered && !slices.ContainsFunc(outages, is) {
		return fmt.Errorf("%w: %w", driver.ErrDoubtful, err)
	}
	return err
}

// close ends the producer after the records that were handed over have an answer.
func (p *producer) close() {
	p.mu.Lock()
	wasClosed := p.closed
	p.closed = true
	p.mu.Unlock()
	if !wasClosed {
		p.async.AsyncClose()
	}
	p.readers.Wait()
	if !wasClosed {
		_ = p.client.Close() // it has nothing under way
	}
	p.oversizeMu.Lock()
	defer p.oversizeMu.Unlock()
	if p.oversize != nil {
		p.oversize.close()
	}
}

// compressing returns the producer for records that are too large for this one.
func (p *producer) oversizeProducer() (*producer, error) {
	p.oversizeMu.Lock()
	defer p.oversizeMu.Unlock()
	if p.oversize == nil {
		packed, err := p.newOversize()
		if err != nil {
			return nil, err
		}
		p.oversize = packed
	}
	return p.oversize, nil
}
