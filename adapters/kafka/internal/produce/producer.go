// Package produce writes records and reports when the broker has confirmed each.
//
// sarama cannot take back a record that it has accepted. So a [Producer] never gives one up: a caller that stops
// waiting learns that there is no answer, and the answer itself is still reported when it comes. [Producer.Post] calls
// back, [Producer.Start] returns a [Write] to wait for, and [Producer.WriteEntries] writes to a compacted topic.
//
// A broker refuses a whole batch because of one record. So a refused record is written again, alone and compressed,
// before its refusal counts. Errors of one record are marked with driver.ErrRefused or driver.ErrDoubtful. All others
// concern the partition or the cluster.
package produce

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/IBM/sarama"

	"github.com/redeliver/redeliver/adapters/kafka/internal/cluster"
	"github.com/redeliver/redeliver/adapters/kafka/internal/record"
	"github.com/redeliver/redeliver/driver"
)

// Producer writes records and reports when the broker has confirmed each.
type Producer struct {
	client        sarama.Client
	async         sarama.AsyncProducer
	answerReaders sync.WaitGroup
	posted        chan *Write // for forward; closed by Close
	forwarder     sync.WaitGroup
	mu            sync.RWMutex // held for reading while a record is handed over
	closed        bool
	groups        sync.Map // of unanswered posted writes: a *writeGroup for each context

	// An origin accepts large records if its producer compresses them enough; our topics must, too. For the first
	// record that is above maxRecordBytes or was refused, newOversize makes a second, compressing producer, whose
	// own newOversize is nil.
	maxRecordBytes int
	newOversize    func() (*Producer, error)
	oversizeTurn   chan struct{} // holds the turn to make or use oversize: making it may take as long as the cluster is away
	oversize       *Producer
}

// Write waits for the answer to one record. It is the record's metadata.
type Write struct {
	producer  *Producer
	sent      *sarama.ProducerMessage
	partition int32 // the target, or AnyPartition
	done      chan error
	Record    record.Outgoing // the record, if it comes from the pool

	// Set by Post, which does not use done.
	then    driver.Done
	OnError func(error)     // called before then.Confirmed on error; or nil
	ctx     context.Context // bounds the handover; when it ends, then.Unanswered follows

	group    *writeGroup
	mu       sync.Mutex
	answered bool
}

// pooledWrites reuses answered writes, with room for a record and its headers. An unanswered one must not be put back.
var pooledWrites = sync.Pool{New: func() any { return &Write{done: make(chan error, 1)} }}

// PooledWrite returns a write whose record is empty.
func PooledWrite() *Write {
	return pooledWrites.Get().(*Write) //nolint:forcetypeassert // nothing else is in there
}

// Recycle drops references to the written record and puts w back into the pool.
func (w *Write) Recycle() {
	if cap(w.Record.Message.Headers) > 1024 {
		return // a user's thousands of headers
	}
	w.Record.Reset()
	w.producer, w.sent, w.then, w.OnError, w.ctx, w.group, w.answered = nil, nil, nil, nil, nil, nil, false
	pooledWrites.Put(w)
}

// writeGroup has the unanswered posted writes of one context. The engine uses one context for all writes that begin
// within a short time, and one callback for each group costs less.
type writeGroup struct {
	ctx context.Context

	mu     sync.Mutex
	writes map[*Write]struct{}
}

// watchDeadline adds a write to the group of its context. When the context ends, the group reports its unanswered
// writes: sarama cannot take them back.
func (p *Producer) watchDeadline(w *Write) {
	g := p.groupOf(w.ctx)
	g.mu.Lock()
	defer g.mu.Unlock()
	w.group, g.writes[w] = g, struct{}{}
	if w.ctx.Err() != nil { // the group has reported
		go g.reportUnanswered()
	}
}

