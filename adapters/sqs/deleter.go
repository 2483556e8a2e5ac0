package sqs

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

const (
	// deleteLinger is how long a settled message waits for others to be deleted
	// with it: what a killed process has settled meanwhile runs again.
	deleteLinger  = 20 * time.Millisecond
	deleteWorkers = 8

	firstRepeat   = 100 * time.Millisecond
	longestRepeat = 10 * time.Second
)

// deleter deletes settled messages of one queue. What fails is tried again for as
// long as the message is ours; the lane keeps it hidden meanwhile.
type deleter struct {
	api     *sqs.Client
	queue   *queue
	timeout time.Duration
	told    func(*deletion) // the message is deleted, or is no longer ours to delete
	batches *batcher[*deletion]
}

// deletion is a settled message.
type deletion struct {
	t       *ticket
	receipt string // of the last try
	tries   int
	err     error // of the last try
}

func newDeleter(api *sqs.Client, q *queue, timeout time.Duration, told func(*deletion)) *deleter {
	d := &deleter{api: api, queue: q, timeout: timeout, told: told}
	d.batches = newBatcher(deleteLinger, deleteWorkers, 0, nil, d.write)
	return d
}

func (d *deleter) add(t *ticket) { d.batches.add(&t.deletion) }

func (d *deleter) write(batch []*deletion) {
	ctx, cancel := context.WithTimeout(context.Background(), d.timeout)
	defer cancel()
	in := &sqs.DeleteMessageBatchInput{QueueUrl: &d.queue.url, Entries: make([]types.DeleteMessageBatchRequestEntry, len(batch))}
	for i, del := range batch {
		del.receipt = del.t.handle()
		in.Entries[i] = types.DeleteMessageBatchRequestEntry{Id: &entryIDs[i], ReceiptHandle: &del.receipt}
	}
	out, err := d.api.DeleteMessageBatch(ctx, in)
	if err == nil {
		err = errUntold
	}
	for _, del := range batch {
		del.err = err
	}
	if out != nil {
		for _, ok := range out.Successful {
			if i, bad := strconv.Atoi(aws.ToString(ok.Id)); bad == nil && i >= 0 && i < len(batch) {
				batch[i].err = nil
			}
		}
		for _, f := range out.Failed {
			if i, bad := strconv.Atoi(aws.ToString(f.Id)); bad == nil && i >= 0 && i < len(batch) {
				batch[i].err = failedEntry(f)
			}
		}
	}
	for _, del := range batch {
		d.outcome(del)
	}
}

var errUntold = errors.New("the answer does not mention it")

// outcome tells of a deletion that is over, or tries again later. A receipt that
// is of no use says that the message is deleted, or that another has it.
func (d *deleter) outcome(del *deletion) {
	if del.err == nil || stale(del.err) || noQueue(del.err) || del.t.Err() != nil {
		d.told(del)
		return
	}
	pause := min(firstRepeat<<min(del.tries, 10), longestRepeat)
	del.tries++
	time.AfterFunc(pause, func() { d.batches.add(del) })
}
