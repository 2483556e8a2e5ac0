package adaptertest

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
)

// form is how a test handles messages: with a Router, or in the broker's own form, without Watermill.
type form string

// The forms.
const (
	routed         form = ""
	nativeMessages form = "Consume"
	nativeBatches  form = "ConsumeBatch"
)

// missing reports whether a harness does not have a form.
func (f form) missing(h *Harness) bool {
	return f == nativeMessages && h.Consume == nil || f == nativeBatches && h.ConsumeBatch == nil
}

// alsoIn adds the same tests in another form, except those that are about the Router.
func alsoIn(f form, tests []test) []test {
	for _, t := range slices.Clone(tests) {
		if !t.router {
			t.name, t.form = string(f)+"_"+t.name, f
			tests = append(tests, t)
		}
	}
	return tests
}

func nativeStarts() []test {
	return []test{{name: "ConsumeThatIsCancelledWhileItStartsReturnsNoError", form: nativeMessages, body: cancelledStart}}
}

// cancelledStart cancels Consume before it begins, and at moments of its start.
func cancelledStart(b *fixture) {
	for _, after := range []time.Duration{0, time.Millisecond, 5 * time.Millisecond, 20 * time.Millisecond, 50 * time.Millisecond} {
		run, _ := b.h.Consume(b.T, b.config(b.group, Config{Policy: quickPolicy(1)}, redeliver.SinkFunc(func(redeliver.Event) {})), func(context.Context, Message) error { return nil })
		ctx, cancel := context.WithCancel(b.Context())
		if after == 0 {
			cancel()
		}
		stop := time.AfterFunc(after, cancel)
		if err := run(ctx); err != nil {
			b.Errorf("cancelled after %s: %v", after, err)
		}
		stop.Stop()
		cancel()
	}
}

// consume starts a process that handles single messages in the broker's own form, and returns when it reads.
func (p *process) consume(cfg Config) {
	b := p.b
	b.Helper()
	run, kill := b.h.Consume(b.T, b.config(b.group, cfg, p), p.handleNative)
	p.runNative(cfg, run, kill)
	b.await("a process reads", func() bool {
		return slices.ContainsFunc(eventsOf[redeliver.SubscriptionChanged](p.journal), func(e redeliver.SubscriptionChanged) bool {
			return e.Change == redeliver.ChangeAssigned || e.Change == redeliver.ChangeConsuming
		})
	})
}

// handleNative is the handler of Consume.
func (p *process) handleNative(ctx context.Context, m Message) error {
	if p.killed.Load() {
		return nil // the process is dead
	}
	st, _ := redeliver.FromContext(ctx)
	metadata := make(message.Metadata)
	for _, h := range m.Headers {
		metadata.Set(h.Name, string(h.Value))
	}
	a := p.recordAttempt(ctx, &attempt{Ctx: ctx, UUID: cmp.Or(m.ID, st.ID), Payload: m.Body, Metadata: metadata, Seen: m})
	defer func() { p.journal.change(func() { a.Ended = time.Now() }) }()
	return p.handler(a)
}

// runNative runs a process in the broker's own form.
func (p *process) runNative(cfg Config, run func(context.Context) error, kill func()) {
	b := p.b
	ctx, cancel := context.WithCancel(context.Background())
	p.stop = sync.OnceFunc(cancel)
	go func() {
		defer close(p.done)
		if err := run(ctx); err != nil && !p.killed.Load() {
			b.Errorf("consuming: %v", err)
		}
	}()
	p.svc = consumer{kill: kill, open: sync.OnceValue(func() Service { return b.open(b.group, cfg, p) })}
	b.Cleanup(p.end)
}

// consumer is a service that ends with its context. open opens a client beside it, which publishes and pauses.
type consumer struct {
	kill func()
	open func() Service
}

func (consumer) Subscriber() message.Subscriber { return nil }
func (c consumer) Publisher() message.Publisher { return c.open().Publisher() }
func (consumer) Close(context.Context) error    { return nil }
func (c consumer) Kill()                        { c.kill() }
