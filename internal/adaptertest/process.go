package adaptertest

import (
	"cmp"
	"context"
	"maps"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/middleware"
)

// handler is the type of the kit's handlers.
type handler func(*attempt) error

func succeed(*attempt) error     { return nil }
func failHandler(*attempt) error { return errHandler }

// failFirst fails the first n attempts of some messages, or of each.
func failFirst(n int, ids ...string) handler {
	return func(a *attempt) error {
		if a.State.Attempts < n && (len(ids) == 0 || slices.Contains(ids, a.State.ID)) {
			return errHandler
		}
		return nil
	}
}

// declineOnly fails every attempt of some messages.
func declineOnly(ids ...string) handler { return failFirst(math.MaxInt, ids...) }

// declineUntil fails every attempt until up is closed.
func declineUntil(up <-chan struct{}) handler {
	return func(*attempt) error {
		select {
		case <-up:
			return nil
		default:
			return errHandler
		}
	}
}

// process is one service with a Router around a handler.
type process struct {
	b       *fixture
	journal *journal
	svc     Service
	handler handler
	killing atomic.Bool // it is being killed, or was
	killed  atomic.Bool
	stop    context.CancelFunc
	done    chan struct{} // closed when the Router has ended

	// Guarded by the journal's lock.
	watched   []watched
	unwatched int
}

// start starts a service of the first group and returns when it has subscribed.
func (b *fixture) start(cfg Config, h handler) *process {
	b.Helper()
	if b.form != nativeMessages {
		return b.startAs(b.group, b.journal, cfg, h, middleware.Retry())
	}
	p := &process{b: b, journal: b.journal, handler: h, done: make(chan struct{})}
	p.consume(cfg)
	return p
}

// startAs is start for one of several groups, and with other middlewares.
func (b *fixture) startAs(group string, j *journal, cfg Config, h handler, mws ...message.HandlerMiddleware) *process {
	b.Helper()
	p := &process{b: b, journal: j, handler: h, done: make(chan struct{})}
	p.route(group, cfg, p.handle, mws...)
	return p
}

// route opens the service and runs a Router on its subscriber.
func (p *process) route(group string, cfg Config, h message.NoPublishHandlerFunc, mws ...message.HandlerMiddleware) {
	p.b.Helper()
	p.svc = p.b.open(group, cfg, p)
	p.serve(p.svc.Subscriber(), h, mws...)
}

// serve runs a Router on a subscriber, and returns when it has subscribed.
func (p *process) serve(sub message.Subscriber, h message.NoPublishHandlerFunc, mws ...message.HandlerMiddleware) {
	b := p.b
	b.Helper()
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: Timeout / 4}, watermill.NopLogger{})
	if err != nil {
		b.Fatal(err)
	}
	router.AddMiddleware(mws...)
	router.AddConsumerHandler("h", b.origin, sub, h)
	ctx, cancel := context.WithCancel(context.Background())
	p.stop = cancel
	failed := make(chan error, 1)
	go func() {
		defer close(p.done)
		if err := router.Run(ctx); err != nil {
			failed <- err
		}
	}()
	b.Cleanup(func() { p.end() })
	deadline := time.NewTimer(Timeout)
	defer deadline.Stop()
	select {
	case <-router.Running():
	case err := <-failed:
		b.Fatalf("the router ended: %v", err)
	case <-deadline.C:
		b.Fatalf("not subscribed within %s", Timeout)
	}
}

// open opens a service that is closed at the end of the test.
func (b *fixture) open(group string, cfg Config, sink redeliver.Sink) Service {
	b.Helper()
	svc, err := b.h.Open(b.T, b.config(group, cfg, sink))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), Timeout)
		defer cancel()
		_ = svc.Close(ctx) // a test that needs the error closes it itself
	})
	return svc
}

// config returns the whole configuration of a process.
func (b *fixture) config(group string, cfg Config, sink redeliver.Sink) Config {
	cfg.Origin, cfg.Group, cfg.Sink = b.origin, group, sink
	if cfg.Policy.Outage == (redeliver.Outage{}) { // most tests fail more messages than an outage needs
		cfg.Policy.Outage.Off = true
	}
	cfg.DrainTimeout = cmp.Or(cfg.DrainTimeout, time.Second) // everything in the kit that should end takes less time
	return cfg
}

// Event implements [redeliver.Sink].
func (p *process) Event(e redeliver.Event) {
	if !p.killed.Load() {
		p.journal.change(func() { p.journal.events = append(p.journal.events, recordedEvent{e, time.Now()}) })
	}
}

// handle is the handler of the Router.
func (p *process) handle(msg *message.Message) error {
	if p.killed.Load() {
		return nil // the process is dead
	}
	a := p.beginAttempt(msg)
	defer func() { p.journal.change(func() { a.Ended = time.Now() }) }()
	return p.handler(a)
}

// beginAttempt records the start of an attempt.
func (p *process) beginAttempt(msg *message.Message) *attempt {
	return p.recordAttempt(msg.Context(), &attempt{
		Ctx: msg.Context(), Msg: msg, UUID: msg.UUID, Payload: slices.Clone(msg.Payload), Metadata: maps.Clone(msg.Metadata), Seen: p.b.h.Received(msg),
	})
}

// recordAttempt completes an attempt and records it.
func (p *process) recordAttempt(ctx context.Context, a *attempt) *attempt {
	st, ok := redeliver.FromContext(ctx)
	if !ok {
		p.b.Errorf("the context of message %s has no state of redeliver", a.UUID)
	}
	a.State, a.Began, a.Process, a.DuringKill = st, time.Now(), p, p.killing.Load()
	if a.Began.Before(st.Due) {
		p.b.Errorf("attempt %d of %s began %s before it was due", st.Attempt(), st.ID, st.Due.Sub(a.Began))
	}
	p.journal.change(func() { p.journal.attempts = append(p.journal.attempts, a) })
	return a
}

// kill ends the process as SIGKILL would.
func (p *process) kill() {
	p.killing.Store(true)
	p.svc.Kill()
	p.killed.Store(true)
}

// close shuts the process down: first the Router, then the service.
func (p *process) close() {
	p.b.Helper()
	p.end()
	ctx, cancel := context.WithTimeout(context.Background(), Timeout)
	defer cancel()
	if err := p.svc.Close(ctx); err != nil {
		p.b.Errorf("closing: %v", err)
	}
}

// end ends the Router.
func (p *process) end() {
	p.b.Helper()
	p.stop()
	deadline := time.NewTimer(Timeout)
	defer deadline.Stop()
	select {
	case <-p.done:
	case <-deadline.C:
		p.b.Errorf("the router has not ended within %s", Timeout)
	}
}
