package adaptertest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/middleware"
)

// errDeclined is what the handlers of the kit fail with.
var errDeclined = errors.New("card declined")

// bench is one test: an origin, the groups that read it, and what happened there.
type bench struct {
	*testing.T
	*journal
	h             Harness
	origin, group string
	groups        []string
}

func newBench(t *testing.T, h Harness, groups int) *bench {
	t.Helper()
	b := &bench{T: t, journal: newJournal(), h: h}
	b.origin, b.groups = h.Origin(t, max(1, groups))
	b.group = b.groups[0]
	return b
}

// handler is the kit's kind of handler.
type handler func(*attempt) error

func succeed(*attempt) error { return nil }
func decline(*attempt) error { return errDeclined }

// declineFirst fails the first n attempts of a message.
func declineFirst(n int) handler {
	return func(a *attempt) error {
		if a.State.Attempts < n {
			return errDeclined
		}
		return nil
	}
}

// process is one service with a Router around a handler.
type process struct {
	b       *bench
	journal *journal
	svc     Service
	handler handler
	killed  atomic.Bool
	stop    context.CancelFunc
	done    chan struct{} // closed when the Router has ended
}

// start opens a service of the first group and returns when it has subscribed.
func (b *bench) start(cfg Config, h handler) *process {
	b.Helper()
	return b.startAs(b.group, b.journal, cfg, h, middleware.Retry())
}

// startAs is start for one of many groups, and with other middlewares.
func (b *bench) startAs(group string, j *journal, cfg Config, h handler, mws ...message.HandlerMiddleware) *process {
	b.Helper()
	p := &process{b: b, journal: j, handler: h, done: make(chan struct{})}
	p.svc = b.open(group, cfg, p)
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: Patience / 4}, watermill.NopLogger{})
	if err != nil {
		b.Fatal(err)
	}
	router.AddMiddleware(mws...)
	router.AddConsumerHandler("h", b.origin, p.svc.Subscriber(), p.handle)
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
	deadline := time.NewTimer(Patience)
	defer deadline.Stop()
	select {
	case <-router.Running():
	case err := <-failed:
		b.Fatalf("the router ended: %v", err)
	case <-deadline.C:
		b.Fatalf("not subscribed within %s", Patience)
	}
	return p
}

// open opens a service that is closed at the end of the test.
func (b *bench) open(group string, cfg Config, sink redeliver.Sink) Service {
	b.Helper()
	cfg.Origin, cfg.Group, cfg.Sink = b.origin, group, sink
	if cfg.DrainTimeout == 0 {
		cfg.DrainTimeout = 5 * time.Second
	}
	svc, err := b.h.Open(b.T, cfg)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), Patience)
		defer cancel()
		_ = svc.Close(ctx) // a test that minds closes it itself
	})
	return svc
}

// Event implements [redeliver.Sink].
func (p *process) Event(e redeliver.Event) {
	if !p.killed.Load() {
		p.journal.change(func() { p.journal.events = append(p.journal.events, e) })
	}
}

// handle is what the Router calls.
func (p *process) handle(msg *message.Message) error {
	if p.killed.Load() {
		return nil // nobody is there any more, and nobody hears the answer
	}
	st, ok := redeliver.FromContext(msg.Context())
	if !ok {
		p.b.Errorf("the context of message %s has no state of redeliver", msg.UUID)
	}
	a := &attempt{
		State: st, Msg: msg, UUID: msg.UUID, Payload: slices.Clone(msg.Payload), Metadata: maps.Clone(msg.Metadata),
		Seen: p.b.h.Seen(msg), Began: time.Now(), Process: p,
	}
	if a.Began.Before(st.Due) {
		p.b.Errorf("attempt %d of %s began %s before it was due", st.Attempt(), st.ID, st.Due.Sub(a.Began))
	}
	p.journal.change(func() { p.journal.attempts = append(p.journal.attempts, a) })
	defer func() { p.journal.change(func() { a.Ended = time.Now() }) }()
	return p.handler(a)
}

// kill ends the process as SIGKILL would.
func (p *process) kill() {
	p.svc.Kill()
	p.killed.Store(true)
}

// close ends the process in order: first the Router, then the service.
func (p *process) close() {
	p.b.Helper()
	p.end()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	if err := p.svc.Close(ctx); err != nil {
		p.b.Errorf("closing: %v", err)
	}
}

