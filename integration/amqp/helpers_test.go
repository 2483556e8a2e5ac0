package amqp_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"runtime/pprof"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/amqp"
	"github.com/redeliver/redeliver/delayqueue"
	"github.com/redeliver/redeliver/driver"
	"github.com/redeliver/redeliver/integration/brokers"
	"github.com/redeliver/redeliver/middleware"
	"github.com/redeliver/redeliver/mq"
)

// errHandler is the error of the handlers here.
var errHandler = errors.New("card declined")

const maxWait = 4 * time.Minute

// fixture is the environment of one test: a queue on a broker, a client of the adapter, a plain connection, and a
// journal.
type fixture struct {
	*testing.T
	rabbit *brokers.Rabbit
	cfg    amqp.Config
	queue  string
	client *mq.Client
	raw    *amqp091.Channel
	wire   *reconnectingConn // declares and deletes

	mu      sync.Mutex
	changed chan struct{} // closed at the next change
	runs    map[string][]run
	done    map[string]int // number of commits by id
	dead    map[string][]redeliver.DeadLettered
	events  []redeliver.Event // except those of single attempts
	early   []string
}

// run is one run of a handler.
type run struct {
	attempt     int
	redelivered bool
	late        time.Duration // after its due time; 0 for a first delivery
}

// newFixture opens a client; change may alter its configuration. Everything is released at the end of the test,
// including goroutines.
func newFixture(t *testing.T, r *brokers.Rabbit, change func(*fixture)) *fixture {
	t.Helper()
	l := &fixture{
		T: t, rabbit: r, queue: unique(t), wire: &reconnectingConn{url: r.URL()}, changed: make(chan struct{}),
		runs: make(map[string][]run), done: make(map[string]int), dead: make(map[string][]redeliver.DeadLettered),
		// A broker on a busy machine may stall for seconds, also in a handshake.
		cfg: amqp.Config{URLs: []string{r.URL()}, Policy: steps(3, 200*time.Millisecond), DialTimeout: time.Minute},
	}
	l.cfg.Sink = redeliver.SinkFunc(l.event)
	l.watchGoroutines()
	l.redial()
	t.Cleanup(l.wire.close)
	t.Cleanup(l.deleteQueues)
	if change != nil {
		change(l)
	}
	l.open()
	return l
}

// steps returns a policy with one delay and no jitter.
func steps(retries int, d time.Duration) redeliver.Policy {
	return redeliver.Policy{Outage: redeliver.Outage{Off: true}, MaxRetries: retries, Backoff: redeliver.Fixed(d), Levels: []time.Duration{d}}
}

func unique(t *testing.T) string {
	name := strings.NewReplacer("/", "-", " ", "-").Replace(t.Name())
	return name[:min(len(name), 60)] + "-" + rand.Text()[:8]
}

func (l *fixture) open() {
	l.Helper()
	if l.cfg.Policy.Outage == (redeliver.Outage{}) {
		l.cfg.Policy.Outage.Off = true // in many tests all messages fail
	}
	client, err := amqp.Open(l.Context(), l.cfg)
	if err != nil {
		l.Fatal(err)
	}
	l.client = client
	l.Cleanup(func() {
		if err := client.Close(context.Background()); err != nil {
			l.Error(err)
		}
	})
}

// redial replaces the plain connection.
func (l *fixture) redial() {
	l.Helper()
	conn, err := amqp091.Dial(l.rabbit.URL())
	if err != nil {
		l.Fatal(err)
	}
	l.Cleanup(func() { _ = conn.Close() }) // it may be closed already
	l.raw, err = conn.Channel()
	if err != nil {
		l.Fatal(err)
	}
}

func (l *fixture) deleteQueues() {
	names := []string{"", ".retry", ".retry.suspects", ".retry.paused", ".retry.place", ".dlq"}
	for _, level := range delayqueue.NewLadder(l.cfg.Policy) {
		names = append(names, ".retry."+delayqueue.LevelName(level))
	}
	l.delete(names...)
}

// delete deletes the test's queue or those beside it.
func (l *fixture) delete(suffixes ...string) {
	queues := make([]string, len(suffixes))
	for i, suffix := range suffixes {
		queues[i] = l.queue + suffix
	}
	if err := l.wire.delete(l, queues...); err != nil {
		l.Error(err)
	}
}

// watched has the tests that check their goroutines at the end.
var watched sync.Map