// groupOf returns the group of ctx. The group ends with ctx.
func (p *Producer) groupOf(ctx context.Context) *writeGroup {
	if g, ok := p.groups.Load(ctx); ok {
		return g.(*writeGroup) //nolint:forcetypeassert // nothing else is in there
	}
	g, found := p.groups.LoadOrStore(ctx, &writeGroup{ctx: ctx, writes: make(map[*Write]struct{})})
	group := g.(*writeGroup) //nolint:forcetypeassert // nothing else is in there
	if !found {
		context.AfterFunc(ctx, func() {
			p.groups.Delete(ctx)
			group.reportUnanswered()
		})
	}
	return group
}

// remove removes a write, and reports whether it was in g.
func (g *writeGroup) remove(w *Write) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	_, was := g.writes[w]
	delete(g.writes, w)
	return was
}

// reportUnanswered removes and reports all writes of the group.
func (g *writeGroup) reportUnanswered() {
	g.mu.Lock()
	all := g.writes
	g.writes = make(map[*Write]struct{})
	g.mu.Unlock()
	for w := range all {
		w.mu.Lock()
		if !w.answered {
			w.then.Unanswered(w.Record.Message.Topic, unansweredError(g.ctx, w.Record.Message.Topic))
		}
		w.mu.Unlock()
	}
}

// stopWatch undoes watchDeadline. It reports whether w may be recycled: not while the group may be reporting it.
func (w *Write) stopWatch() (stopped bool) {
	stopped = w.group.remove(w)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answered = true
	return stopped
}

// AnyPartition leaves the choice to the partitioner of the configuration.
const AnyPartition int32 = -1

// ErrClosed is the error of writes, and of new sessions and subscriptions, after the client was closed.
var ErrClosed = errors.New("kafka: the client is closed")

var errUnanswered = errors.New("no answer")

// New connects a producer.
func New(brokers []string, cfg *sarama.Config) (*Producer, error) {
	p, err := start(brokers, cfg)
	if err != nil {
		return nil, err
	}
	p.maxRecordBytes = cfg.Producer.MaxMessageBytes
	p.newOversize = func() (*Producer, error) {
		return start(brokers, oversizeConfig(cfg))
	}
	return p, nil
}

// oversizeConfig returns the settings of the second producer: one record per batch, of any size that the broker
// accepts. The limit of a topic applies to the batch, so the first producer, which batches, keeps to sarama's bound.
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

func start(brokers []string, cfg *sarama.Config) (*Producer, error) {
	client, err := sarama.NewClient(brokers, cfg)
	if err != nil {
		return nil, fmt.Errorf("kafka: making a producer for %v: %w", brokers, err)
	}
	async, err := sarama.NewAsyncProducerFromClient(client)
	if err != nil {
		_ = client.Close() // sarama's constructor does not close it
		if cluster.IsDenied(err) {
			err = fmt.Errorf("%w; grant Write on the topics of redeliver, or IdempotentWrite on the cluster", err)
		}
		return nil, fmt.Errorf("kafka: making a producer for %v: %w", brokers, err)
	}
	p := &Producer{client: client, async: async, posted: make(chan *Write, maxPosted), oversizeTurn: make(chan struct{}, 1)}
	p.forwarder.Go(p.forward)
	p.answerReaders.Go(func() {
		for m := range async.Successes() {
			deliverAnswer(m, nil)
		}
	})
	p.answerReaders.Go(func() {
		for e := range async.Errors() {
			deliverAnswer(e.Msg, e.Err)
		}
	})
	return p, nil
}

func deliverAnswer(m *sarama.ProducerMessage, err error) {
	w, ok := m.Metadata.(*Write)
	switch {
	case !ok: // not one of ours
	case w.then == nil:
		w.done <- err
	case err == nil:
		then, topic := w.then, m.Topic
		if w.stopWatch() {
			w.Recycle()
		}
		then.Confirmed(topic, nil)
	default:
		go w.handleFailure(err) // It may write, and the producer accepts nothing while nobody reads its answers.
	}
}

// handleFailure reports the failure of a posted record, unless retryAlone writes it again.
func (w *Write) handleFailure(err error) {
	retried, err := w.retryAlone(w.ctx, err)
	if retried {
		return
	}
	w.fail(err) // w is not recycled: sarama still reads a record that it has returned with an error.
}

