package sqs

import (
	"context"
	"errors"
	"strconv"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

const maxBatch = 10 // SQS's limit of entries in one request

// entryIDs are the ids of a request's entries.
var entryIDs = [maxBatch]string{"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"}

var errNotMentioned = errors.New("sqs: the answer does not mention the entry")

// hiding says for how long a received message is hidden from others.
type hiding struct {
	receipt string
	seconds int32 // 0 makes it visible
}

// sendEntries sends up to ten messages and returns the result of each. err concerns the whole request.
func (q *queue) sendEntries(ctx context.Context, api *sqs.Client, entries []types.SendMessageBatchRequestEntry) (results []error, err error) {
	out, err := api.SendMessageBatch(ctx, &sqs.SendMessageBatchInput{QueueUrl: &q.url, Entries: entries})
	return entryResults(len(entries), err, func(done func(id *string, err error)) {
		for _, f := range out.Failed { // first, because a reported failure wins
			done(f.Id, failedEntry(f))
		}
		for _, ok := range out.Successful {
			done(ok.Id, nil)
		}
	})
}

// deleteReceipts deletes up to ten messages and returns the result of each. err concerns the whole request.
func (q *queue) deleteReceipts(ctx context.Context, api *sqs.Client, receipts []string) (results []error, err error) {
	in := &sqs.DeleteMessageBatchInput{QueueUrl: &q.url, Entries: make([]types.DeleteMessageBatchRequestEntry, len(receipts))}
	for i := range receipts {
		in.Entries[i] = types.DeleteMessageBatchRequestEntry{Id: &entryIDs[i], ReceiptHandle: &receipts[i]}
	}
	out, err := api.DeleteMessageBatch(ctx, in)
	return entryResults(len(receipts), err, func(done func(id *string, err error)) {
		for _, f := range out.Failed {
			done(f.Id, failedEntry(f))
		}
		for _, ok := range out.Successful {
			done(ok.Id, nil)
		}
	})
}

// hideReceipts changes the visibility of up to ten messages and returns the result of each. err concerns the whole
// request.
func (q *queue) hideReceipts(ctx context.Context, api *sqs.Client, all []hiding) (results []error, err error) {
	in := &sqs.ChangeMessageVisibilityBatchInput{QueueUrl: &q.url, Entries: make([]types.ChangeMessageVisibilityBatchRequestEntry, len(all))}
	for i, h := range all {
		in.Entries[i] = types.ChangeMessageVisibilityBatchRequestEntry{Id: &entryIDs[i], ReceiptHandle: &h.receipt, VisibilityTimeout: h.seconds}
	}
	out, err := api.ChangeMessageVisibilityBatch(ctx, in)
	return entryResults(len(all), err, func(done func(id *string, err error)) {
		for _, f := range out.Failed {
			done(f.Id, failedEntry(f))
		}
		for _, ok := range out.Successful {
			done(ok.Id, nil)
		}
	})
}

// entryResults returns the results of the n entries of a request. err is the error of the whole request. The first
// result of an entry counts, and an entry that the answer does not mention has failed.
func entryResults(n int, err error, answer func(done func(id *string, err error))) ([]error, error) {
	results := make([]error, n)
	for i := range results {
		if results[i] = redactError(err); err == nil {
			results[i] = errNotMentioned
		}
	}
	if err != nil {
		return results, err
	}
	answer(func(id *string, err error) {
		if i, bad := strconv.Atoi(aws.ToString(id)); bad == nil && i >= 0 && i < n && errors.Is(results[i], errNotMentioned) {
			results[i] = err
		}
	})
	return results, nil
}

// realErrors returns the errors of a request: err, or those of its entries. It ignores entries with a stale receipt,
// because the message is deleted or another process has it.
func realErrors(results []error, err error) error {
	if err != nil {
		return err
	}
	var errs []error
	for _, err := range results {
		if err != nil && !isStaleReceipt(err) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
