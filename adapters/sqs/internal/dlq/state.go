package dlq

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/redeliver/redeliver/adapters/sqs/internal/api"
	"github.com/redeliver/redeliver/adapters/sqs/internal/wire"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/deadletter/driver"
	"github.com/redeliver/redeliver/internal/check"
	"github.com/redeliver/redeliver/internal/rules"
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
func (q *Queue) Load(ctx context.Context) (driver.State, error) {
	snap, _, err := q.updateState(ctx, nil)
	return snap.State(), err
}

// Append implements [driver.DLQ].
func (q *Queue) Append(ctx context.Context, entries ...driver.Entry) error {
	_, _, err := q.updateState(ctx, entries)
	return err
}

// updateState reads the state and applies entries. at is the time of the last write by SQS's clock, or zero if there
// is no state yet.
func (q *Queue) updateState(ctx context.Context, entries []driver.Entry) (snap driver.Snapshot, at time.Time, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, q.SendTimeout, fmt.Errorf("not within %s", q.SendTimeout))
	defer cancel()
	select {
	case q.semaphore <- struct{}{}:
		defer func() { <-q.semaphore }()
	case <-ctx.Done():
		return snap, at, q.stateInUse(context.Cause(ctx))
	}
	isNew, err := q.provisionState(ctx, len(entries) > 0)
	if err != nil || !q.state.Exists {
		return snap, at, err
	}
	if ctx.Err() != nil { // both cases of the select may have been ready
		return snap, at, q.stateInUse(context.Cause(ctx))
	}
	graceCtx, end := wait.Longer(ctx, stateGrace)
	defer end()
	found, err := q.receiveState(ctx, graceCtx, isNew, &snap)
	if err != nil {
		return snap, at, err
	}
	for _, m := range found {
		if t := wire.SentAt(&m); t.After(at) {
			at = t
		}
	}
	if changed := snap.Apply(entries); !changed && len(found) <= 1 {
		return snap, at, q.returnState(graceCtx, found)
	}
	body, err := snap.Bytes()
	if err == nil && len(body) > maxStateSize {
		err = fmt.Errorf("sqs: %w: the state of %s is %d bytes, more than a message holds: cancel tasks that should not continue, or use a filter without a long list", deadletter.ErrStateFull, q.DLQ.Name, len(body))
	}
	if err != nil {
		return snap, at, errors.Join(err, q.returnState(graceCtx, found))
	}
	return snap, at, q.writeState(graceCtx, found, string(body))
}

func (q *Queue) stateInUse(err error) error {
	return fmt.Errorf("sqs: the state of %s: other processes hold it: %w", q.DLQ.Name, err)
}

// receiveState receives the state. While others hold it, receiveState waits until ctx ends. Its requests end with
// graceCtx, so that a started receive is not cut short.
func (q *Queue) receiveState(ctx, graceCtx context.Context, isNew bool, snap *driver.Snapshot) (found []types.Message, err error) {
	for tries := 0; ; tries++ {
		found, err = q.state.Receive(graceCtx, api.MaxBatch, 0, stateVisibility)
		if err != nil {
			return nil, err
		}
		if len(found) > 0 {
			break
		}
		if isNew {
			return nil, nil
		}
		if tries%5 == 1 { // not at each try, because others often hold it only briefly
			if n, err := q.state.Count(graceCtx); err != nil || n.All() == 0 {
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
			return nil, errors.Join(fmt.Errorf("sqs: queue %s: %w", q.state.Name, err), q.returnState(graceCtx, found))
		}
		snap.Merge(one)
	}
	return found, nil
}

// returnState makes a state visible again after a read.
func (q *Queue) returnState(ctx context.Context, found []types.Message) error {
	all := make([]api.Hiding, len(found))
	for i, m := range found {
		all[i].Receipt = aws.ToString(m.ReceiptHandle)
	}
	return changeVisibility(ctx, q.state, all)
}

// writeState writes the new state and then deletes the old messages.
func (q *Queue) writeState(ctx context.Context, found []types.Message, body string) error {
	results, _ := q.state.SendEntries(ctx, []types.SendMessageBatchRequestEntry{{
		MessageBody: &body, MessageGroupId: aws.String(stateGroup), MessageDeduplicationId: aws.String(rand.Text()),
	}})
	if results[0] != nil {
		return api.ErrorOf("writing", q.state.Name, results[0])
	}
	receipts := make([]string, len(found))
	for i, m := range found {
		receipts[i] = aws.ToString(m.ReceiptHandle)
	}
	if len(receipts) == 0 {
		return nil
	}
	if err := realErrors(q.state.DeleteReceipts(ctx, receipts)); err != nil {
		return api.ErrorOf("deleting from", q.state.Name, err)
	}
	return nil
}

// StateName returns the name of the queue with the state of a DLQ.
func StateName(dlq string) string {
	return api.SiblingName(strings.TrimSuffix(dlq, api.FIFOSuffix)+api.FIFOSuffix, stateSuffix)
}

// StateAttributes returns the attributes of the state's queue. It is encrypted as its DLQ is.
func StateAttributes(dlq map[string]string) map[string]string {
	attributes := map[string]string{
		"FifoQueue": "true", "MessageRetentionPeriod": strconv.Itoa(int(api.MaxRetention / time.Second)),
	}
	for _, name := range []string{"KmsMasterKeyId", "KmsDataKeyReusePeriodSeconds"} {
		if v := dlq[name]; v != "" {
			attributes[name] = v
		}
	}
	return attributes
}

// provisionState looks for the state's queue. It creates a missing queue if create is set, and reports whether it did.
// The caller holds the semaphore.
func (q *Queue) provisionState(ctx context.Context, create bool) (isNew bool, err error) {
	if q.state.Exists {
		return false, nil
	}
	if err := q.state.Describe(ctx, "", 0); err != nil || q.state.Exists || !create {
		return false, err
	}
	attributes := StateAttributes(q.DLQ.Attributes)
	if q.NoProvisioning {
		var ps check.Problems
		rules.AddMissing(&ps, "queue", q.state.Name, "Create it with the attributes "+api.AttributesText(attributes))
		return false, fmt.Errorf("sqs: %w", ps.Err())
	}
	url, _, err := q.state.Create(ctx, attributes, api.IsNeeded)
	if err != nil && !api.Exists(err) { // with other attributes, because another process was faster
		return false, err
	}
	q.state.URL = url
	return err == nil, q.state.DescribeNew(ctx, 0)
}