// watchGoroutines fails the test if the adapter or its client leaves goroutines. A label, which a goroutine inherits,
// distinguishes them from those of parallel tests.
func (l *fixture) watchGoroutines() {
	if _, twice := watched.LoadOrStore(l.Name(), true); twice { // a test may have two fixtures
		return
	}
	pprof.SetGoroutineLabels(pprof.WithLabels(context.Background(), pprof.Labels("test", l.Name())))
	l.Cleanup(func() {
		l.checkNoGoroutines()
		watched.Delete(l.Name())
	})
}

func (l *fixture) checkNoGoroutines() {
	mine := fmt.Sprintf("\"test\":%q", l.Name())
	tick, over := time.NewTicker(10*time.Millisecond), time.After(10*time.Second)
	defer tick.Stop()
	for left := ""; ; left = "" {
		var all strings.Builder
		if err := pprof.Lookup("goroutine").WriteTo(&all, 1); err != nil {
			l.Fatal(err)
		}
		for s := range strings.SplitSeq(all.String(), "\n\n") {
			if strings.Contains(s, mine) && (strings.Contains(s, "redeliver/adapters/") || strings.Contains(s, "amqp091-go")) {
				left += s + "\n\n"
			}
		}
		if left == "" {
			return
		}
		select {
		case <-over:
			l.Errorf("goroutines still run after the test:\n%s", left)
			return
		case <-tick.C:
		}
	}
}

// update changes the journal.
func (l *fixture) update(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *fixture) event(e redeliver.Event) {
	l.update(func() {
		switch e := e.(type) {
		case redeliver.Committed:
			l.done[e.State.ID]++
		case redeliver.DeadLettered:
			l.dead[e.State.ID] = append(l.dead[e.State.ID], e)
		case redeliver.Attempted:
		default:
			l.events = append(l.events, e)
		}
	})
}

// await waits until ok, which reads the journal, returns true.
func (l *fixture) await(what string, ok func() bool) {
	l.Helper()
	over := time.After(maxWait)
	for {
		l.mu.Lock()
		fine, changed := ok(), l.changed
		l.mu.Unlock()
		if fine {
			return
		}
		select {
		case <-changed:
		case <-over:
			l.mu.Lock()
			defer l.mu.Unlock()
			l.Fatalf("no %s within %v: %d ids ran, %d are committed, %d dead-lettered; changes: %v; last event: %T",
				what, maxWait, len(l.runs), len(l.done), len(l.dead), l.changesLocked(), append([]redeliver.Event{nil}, l.events...)[len(l.events)])
		}
	}
}

// changesLocked returns the subscription's changes so far.
func (l *fixture) changesLocked() (all []string) {
	for _, e := range l.events {
		if c, ok := e.(redeliver.SubscriptionChanged); ok {
			all = append(all, string(c.Change))
		}
	}
	return all
}

// countLocked returns how often a change was reported.
func (l *fixture) countLocked(change string) (n int) {
	for _, c := range l.changesLocked() {
		if c == change {
			n++
		}
	}
	return n
}

// awaitChange waits until a change was reported n times.
func (l *fixture) awaitChange(change string, n int) {
	l.Helper()
	l.await(fmt.Sprintf("%q for the %dth time", change, n), func() bool { return l.countLocked(change) >= n })
}

// consume subscribes and runs h for every message, with middleware.Retry.
func (l *fixture) consume(h func(*message.Message, run) error) {
	l.Helper()
	l.consumeWith(l.client.Subscriber(), h)
}

func (l *fixture) consumeWith(sub *mq.Subscriber, h func(*message.Message, run) error) {
	l.Helper()
	messages, err := sub.Subscribe(context.Background(), l.queue)
	if err != nil {
		l.Fatal(err)
	}
	go l.handle(messages, h)
}

// handle runs h for every message, with middleware.Retry.
func (l *fixture) handle(messages <-chan *message.Message, h func(*message.Message, run) error) {
	handle := middleware.Retry()(func(msg *message.Message) ([]*message.Message, error) {
		return nil, h(msg, l.recordRun(msg))
	})
	for msg := range messages {
		go func() {
			if _, err := handle(msg); err != nil {
				msg.Nack()
			} else {
				msg.Ack()
			}
		}()
	}
}

