package pubsub

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/driver"
	"github.com/redeliver/redeliver/internal/check"
	"github.com/redeliver/redeliver/internal/limits"
)

// checkTimeout is how long Check may take if ctx has no deadline.
const checkTimeout = time.Minute

// Check tests on a topic of its own whether Publisher and Subscriber can keep waiting messages, and returns all
// problems in one redeliver.ConfigError, or nil. A Pub/Sub with problems loses messages, or duplicates them. Check tests:
//
//   - Messages that are published before the first subscription must be delivered,
//     so that a service that starts finds waiting messages. The default of
//     watermill-kafka fails here.
//   - UUID, payload and metadata must arrive unchanged, with a metadata entry as long as
//     redeliver's. Bytes that are not text may be refused, but not changed.
//   - Two messages with one UUID must arrive as two, because a retry keeps its UUID.
//   - A nacked message must come again.
//   - Only one of two Subscribes may get a message, because they are one group.
//
// It cannot check Config.Confirms or Config.MaxUnacked. It ends when ctx ends, or after a minute if ctx has no deadline. If
// the broker delays a nacked message, Check takes that time, too. The topic, "redeliver-check-" and a random suffix, is
// not deleted; nothing reads it again. Call Check in a test, or when you deploy a configuration.
func Check(ctx context.Context, cfg Config) error {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return fmt.Errorf("pubsub: %w", err)
	}
	if _, ok := ctx.Deadline(); !ok {
		limited, cancel := context.WithTimeout(ctx, checkTimeout)
		defer cancel()
		ctx = limited
	}
	c := &checkRun{cfg: &cfg, topic: "redeliver-check-" + strings.ToLower(rand.Text())}
	if err := c.run(ctx); err != nil {
		return fmt.Errorf("pubsub: checking on the topic %s: %w", c.topic, err)
	}
	return nil
}

// checkRun is the state of one call of Check.
type checkRun struct {
	cfg   *Config
	topic string
	ps    check.Problems
}

// received is a message that one of the Subscribes delivered.
type received struct {
	*message.Message
	by int
}

// errMissing is the error of a wait for a message that did not come.
var errMissing = errors.New("has not come")

func (c *checkRun) run(ctx context.Context) error {
	if init, ok := c.cfg.Subscriber.(message.SubscribeInitializer); ok && !c.cfg.NoProvisioning {
		if err := init.SubscribeInitialize(c.topic); err != nil {
			return fmt.Errorf("initializing: %w", err)
		}
	}
	first := c.probe("one UUID")
	second := first.Copy()
	second.Metadata["which"] = "second"
	for _, msg := range []*message.Message{first, second} {
		if err := c.publish(ctx, msg); err != nil {
			return err
		}
	}
	in, cancel, err := c.subscribe(ctx)
	if err != nil {
		return err
	}
	defer cancel()
	got, err := c.receive(ctx, in)
	if err != nil {
		c.ps.Add("Subscriber", "losing what was published before it subscribed", "must deliver it: a service that starts would not find waiting messages. For watermill-kafka set Consumer.Offsets.Initial to OffsetOldest, for a gochannel set Persistent")
		return c.ps.Err()
	}
	c.compareMessages(got.Message, first, second)
	// The nacked message must come again. Both are acked then, in any order.
	nacked := got.Metadata["which"]
	got.Nack()
	again := make(map[string]int)
	for len(again) < 2 {
		got, err = c.receive(ctx, in)
		if err != nil {
			break
		}
		again[got.Metadata["which"]]++
		got.Ack()
	}
	for _, which := range []string{"first", "second"} {
		switch {
		case again[which] > 0:
		case which == nacked:
			c.ps.Add("Subscriber", "losing a nacked message", "must deliver it again")
		default:
			c.ps.Add("Publisher", "dropping one of two messages with one UUID", "must deliver both: a retry keeps its UUID. Turn deduplication by message id off")
		}
	}
	if len(c.ps) > 0 {
		return c.ps.Err()
	}
	if err := c.checkGroup(ctx, in); err != nil {
		return err
	}
	if len(c.ps) == 0 {
		c.checkBinaryPayload(ctx, in)
	}
	return c.ps.Err()
}

