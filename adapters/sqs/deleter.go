package sqs

import (
	"context"
	"time"

	"github.com/redeliver/redeliver/adapters/sqs/internal/api"
	"github.com/redeliver/redeliver/internal/engine"
)

const (
	// deleteLinger is how long a settled message waits for others to share a request. If the process is killed in
	// that time, the message runs again.
	deleteLinger  = 20 * time.Millisecond
	deleteWorkers = 8

	minRetryPause = 100 * time.Millisecond
	maxRetryPause = 10 * time.Second
)

// deleter deletes settled messages of one queue. It repeats failed deletions until ended is closed; heartbeats keep
// the messages hidden meanwhile.
type deleter struct {
	queue     *api.Queue
	timeout   time.Duration
	ended     <-chan struct{}
	onDeleted func(*delivery) // called when the message is deleted, or is no longer ours to delete
	batches   *api.Batcher[*delivery]
}

// deletion is the progress of deleting a message.
type deletion struct {
	receipt string // of the last try
	tries   int
}

func newDeleter(q *api.Queue, timeout time.Duration, ended <-chan struct{}, done func(*delivery)) *deleter {
	d := &deleter{queue: q, timeout: timeout, ended: ended, onDeleted: done}
	d.batches = api.NewBatcher(deleteLinger, deleteWorkers, 0, nil, d.deleteBatch)
	return d
}

func (d *deleter) add(m *delivery) { d.batches.Add(m) }

func (d *deleter) deleteBatch(batch []*delivery) {
	ctx, cancel := context.WithTimeout(context.Background(), d.timeout)
	defer cancel()
	receipts := make([]string, len(batch))
	for i, m := range batch {
		receipts[i] = m.receiptHandle()
		m.deletion.receipt = receipts[i]
	}
	results, _ := d.queue.DeleteReceipts(ctx, receipts)
	for i, m := range batch {
		d.finishDeletion(m, results[i])
	}
}

// finishDeletion handles the result of a deletion, or schedules another try. A stale receipt means that the message is
// deleted or that another process has it.
func (d *deleter) finishDeletion(m *delivery, err error) {
	select {
	case <-d.ended:
		d.onDeleted(m)
		return
	default:
	}
	switch {
	case err == nil || api.IsStaleReceipt(err) || api.IsMissingQueue(err):
		if m.deletion.receipt == m.receiptHandle() {
			if err == nil {
				m.source.lostSuspects.Forget(m.id)
			}
			m.source.endNote(m, err)
			if m.deletion.tries > 0 {
				m.source.layout.operations.Succeeded(d.deletionOf(m))
			}
			d.onDeleted(m)
			return
		}
		// The message came again during the deletion. SQS may have reported success without an effect, because the
		// receipt was not the latest.
		d.batches.Add(m)
	default:
		pause := min(minRetryPause<<min(m.deletion.tries, 10), maxRetryPause)
		m.deletion.tries++
		// If no message can be deleted, the requests themselves say so. Until they do, the row of failures of this message
		// goes on: a request with this message alone fails, and the next one with others succeeds.
		if all := &m.source.layout.operations; !all.Reported(engine.Operation{Name: actionDelete, Place: d.queue.Name}) {
			all.Failed(d.deletionOf(m), api.ErrorOf("deleting from", d.queue.Name, err), false, false)
		}
		time.AfterFunc(pause, func() { d.batches.Add(m) })
	}
}

// deletionOf returns the deletion of one message as an operation.
func (d *deleter) deletionOf(m *delivery) engine.Operation {
	return engine.Operation{Name: actionDelete, Place: d.queue.Name + ", message " + m.id}
}
