package sqs

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/deadletter/driver"
	"github.com/redeliver/redeliver/internal/wait"
)

// The state of a DLQ is one message in one group of its own FIFO queue. While a process has received it, SQS delivers
// no other message of that group, so the receive is also the lock for a change. A process that dies between writing
// the new state and deleting the old one leaves two; the next reader merges them.
const (
	stateSuffix     = "-state"
	stateGroup      = "state"
	stateVisibility = 10 * time.Second // how long a process that dies with the state blocks others
	maxStateSize    = 240 << 10        // bytes
	// stateGrace bounds how long a started change continues after its caller's ctx has ended. A state that was received
	// and not returned is hidden from all for stateVisibility.
	stateGrace = 5 * time.Second
)

// Load implements [driver.DLQ].
func (q *deadLetters) Load(ctx context.Context) (driver.State, error) {
	snap, _, err := q.updateState(ctx, nil)
	return snap.State(), err
}

// Append implements [driver.DLQ].
func (q *deadLetters) Append(ctx context.Context, entries ...driver.Entry) error {
	_, _, err := q.updateState(ctx, entries)
	return err
}

// updateState reads the state and applies entries. at is the time of the last write by SQS's clock, or zero if there
// is no state yet.
func (q *deadLetters) updateState(ctx context.Context, entries []driver.Entry) (snap driver.Snapshot, at time.Time, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, q.client.cfg.SendTimeout, fmt.Errorf("not within %s", q.client.cfg.SendTimeout))
	defer cancel()
	select {
	case q.stateSemaphore <- struct{}{}:
		defer func() { <-q.stateSemaphore }()
	case <-ctx.Done():
		return snap, at, q.stateInUse(context.Cause(ctx))
	}
	state, isNew, err := q.provisionState(ctx, len(entries) > 0)
	if err != nil || state == nil {
		return snap, at, err
	}
	if ctx.Err() != nil { // both cases of the select may have been ready
		return snap, at, q.stateInUse(context.Cause(ctx))
	}
	graceCtx, end := withGrace(ctx, stateGrace)
	defer end()
	found, err := q.receiveState(ctx, graceCtx, state, isNew, &snap)
	if err != nil {
		return snap, at, err
	}
	for _, m := range found {
		if t := sentAt(&m); t.After(at) {
			at = t
		}
	}
	if changed := snap.Apply(entries); !changed && len(found) <= 1 {
		return snap, at, q.returnState(graceCtx, state, found)
	}
	body, err := snap.Bytes()
	if err == nil && len(body) > maxStateSize {
		err = fmt.Errorf("sqs: %w: the state of %s is %d bytes, more than a message holds: cancel tasks that are not to go on, or filter by something shorter than a list", driver.ErrStateFull, q.info.DLQ, len(body))
	}
	if err != nil {
		return snap, at, errors.Join(err, q.returnState(graceCtx, state, found))
	}
	return snap, at, q.writeState(graceCtx, state, found, string(body))
}

// withGrace returns a context that ends grace later than ctx.
func withGrace(ctx context.Context, grace time.Duration) (context.Context, context.CancelFunc) {
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(grace, cancel) })
	return longer, func() { stop(); cancel() }
}

func (q *deadLetters) stateInUse(err error) error {
	return fmt.Errorf("sqs: the state of %s: other processes hold it: %w", q.info.DLQ, err)
}