// end ends the Router.
func (p *process) end() {
	p.b.Helper()
	p.stop()
	deadline := time.NewTimer(Patience)
	defer deadline.Stop()
	select {
	case <-p.done:
	case <-deadline.C:
		p.b.Errorf("the router has not ended within %s", Patience)
	}
}

// quick is a policy whose retries wait 100 ms.
func quick(retries int) redeliver.Policy {
	return redeliver.Policy{MaxRetries: retries, Backoff: redeliver.Fixed(100 * time.Millisecond), Levels: []time.Duration{100 * time.Millisecond}}
}

// named are messages whose ids and bodies are their names.
func named(names ...string) []Message {
	msgs := make([]Message, len(names))
	for i, n := range names {
		msgs[i] = Message{ID: n, Body: []byte(n)}
	}
	return msgs
}

// many are n messages, and their ids.
func many(n int) ([]Message, []string) {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("m-%03d", i)
	}
	return named(names...), names
}

// put writes messages to the origin.
func (b *bench) put(msgs ...Message) {
	b.Helper()
	b.h.Put(b.T, b.origin, msgs...)
}

// underOneKey gives all messages one key, where there are keys.
func (b *bench) underOneKey(msgs []Message) []Message {
	if b.h.Features.KeyOrder {
		for i := range msgs {
			msgs[i].Key = []byte("the same")
		}
	}
	return msgs
}

// await returns when ok says so.
func (b *bench) await(what string, ok func() bool) {
	b.Helper()
	b.journal.await(b.T, what, ok)
}

// awaitEnds returns when each message was committed or dead-lettered.
func (b *bench) awaitEnds(ids ...string) {
	b.Helper()
	b.await(fmt.Sprintf("all of %d messages end in a commit or the DLQ", len(ids)), func() bool {
		committed, dead := b.ended()
		return !slices.ContainsFunc(ids, func(id string) bool { return committed[id]+dead[id] == 0 })
	})
}

// dead returns the n messages that are in the DLQ of the first group.
func (b *bench) dead(n int) []Message {
	b.Helper()
	msgs := b.h.Dead(b.T, b.origin, b.group, n)
	if len(msgs) != n {
		b.tell(b.T)
		b.Fatalf("%d messages are in the DLQ, want %d", len(msgs), n)
	}
	return msgs
}

// why is what the headers of a dead letter say, which must be beyond doubt.
func (b *bench) why(m Message) redeliver.State {
	b.Helper()
	if len(m.Ours) == 0 {
		b.Errorf("dead letter %q has no headers of redeliver's", m.Body)
	}
	st, findings := redeliver.ParseHeaders(b.group, m.Ours)
	for _, f := range findings {
		b.Errorf("dead letter %q: %s", m.Body, f)
	}
	return st
}

// buried checks that one message is in the DLQ, for this reason and after so many attempts.
func (b *bench) buried(reason redeliver.Reason, attempts int) redeliver.State {
	b.Helper()
	st := b.why(b.dead(1)[0])
	b.buriedAs(st, reason, attempts)
	return st
}

func (b *bench) buriedAs(st redeliver.State, reason redeliver.Reason, attempts int) {
	b.Helper()
	if st.Reason != reason || st.Attempts != attempts {
		b.Errorf("%s is in the DLQ as %q after %d attempts (%s), want %q after %d", st.ID, st.Reason, st.Attempts, st.Error, reason, attempts)
	}
}

// wantRuns checks the numbers of a message's attempts.
func (b *bench) wantRuns(id string, n int) {
	b.Helper()
	if got := numbers(b.ran(id)); !slices.Equal(got, upTo(n)) {
		b.Errorf("%s ran as attempts %v, want %v", id, got, upTo(n))
	}
}

// noneEarlier checks that between the end of an attempt and the begin of the next
// one lay at least so long. retry counts from 0.
func (b *bench) noneEarlier(than func(retry int) time.Duration, ids ...string) {
	b.Helper()
	for _, id := range ids {
		as := b.ran(id)
		for _, a := range as {
			for _, before := range as {
				if before.State.Attempt()+1 != a.State.Attempt() || before.Ended.IsZero() || before.Ended.After(a.Began) {
					continue
				}
				if waited, least := a.Began.Sub(before.Ended), than(before.State.Attempts); waited < least {
					b.Errorf("attempt %d of %s came %s after the one before it, want at least %s", a.State.Attempt(), id, waited, least)
				}
			}
		}
	}
}

// always is the same wait before every retry.
func always(d time.Duration) func(int) time.Duration {
	return func(int) time.Duration { return d }
}