// Post hands over a record and returns at once. It calls then.Confirmed with the broker's answer, however late: sarama
// cannot take a record back. If ctx ends first, it calls then.Unanswered, too, and a record that was not handed over
// fails.
func (p *Producer) Post(ctx context.Context, w *Write, partition int32, then driver.Done) {
	w.then, w.ctx = then, ctx
	p.watchDeadline(w)
	if p.tryPost(w, partition) {
		return
	}
	go func() {
		if err := p.Send(ctx, w, &w.Record.Message, partition); err != nil {
			w.fail(err)
		}
	}()
}

// fail reports the error of a posted record.
func (w *Write) fail(err error) {
	w.stopWatch()
	if w.OnError != nil {
		w.OnError(err)
	}
	topic := w.Record.Message.Topic
	w.then.Confirmed(topic, cluster.Explain(cluster.ToTopic("Produce", "Write", topic), err))
}

// tryPost gives a record to forward. It reports false if p is closed, p.posted is full, or the record needs the
// oversize producer.
func (p *Producer) tryPost(w *Write, partition int32) bool {
	if w.Record.Message.ByteSize(2) > p.maxRecordBytes {
		return false
	}
	w.producer, w.sent, w.partition = p, &w.Record.Message, partition
	w.Record.Message.Metadata = w
	p.mu.RLock()
	defer p.mu.RUnlock()
	if p.closed {
		return false
	}
	select {
	case p.posted <- w:
		return true
	default:
		return false
	}
}

// maxPosted bounds the records that wait for sarama.
const maxPosted = 1024

// forward hands posted records to sarama, whose input has no buffer: a send waits until sarama takes it.
func (p *Producer) forward() {
	for w := range p.posted {
		if err := p.handOver(w.ctx, &w.Record.Message); err != nil {
			go w.fail(err) // it may write again
		}
	}
}

// handOver gives a record to sarama, unless ctx ends first.
func (p *Producer) handOver(ctx context.Context, m *sarama.ProducerMessage) error {
	select {
	case p.async.Input() <- m:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("kafka: the producer does not take a record for %s: %w", m.Topic, ctx.Err())
	}
}

// Start hands over a record. [Write.Wait] returns the result.
func (p *Producer) Start(ctx context.Context, m *sarama.ProducerMessage, partition int32) (*Write, error) {
	w := &Write{done: make(chan error, 1)}
	return w, p.Send(ctx, w, m, partition)
}

// Send is Start with the caller's Write, which must not wait for another record.
func (p *Producer) Send(ctx context.Context, w *Write, m *sarama.ProducerMessage, partition int32) error {
	if p.newOversize != nil && m.ByteSize(2) > p.maxRecordBytes {
		oversize, err := p.oversizeProducer(ctx)
		if err != nil {
			return err
		}
		return oversize.Send(ctx, w, m, partition)
	}
	w.producer, w.sent, w.partition = p, m, partition
	m.Metadata = w
	p.mu.RLock()
	defer p.mu.RUnlock()
	if p.closed {
		return ErrClosed
	}
	return p.handOver(ctx, m)
}

// Wait returns when the record is confirmed or refused, or ctx ends. After ctx has ended the record may still be
// written, and Wait may be called again.
func (w *Write) Wait(ctx context.Context) error {
	for {
		var err error
		select {
		case err = <-w.done:
		case <-ctx.Done():
			return unansweredError(ctx, w.sent.Topic)
		}
		if err == nil {
			return nil
		}
		if retried, err := w.retryAlone(ctx, err); !retried {
			return err
		}
	}
}

// unansweredError returns the error of a write that has no answer when ctx has ended.
func unansweredError(ctx context.Context, topic string) error {
	return fmt.Errorf("kafka: %w to a write to %s, the record may be there: %w", errUnanswered, topic, ctx.Err())
}

