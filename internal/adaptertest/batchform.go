package adaptertest

import (
	"context"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/mq"
)

// Batch is a batch of Watermill messages or of records.
type Batch struct {
	Messages      []BatchMessage
	AckAll        func() bool
	RetryAll      func() bool
	RetryAllAfter func(time.Duration) bool
}

// BatchFunc handles a batch in any form.
type BatchFunc = func(ctx context.Context, b *Batch) error

// BatchMessage is a message of a batch in any form.
type BatchMessage interface {
	Context() context.Context
	State() redeliver.State
	Ack() bool
	Retry() bool
	RetryAfter(d time.Duration) bool
	Reject(reason string) bool
	Answer(err error) bool
}

// BatchOf returns a batch of messages of any type.
func BatchOf[M any](mb *mq.Batch[M]) *Batch {
	b := &Batch{AckAll: mb.AckAll, RetryAll: mb.RetryAll, RetryAllAfter: mb.RetryAllAfter}
	for _, m := range mb.Messages {
		b.Messages = append(b.Messages, m)
	}
	return b
}

// consumeBatches starts a process that handles batches in the broker's own form.
func (p *process) consumeBatches(group string, cfg Config, bc redeliver.BatchConfig, fn BatchFunc) {
	run, kill := p.b.h.ConsumeBatch(p.b.T, p.b.config(group, cfg, p), bc, fn)
	p.runNative(cfg, run, kill)
}