// recordRun records a run of a handler.
func (l *fixture) recordRun(msg *message.Message) run {
	now := time.Now()
	st, _ := redeliver.FromContext(msg.Context())
	r := run{attempt: st.Attempt(), redelivered: amqp.DeliveryFromContext(msg.Context()).Redelivered}
	if !st.Due.IsZero() {
		r.late = now.Sub(st.Due)
	}
	l.update(func() {
		l.runs[msg.UUID] = append(l.runs[msg.UUID], r)
		if r.late < 0 {
			l.early = append(l.early, fmt.Sprintf("%s by %v", msg.UUID, -r.late))
		}
	})
	return r
}

// publishMessages publishes over the plain connection and waits for the confirms.
func (l *fixture) publishMessages(ids ...string) {
	l.Helper()
	l.putTo(l.queue, ids...)
}

func (l *fixture) putTo(queue string, ids ...string) {
	l.Helper()
	var all []amqp091.Publishing
	for _, id := range ids {
		all = append(all, amqp091.Publishing{MessageId: id, DeliveryMode: amqp091.Persistent, Body: []byte(id)})
	}
	l.write(queue, all...)
}

// write publishes to a queue as publishMessages does.
func (l *fixture) write(queue string, all ...amqp091.Publishing) {
	l.Helper()
	if err := l.raw.Confirm(false); err != nil {
		l.Fatal(err)
	}
	confirmed(l, l.raw, "", queue, all...)
}

func ids(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("m-%05d", i)
	}
	return all
}

// declared subscribes and unsubscribes at once, so that the queues exist.
func (l *fixture) declared() {
	l.Helper()
	if err := l.client.Subscriber().SubscribeInitialize(l.queue); err != nil {
		l.Fatal(err)
	}
}

// ready returns how many messages are ready in a queue.
func (l *fixture) ready(queue string) int {
	l.Helper()
	q, err := l.raw.QueueDeclarePassive(queue, true, false, false, false, nil)
	if err != nil {
		l.Fatal(err)
	}
	return q.Messages
}

// awaitReady waits until a queue has n ready messages.
func (l *fixture) awaitReady(queue string, n int) {
	l.Helper()
	tick, over := time.NewTicker(20*time.Millisecond), time.After(maxWait)
	defer tick.Stop()
	for l.ready(queue) != n {
		select {
		case <-tick.C:
		case <-over:
			l.Fatalf("queue %s has %d ready messages, want %d", queue, l.ready(queue), n)
		}
	}
}

// duplicatesLocked returns the number of runs beyond one for each attempt.
func (l *fixture) duplicatesLocked() (n int) {
	for _, runs := range l.runs {
		seen := make(map[int]bool)
		for _, r := range runs {
			if seen[r.attempt] {
				n++
			}
			seen[r.attempt] = true
		}
	}
	return n
}

// checkNothingEarly fails the test if a retry ran early.
func (l *fixture) checkNothingEarly() {
	l.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.early) > 0 {
		l.Errorf("%d retries ran before their time: %v", len(l.early), l.early[:min(5, len(l.early))])
	}
}

// awaitEnds waits until all ids are committed or dead-lettered.
func (l *fixture) awaitEnds(all []string) {
	l.Helper()
	l.await("end of all messages", func() bool {
		if len(l.done)+len(l.dead) < len(all) {
			return false
		}
		for _, id := range all {
			if l.done[id] == 0 && len(l.dead[id]) == 0 {
				return false
			}
		}
		return true
	})
}

// deadIDsLocked returns the ids of dead letters.
func (l *fixture) deadIDsLocked() []string { return slices.Sorted(maps.Keys(l.dead)) }

// waitFor waits for the time that a handler takes.
func waitFor(d time.Duration) { <-time.After(d) }

// awaitUnacked waits until a queue has exactly n unacked messages and no others. It returns false if gone is closed
// before.
func (l *fixture) awaitUnacked(queue string, n int, gone <-chan struct{}) bool {
	l.Helper()
	return l.awaitCounts(queue, fmt.Sprintf("%d unacked and none ready", n), gone, func(unacked, ready int) bool { return unacked == n && ready == 0 })
}

// awaitUnackedIn waits until a queue has at least n unacked messages.
func (l *fixture) awaitUnackedIn(queue string, n int) (counted int) {
	l.Helper()
	l.awaitCounts(queue, fmt.Sprintf("%d unacked", n), nil, func(unacked, _ int) bool {
		counted = unacked
		return unacked >= n
	})
	return counted
}