// retryAlone writes a refused record again, alone and compressed, because a refusal applies to a whole batch. If it
// does not write, it returns the final error.
func (w *Write) retryAlone(ctx context.Context, refusal error) (retried bool, err error) {
	err = classify(fmt.Errorf("kafka: writing to %s: %w", w.sent.Topic, refusal))
	if w.producer.newOversize == nil || !errors.Is(err, driver.ErrRefused) && !errors.Is(err, driver.ErrDoubtful) {
		return false, err
	}
	oversize, startErr := w.producer.oversizeProducer(ctx)
	if startErr != nil {
		return false, errors.Join(err, startErr)
	}
	if err := oversize.Send(ctx, w, w.sent, w.partition); err != nil {
		return false, err
	}
	return true, nil
}

// refusals are write errors that concern one record, however often it is sent.
var refusals = []error{sarama.ErrMessageSizeTooLarge, sarama.ErrMessageSetSizeTooLarge, sarama.ErrInvalidRecord}

// outages are write errors that concern the partition, the cluster or the producer, and not one record.
var outages = []error{
	sarama.ErrUnknownTopicOrPartition, sarama.ErrLeaderNotAvailable, sarama.ErrNotLeaderForPartition, sarama.ErrRequestTimedOut,
	sarama.ErrBrokerNotAvailable, sarama.ErrReplicaNotAvailable, sarama.ErrNetworkException, sarama.ErrNotEnoughReplicas,
	sarama.ErrNotEnoughReplicasAfterAppend, sarama.ErrTopicAuthorizationFailed, sarama.ErrClusterAuthorizationFailed,
	sarama.ErrSASLAuthenticationFailed, sarama.ErrOutOfOrderSequenceNumber, sarama.ErrDuplicateSequenceNumber,
	sarama.ErrInvalidProducerEpoch, sarama.ErrInvalidProducerIDMapping, sarama.ErrUnknownProducerID, sarama.ErrProducerFenced,
	sarama.ErrKafkaStorageError, sarama.ErrFencedLeaderEpoch, sarama.ErrUnknownLeaderEpoch, sarama.ErrStaleBrokerEpoch,
	sarama.ErrPreferredLeaderNotAvailable, sarama.ErrThrottlingQuotaExceeded,
}

// classify marks write errors that concern, or may concern, one record only.
func classify(err error) error {
	is := func(target error) bool { return errors.Is(err, target) }
	if slices.ContainsFunc(refusals, is) {
		return fmt.Errorf("%w: %w", driver.ErrRefused, err)
	}
	if _, tooLarge := errors.AsType[sarama.ConfigurationError](err); tooLarge { // uncompressed, too large for this client
		return fmt.Errorf("%w: %w", driver.ErrRefused, err)
	}
	_, answered := errors.AsType[sarama.KError](err)
	_, unsent := errors.AsType[sarama.PacketEncodingError](err)
	if unsent || answered && !slices.ContainsFunc(outages, is) {
		return fmt.Errorf("%w: %w", driver.ErrDoubtful, err)
	}
	return err
}

// Close ends the producer when all accepted records are answered.
func (p *Producer) Close() {
	p.mu.Lock()
	wasClosed := p.closed
	p.closed = true
	if !wasClosed {
		close(p.posted)
	}
	p.mu.Unlock()
	p.forwarder.Wait()
	if !wasClosed {
		p.async.AsyncClose()
	}
	p.answerReaders.Wait()
	if !wasClosed {
		_ = p.client.Close() // nothing is in flight
	}
	p.oversizeTurn <- struct{}{}
	defer func() { <-p.oversizeTurn }()
	if p.oversize != nil {
		p.oversize.Close()
	}
}

// oversizeProducer returns the producer for large or refused records. It waits for another caller that makes it until ctx ends.
func (p *Producer) oversizeProducer(ctx context.Context) (*Producer, error) {
	select {
	case p.oversizeTurn <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("kafka: no producer for large records yet: %w", ctx.Err())
	}
	defer func() { <-p.oversizeTurn }()
	if p.oversize == nil {
		oversize, err := p.newOversize()
		if err != nil {
			return nil, err
		}
		p.oversize = oversize
	}
	return p.oversize, nil
}