// receiveState receives the state. While others hold it, receiveState waits until ctx ends. Its requests end with
// graceCtx, so that a started receive is not cut short.
func (q *deadLetters) receiveState(ctx, graceCtx context.Context, state *queue, isNew bool, snap *driver.Snapshot) (found []types.Message, err error) {
	for tries := 0; ; tries++ {
		out, err := q.client.api.ReceiveMessage(graceCtx, &sqs.ReceiveMessageInput{
			QueueUrl: &state.url, MaxNumberOfMessages: maxBatch, VisibilityTimeout: int32(stateVisibility / time.Second),
			MessageSystemAttributeNames: []types.MessageSystemAttributeName{types.MessageSystemAttributeNameSentTimestamp},
		})
		if err != nil {
			return nil, errorOf("reading", q.stateName, err)
		}
		if len(out.Messages) > 0 {
			found = out.Messages
			break
		}
		if isNew {
			return nil, nil
		}
		if tries%5 == 1 { // not at each try, because others often hold it only briefly
			if _, n, err := q.client.countMessages(graceCtx, state); err != nil || n == 0 {
				return nil, err
			}
		}
		if wait.For(ctx, min(time.Duration(tries+1)*20*time.Millisecond, 200*time.Millisecond)) != nil {
			return nil, q.stateInUse(context.Cause(ctx))
		}
	}
	for _, m := range found {
		one, err := driver.ReadSnapshot([]byte(aws.ToString(m.Body)))
		if err != nil {
			return nil, errors.Join(fmt.Errorf("sqs: queue %s: %w", q.stateName, err), q.returnState(graceCtx, state, found))
		}
		snap.Merge(one)
	}
	return found, nil
}

// returnState makes a state visible again after a read.
func (q *deadLetters) returnState(ctx context.Context, state *queue, found []types.Message) error {
	all := make([]hiding, len(found))
	for i, m := range found {
		all[i].receipt = aws.ToString(m.ReceiptHandle)
	}
	if len(all) == 0 {
		return nil
	}
	if err := realErrors(state.hideReceipts(ctx, q.client.api, all)); err != nil {
		return errorOf("handing back", q.stateName, err)
	}
	return nil
}

// writeState writes the new state and then deletes the old messages.
func (q *deadLetters) writeState(ctx context.Context, state *queue, found []types.Message, body string) error {
	results, _ := state.sendEntries(ctx, q.client.api, []types.SendMessageBatchRequestEntry{{
		Id: &entryIDs[0], MessageBody: &body, MessageGroupId: aws.String(stateGroup), MessageDeduplicationId: aws.String(rand.Text()),
	}})
	if results[0] != nil {
		return errorOf("writing", q.stateName, results[0])
	}
	receipts := make([]string, len(found))
	for i, m := range found {
		receipts[i] = aws.ToString(m.ReceiptHandle)
	}
	if len(receipts) == 0 {
		return nil
	}
	if err := realErrors(state.deleteReceipts(ctx, q.client.api, receipts)); err != nil {
		return errorOf("deleting from", q.stateName, err)
	}
	return nil
}

// stateName returns the name of the state's queue.
func stateName(dlq string) string {
	return siblingName(strings.TrimSuffix(dlq, fifoSuffix)+fifoSuffix, stateSuffix)
}

// stateAttributes returns the attributes of the state's queue. It is encrypted as its DLQ is.
func stateAttributes(dlq map[string]string) map[string]string {
	attributes := map[string]string{
		"FifoQueue": "true", "MessageRetentionPeriod": strconv.Itoa(int(maxRetention / time.Second)),
	}
	for _, name := range []string{"KmsMasterKeyId", "KmsDataKeyReusePeriodSeconds"} {
		if v := dlq[name]; v != "" {
			attributes[name] = v
		}
	}
	return attributes
}

// provisionState returns the state's queue. It creates a missing queue if create is set, and reports whether it did.
func (q *deadLetters) provisionState(ctx context.Context, create bool) (state *queue, isNew bool, err error) {
	q.mu.Lock()
	state = q.state
	q.mu.Unlock()
	if state != nil {
		return state, false, nil
	}
	state, err = q.client.findQueue(ctx, address{name: q.stateName})
	if err != nil || !state.exists && !create {
		return nil, false, err
	}
	if isNew = !state.exists; isNew {
		attributes := stateAttributes(q.dlq.attributes)
		if q.client.cfg.NoProvisioning {
			var ps redeliver.Problems
			ps.Add("queue "+q.stateName, "missing", "must exist: NoProvisioning is set. Create it with the attributes "+textOf(attributes))
			return nil, false, fmt.Errorf("sqs: %w", ps.Err())
		}
		out, err := q.client.api.CreateQueue(ctx, &sqs.CreateQueueInput{QueueName: &q.stateName, Attributes: attributes})
		if err != nil {
			return nil, false, errorOf("creating queue", q.stateName, err)
		}
		state.url = aws.ToString(out.QueueUrl)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.state = state
	return state, isNew, nil
}
