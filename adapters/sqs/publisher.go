package sqs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/delayqueue"
	"github.com/redeliver/redeliver/internal/engine"
)

// Publisher writes messages; it is a Watermill publisher and safe for concurrent
// use.
type Publisher struct{ client *Client }

// Publish writes the messages to the queue of a topic and returns when SQS has each of them. The
// error names each message that was not written, as in "message 2 of 3", because it could not be
// prepared (by the marshaler, for example) or SQS refused it. The others are written nevertheless.
// In a FIFO queue, if SQS could not be reached for a message, the later ones of its group are not
// written either, because they would overtake it. Publish waits for at most Config.SendTimeout.
//
// A message with Watermill's delay metadata (package components/delay) waits in the queue. A
// subscriber of redeliver must read that queue, because SQS alone would deliver the message early.
// On a FIFO queue a delayed message is an error, because messages cannot wait there.
func (p *Publisher) Publish(topic string, messages ...*message.Message) error {
	ctx, cancel := context.WithTimeout(context.Background(), p.client.cfg.SendTimeout)
	defer cancel()
	q, err := p.client.publishQueue(ctx, topic)
	if err != nil {
		return err
	}
	errs := p.client.sender(q, publishLinger).sendAll(ctx, len(messages), func(i int) (outgoing, error) {
		return p.composeMessage(topic, q, messages[i])
	})
	for i, err := range errs {
		if err != nil {
			errs[i] = fmt.Errorf("message %d of %d: %w", i+1, len(messages), err)
		}
	}
	err = errors.Join(errs...)
	if isMissingQueue(err) {
		p.client.forgetTopic(topic)
	}
	return err
}

// composeMessage makes the outgoing message.
func (p *Publisher) composeMessage(topic string, q *queue, msg *message.Message) (o outgoing, err error) {
	cfg := &p.client.cfg
	fail := func(err error) (outgoing, error) {
		return outgoing{}, fmt.Errorf("sqs: message %s for %s: %w", msg.UUID, q.name, err)
	}
	o.body, o.attributes, err = cfg.Marshaler.Marshal(topic, msg)
	if err != nil {
		return outgoing{}, fmt.Errorf("sqs: marshaling message %s: %w", msg.UUID, err)
	}
	if n := o.size(); n > q.maxSize {
		return fail(fmt.Errorf("body and attributes are %d bytes, the queue takes %d", n, q.maxSize))
	}
	if n := len(o.attributes); n > maxAttributes {
		return fail(fmt.Errorf("it has %d attributes, SQS takes %d", n, maxAttributes))
	}
	if q.fifo {
		o.group, o.dedup = q.name, msg.UUID
		if cfg.DeduplicationID != nil {
			o.dedup = cfg.DeduplicationID(topic, msg)
		}
	}
	if cfg.GroupID != nil {
		if id := cfg.GroupID(topic, msg); q.fifo || isGroupID(id) {
			o.group = id
		}
	}
	now := time.Now().UTC()
	due, later, err := delayqueue.PublishDue(msg, now)
	switch {
	case err != nil:
		return fail(err)
	case !later:
		return o, nil
	case q.fifo:
		return fail(errors.New("a message for a FIFO queue cannot wait: SQS delays such a queue as a whole or not at all"))
	}
	return p.delayedCopy(q, msg, o, due, now, fail)
}

// delayedCopy makes a copy that waits, with its due time in StateAttribute.
func (p *Publisher) delayedCopy(q *queue, msg *message.Message, o outgoing, due, now time.Time, fail func(error) (outgoing, error)) (outgoing, error) {
	rec := record{native: types.Message{Body: aws.String(o.body), MessageAttributes: o.attributes}, keys: p.client.cfg.StateKeys}
	id := msg.UUID
	if uuid, ok := uuidOf(&rec.native); ok {
		id = uuid
	}
	st := redeliver.State{ID: engine.GivenID(id), Group: q.name, Origin: q.name, Due: due}
	rec.messageID = st.ID
	waiting, ok := rec.waitingCopy(&st, q.maxSize)
	if ok {
		waiting.moved, waiting.delay = true, delaySeconds(due.Sub(now))
		return waiting, nil
	}
	// There is no room for state. SQS alone can delay the message, for up to 15 minutes.
	o.delay = delaySeconds(due.Sub(now) + time.Second - 1)
	if due.Sub(now) > maxDelay {
		return fail(fmt.Errorf("body and attributes of %d bytes leave no room for redeliver's state in the %d that the queue takes, and SQS alone delays by %s at most", o.size(), q.maxSize, maxDelay))
	}
	return o, nil
}

// Close implements message.Publisher and does nothing, because a Router calls it while handlers
// still run and publish. Client.Close ends the publisher.
func (p *Publisher) Close() error { return nil }