// checkBinaryPayload publishes a payload that is not text. A Publisher that refuses it cannot damage it.
func (c *checkRun) checkBinaryPayload(ctx context.Context, in <-chan received) {
	binary := c.probe(rand.Text())
	binary.Payload = make([]byte, 256)
	for i := range binary.Payload {
		binary.Payload[i] = byte(i)
	}
	if c.publish(ctx, binary) != nil {
		return
	}
	for {
		got, err := c.receive(ctx, in)
		if err != nil {
			c.ps.Add("Subscriber", "losing a payload that is not text", "must deliver it, unless the Publisher refuses it")
			return
		}
		got.Ack()
		if got.UUID == binary.UUID { // not a copy of an earlier message
			c.compareMessages(got.Message, binary, binary)
			return
		}
	}
}

// checkGroup checks that only one of two Subscribes gets each message. It ignores copies of earlier messages.
func (c *checkRun) checkGroup(ctx context.Context, in <-chan received) error {
	const n = 10
	sent := make(map[string]bool, n)
	for range n {
		uuid := rand.Text()
		sent[uuid] = true
		if err := c.publish(ctx, c.probe(uuid)); err != nil {
			return err
		}
	}
	by := make(map[string]map[int]bool) // by UUID: the Subscribes that got the message
	for more := ctx; ; {
		got, err := c.receive(more, in)
		if err != nil {
			break
		}
		got.Ack()
		if !sent[got.UUID] {
			continue
		}
		if by[got.UUID] == nil {
			by[got.UUID] = make(map[int]bool)
		}
		by[got.UUID][got.by] = true
		if len(by) == n && more == ctx { // wait briefly for a copy for the other Subscribe
			short, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
			defer cancel()
			more = short
		}
	}
	twice := 0
	for _, who := range by {
		if len(who) > 1 {
			twice++
		}
	}
	switch {
	case len(by) < n:
		c.ps.Add("Subscriber", fmt.Sprintf("delivering %d of %d messages", len(by), n), "must deliver each to one of two Subscribes")
	case twice > n/2: // a rebalance may duplicate some
		c.ps.Add("Subscriber", fmt.Sprintf("delivering %d of %d messages to both of two Subscribes", twice, n), "must share a consumer group or a queue: otherwise each process runs every retry")
	}
	return nil
}

// probe returns a message with content that a Pub/Sub may not be able to carry.
func (c *checkRun) probe(uuid string) *message.Message {
	msg := message.NewMessage(uuid, []byte("grüße\n<&> \"\""))
	st := carried{headers: []driver.Header{{Name: redeliver.HeaderError, Value: strings.Repeat("ü\n", limits.MaxErrorText/3)}}}
	msg.Metadata[StateKey], _ = st.pack() // text never fails
	msg.Metadata["which"] = "first"
	return msg
}

func (c *checkRun) publish(ctx context.Context, msg *message.Message) error {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.SendTimeout)
	defer cancel()
	return publishWithin(ctx, c.cfg.Publisher, c.topic, msg)
}

// subscribe makes two Subscribes.
func (c *checkRun) subscribe(ctx context.Context) (<-chan received, func(), error) {
	all := make(chan received)
	ctx, cancel := context.WithCancel(ctx)
	for by := range 2 {
		in, err := c.cfg.Subscriber.Subscribe(ctx, c.topic)
		if err != nil {
			cancel()
			return nil, nil, fmt.Errorf("subscribing: %w", err)
		}
		go func() {
			for msg := range in {
				select {
				case all <- received{msg, by}:
				case <-ctx.Done():
					msg.Nack()
				}
			}
		}()
	}
	return all, cancel, nil
}

func (c *checkRun) receive(ctx context.Context, in <-chan received) (received, error) {
	select {
	case msg := <-in:
		return msg, nil
	case <-ctx.Done():
		return received{}, errMissing
	}
}

// compareMessages adds a problem for each part of a message that changed on its way.
func (c *checkRun) compareMessages(came, first, second *message.Message) {
	want := first
	if came.Metadata["which"] == second.Metadata["which"] {
		want = second
	}
	switch {
	case came.UUID != want.UUID:
		c.ps.Add("Publisher or Subscriber", fmt.Sprintf("changing the UUID %q to %q", want.UUID, came.UUID), "must keep it: it is the id of a message")
	case !bytes.Equal(came.Payload, want.Payload):
		c.ps.Add("Publisher or Subscriber", fmt.Sprintf("changing a payload of %d bytes, now %d", len(want.Payload), len(came.Payload)), "must not change it")
	}
	if !maps.Equal(came.Metadata, want.Metadata) {
		c.ps.Add("Publisher or Subscriber", fmt.Sprintf("changing metadata to %.80q", came.Metadata), fmt.Sprintf("must be as published: %.80q", want.Metadata))
	}
}
