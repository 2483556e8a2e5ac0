package api

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

// MaxBatch is SQS's limit of entries in one request.
const MaxBatch = 10

// entryIDs are the ids of a request's entries.
var entryIDs = [MaxBatch]string{"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"}

var errNotMentioned = errors.New("sqs: the answer does not mention the entry")

// Hiding says for how long a received message is hidden from others.
type Hiding struct {
	Receipt string
	Seconds int32 // 0 makes it visible
}

// Receive receives up to maxMessages, with all attributes, and hides them for visibility. It waits for messages for up
// to wait.
func (q *Queue) Receive(ctx context.Context, maxMessages int, wait, visibility time.Duration) ([]types.Message, error) {
	out, err := q.API.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{
		QueueUrl: &q.URL, MaxNumberOfMessages: int32(maxMessages), WaitTimeSeconds: int32(wait / time.Second), VisibilityTimeout: int32(visibility / time.Second),
		MessageAttributeNames:       []string{"All"},
		MessageSystemAttributeNames: []types.MessageSystemAttributeName{types.MessageSystemAttributeNameAll},
	})
	if err != nil {
		err = ErrorOf("receiving from", q.Name, err)
		q.Report(ctx, "ReceiveMessage", err)
		return nil, err
	}
	q.Report(ctx, "ReceiveMessage", nil)
	return out.Messages, nil
}

// SendEntries sends up to ten messages, whose ids are set, and returns the result of each. err concerns the whole
// request.
func (q *Queue) SendEntries(ctx context.Context, entries []types.SendMessageBatchRequestEntry) (results []error, err error) {
	for i := range entries {
		entries[i].Id = &entryIDs[i]
	}
	out, err := q.API.SendMessageBatch(ctx, &sqs.SendMessageBatchInput{QueueUrl: &q.URL, Entries: entries})
	if err != nil {
		results, err = repeated(err, len(entries))
	} else {
		results = entryResults(len(entries), out.Failed, out.Successful, func(ok types.SendMessageBatchResultEntry) *string { return ok.Id })
	}
	q.reportEntries(ctx, "SendMessageBatch", "sending to", false, results)
	return results, err
}

// DeleteReceipts deletes up to ten messages and returns the result of each. err concerns the whole request.
func (q *Queue) DeleteReceipts(ctx context.Context, receipts []string) (results []error, err error) {
	in := &sqs.DeleteMessageBatchInput{QueueUrl: &q.URL, Entries: make([]types.DeleteMessageBatchRequestEntry, len(receipts))}
	for i := range receipts {
		in.Entries[i] = types.DeleteMessageBatchRequestEntry{Id: &entryIDs[i], ReceiptHandle: &receipts[i]}
	}
	out, err := q.API.DeleteMessageBatch(ctx, in)
	if err != nil {
		results, err = repeated(err, len(receipts))
	} else {
		results = entryResults(len(receipts), out.Failed, out.Successful, func(ok types.DeleteMessageBatchResultEntry) *string { return ok.Id })
	}
	q.reportEntries(ctx, "DeleteMessageBatch", "deleting from", receipts[0] == probeReceipt, results)
	return results, err
}

// HideReceipts changes the visibility of up to ten messages and returns the result of each. err concerns the whole
// request.
func (q *Queue) HideReceipts(ctx context.Context, all []Hiding) (results []error, err error) {
	in := &sqs.ChangeMessageVisibilityBatchInput{QueueUrl: &q.URL, Entries: make([]types.ChangeMessageVisibilityBatchRequestEntry, len(all))}
	for i, h := range all {
		in.Entries[i] = types.ChangeMessageVisibilityBatchRequestEntry{Id: &entryIDs[i], ReceiptHandle: &h.Receipt, VisibilityTimeout: h.Seconds}
	}
	out, err := q.API.ChangeMessageVisibilityBatch(ctx, in)
	if err != nil {
		results, err = repeated(err, len(all))
	} else {
		results = entryResults(len(all), out.Failed, out.Successful, func(ok types.ChangeMessageVisibilityBatchResultEntry) *string { return ok.Id })
	}
	q.reportEntries(ctx, "ChangeMessageVisibilityBatch", "changing the visibility of messages of", all[0].Receipt == probeReceipt, results)
	return results, err
}

// probeReceipt is a receipt that no message has.
const probeReceipt = "redeliver-probe"

// Probe sends a request that changes nothing, to learn whether an action is allowed: SQS checks the right before the
// receipt. OnResult gets the result. It does nothing for an action that always concerns a message.
func (q *Queue) Probe(ctx context.Context, action string) {
	switch action {
	case "DeleteMessageBatch":
		_, _ = q.DeleteReceipts(ctx, []string{probeReceipt})
	case "ChangeMessageVisibilityBatch":
		_, _ = q.HideReceipts(ctx, []Hiding{{Receipt: probeReceipt}})
	case "GetQueueAttributes":
		_, _ = q.ReadAttributes(ctx, types.QueueAttributeNameQueueArn)
	default:
	}
}

// Report passes the result of a request to OnResult. It omits requests that the caller has cancelled.
func (q *Queue) Report(ctx context.Context, action string, err error) {
	if q.OnResult != nil && (err == nil || !errors.Is(ctx.Err(), context.Canceled)) {
		q.OnResult(action, err)
	}
}

// reportEntries reports the result of a batch. It has failed if all of its entries have, for a reason that does not
// concern the message. A probe has not failed if the server has read its receipt: servers refuse it with different codes.
func (q *Queue) reportEntries(ctx context.Context, action, what string, isProbe bool, results []error) {
	if q.OnResult == nil {
		return
	}
	for _, err := range results {
		if err == nil || IsStaleReceipt(err) || isProbe && isAnswer(err) || IsMissingQueue(err) && action != "SendMessageBatch" || action == "SendMessageBatch" && mayConcernOneEntry(err) {
			q.Report(ctx, action, nil)
			return
		}
	}
	q.Report(ctx, action, ErrorOf(what, q.Name, results[0]))
}

// repeated returns the error of a whole request, also as the result of each of its n entries.
func repeated(err error, n int) (results []error, _ error) {
	return slices.Repeat([]error{RedactError(err)}, n), err
}

// entryResults returns the results of the n entries of a request. A reported failure wins, and an entry that the answer
// does not mention has failed.
func entryResults[S any](n int, failed []types.BatchResultErrorEntry, successful []S, idOf func(S) *string) []error {
	results := slices.Repeat([]error{errNotMentioned}, n)
	set := func(id *string, err error) {
		if i, bad := strconv.Atoi(aws.ToString(id)); bad == nil && i >= 0 && i < n {
			results[i] = err
		}
	}
	for _, s := range successful {
		set(idOf(s), nil)
	}
	for _, f := range failed {
		set(f.Id, failedEntry(f))
	}
	return results
}
