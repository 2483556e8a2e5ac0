package adaptertest

import (
	"context"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

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

// inBothForms adds the same tests for batches in the broker's own form.
func inBothForms(tests []test) []test {
	for _, t := range tests {
		body := t.body
		t.name, t.native, t.body = "ConsumeBatch_"+t.name, true, func(b *fixture) {
			b.native = true
			body(b)
		}
		tests = append(tests, t)
	}
	return tests
}

// consume starts a process that handles batches in the broker's own form.
func (p *process) consume(group string, cfg Config, bc redeliver.BatchConfig, fn BatchFunc) {
	b := p.b
	run, kill := b.h.ConsumeBatch(b.T, b.config(group, cfg, p), bc, fn)
	ctx, cancel := context.WithCancel(context.Background())
	p.stop = sync.OnceFunc(cancel)
	go func() {
		defer close(p.done)
		if err := run(ctx); err != nil && !p.killed.Load() {
			b.Errorf("consuming batches: %v", err)
		}
	}()
	p.svc = consumer{kill}
	b.Cleanup(p.end)
}

// consumer is a service that ends with its context.
type consumer struct{ kill func() }

func (consumer) Subscriber() message.Subscriber { return nil }
func (consumer) Publisher() message.Publisher   { return nil }
func (consumer) Close(context.Context) error    { return nil }
func (c consumer) Kill()                        { c.kill() }