// awaitCounts waits until the broker's statistics of a queue are as wanted, which takes some seconds. It returns
// false if gone is closed before.
func (l *fixture) awaitCounts(queue, want string, gone <-chan struct{}, is func(unacked, ready int) bool) bool {
	l.Helper()
	tick, over := time.NewTicker(500*time.Millisecond), time.After(maxWait)
	defer tick.Stop()
	for a := newAdmin(l.T, l.rabbit); ; {
		var q struct {
			Unacked int `json:"messages_unacknowledged"`
			Ready   int `json:"messages_ready"`
		}
		a.do(l.T, http.MethodGet, nil, &q, "queues", l.rabbit.VHost(), queue)
		if is(q.Unacked, q.Ready) {
			return true
		}
		select {
		case <-tick.C:
		case <-gone:
			return false
		case <-over:
			l.Fatalf("queue %s has %d unacked and %d ready messages, want %s", queue, q.Unacked, q.Ready, want)
		}
	}
}

// percentiles returns the percentiles of durations.
func percentiles(all []time.Duration) func(int) time.Duration {
	slices.Sort(all)
	return func(p int) time.Duration { return all[(len(all)-1)*p/100].Round(10 * time.Microsecond) }
}

// getMessage gets a message of a queue and keeps it unacked.
func (l *fixture) getMessage(queue string) amqp091.Delivery {
	l.Helper()
	d, ok, err := l.raw.Get(queue, false)
	if err != nil || !ok {
		l.Fatalf("queue %s: a message %t, %v", queue, ok, err)
	}
	return d
}

// writeOwn writes a message to a redeliver queue as redeliver would.
func (l *fixture) writeOwn(suffix, exchange, key string, st redeliver.State) {
	l.Helper()
	headers := amqp091.Table{amqp.HeaderExchange: exchange, amqp.HeaderRoutingKey: key}
	for name, value := range driver.StateHeaders(&st) {
		headers[name] = string(value)
	}
	if err := l.raw.Publish("", l.queue+suffix, true, false, amqp091.Publishing{Headers: headers, MessageId: st.ID, DeliveryMode: amqp091.Persistent}); err != nil {
		l.Fatal(err)
	}
}

// wantFinding fails the test if headers were not reported with this problem.
func (l *fixture) wantFinding(header, problem string) {
	l.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []redeliver.Finding
	for _, e := range l.events {
		if e, ok := e.(redeliver.HeadersIgnored); ok {
			all = append(all, e.Findings...)
		}
	}
	for _, f := range all {
		if f.Header == header && strings.Contains(f.Problem, problem) {
			return
		}
	}
	l.Errorf("findings are %+v, want one of %s: %s", all, header, problem)
}

// declareQueue declares the test's durable queue, as a user would.
func (l *fixture) declareQueue(args amqp091.Table) {
	l.Helper()
	l.declare(l.queue, args)
}

// declare declares a queue, durable.
func (l *fixture) declare(queue string, args amqp091.Table) {
	l.Helper()
	err := l.wire.do(l, func(ch *amqp091.Channel) error {
		_, err := ch.QueueDeclare(queue, true, false, false, false, args)
		return err
	})
	if err != nil {
		l.Fatalf("declaring %s: %v", queue, err)
	}
}

// retryWhileLate calls try up to 5 times while its result is too late, because a machine may stall for seconds.
func retryWhileLate(t *testing.T, most time.Duration, try func() (late time.Duration)) {
	t.Helper()
	for tries := 5; ; tries-- {
		late := try()
		switch {
		case late <= most || t.Failed():
			return
		case tries == 1:
			t.Errorf("late by %v, and by more than %v each time before", late, most)
			return
		}
		t.Logf("report: late by %v, more than %v: once more", late, most)
	}
}

// makeSuspects delivers all messages of the queue to processes that die, so that they are suspects.
func (l *fixture) makeSuspects() {
	l.Helper()
	for range 5 {
		conn, err := amqp091.Dial(l.rabbit.URL())
		if err != nil {
			l.Fatal(err)
		}
		ch, err := conn.Channel()
		if err != nil {
			l.Fatal(err)
		}
		in, err := ch.Consume(l.queue, "", false, false, false, false, nil)
		if err != nil {
			l.Fatal(err)
		}
		<-in
		_ = conn.Close()
	}
}
