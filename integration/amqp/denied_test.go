package amqp_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/amqp"
	"github.com/redeliver/redeliver/integration/brokers"
	"github.com/redeliver/redeliver/integration/methodproxy"
	"github.com/redeliver/redeliver/internal/limits"
	"github.com/redeliver/redeliver/internal/observed"
	"github.com/redeliver/redeliver/mq"
)

type operation = methodproxy.Operation

// deniedRun is a subscription with all kinds of traffic, of which one operation is denied.
type deniedRun struct {
	*fixture
	proxy    *methodproxy.Proxy
	operator *mq.Client // not through the proxy
	n        int
	put      []string // ids of messages that must end
	// deny denies an operation until allow is called.
	deny func(operation) (allow func())
	// cuts says that a busy channel keeps the rights that it had: RabbitMQ's own do.
	cuts bool
}

func newDeniedRun(t *testing.T, r *brokers.Rabbit, change func(*fixture)) *deniedRun {
	t.Helper()
	proxy, err := methodproxy.New(r.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Close)
	run := &deniedRun{proxy: proxy}
	run.fixture = newFixture(t, r, func(l *fixture) {
		exchange := l.queue + ".exchange"
		l.cfg.URLs = []string{run.proxy.URL()}
		l.cfg.Policy = steps(1, 200*time.Millisecond)
		l.cfg.Topology.Exchange = func(string) string { return exchange }
		if change != nil {
			change(l)
		}
		t.Cleanup(func() {
			_ = l.wire.do(t, func(ch *amqp091.Channel) error { return ch.ExchangeDelete(exchange, false, false) })
		})
	})
	cfg := run.cfg
	cfg.URLs, cfg.Sink = []string{r.URL()}, redeliver.SinkFunc(func(redeliver.Event) {})
	operator, err := amqp.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = operator.Close(context.Background()) })
	run.operator, run.deny = operator, run.proxy.DenyRight
	return run
}

// start subscribes, unless that is refused.
func (r *deniedRun) start() error {
	messages, err := r.client.Subscriber().Subscribe(context.Background(), r.queue)
	if err != nil {
		return err
	}
	go r.handle(messages, func(msg *message.Message, _ run) error {
		if strings.HasPrefix(msg.UUID, "fails") {
			return errHandler
		}
		return nil
	})
	return nil
}

// traffic puts one message of each kind: one succeeds, one is retried and dead-lettered, one is a suspect, one is
// published with a delay.
func (r *deniedRun) traffic() {
	r.Helper()
	r.n++
	fine, fails, suspect, later := fmt.Sprint("fine", r.n), fmt.Sprint("fails", r.n), fmt.Sprint("suspect", r.n), fmt.Sprint("later", r.n)
	r.publishMessages(fine, fails)
	r.writeOwn(".retry.suspects", "", r.queue, redeliver.State{
		ID: suspect, Group: r.queue, Origin: r.queue, Attempts: 1, Due: limits.CeilMilli(time.Now().UTC()),
	})
	r.put = append(r.put, fine, fails, suspect)
	r.publishLater(later)
}

// publishLater publishes with a delay. If the client may not do that, the caller of Publish knows.
func (r *deniedRun) publishLater(id string) {
	msg := message.NewMessage(id, []byte(id))
	delay.Message(msg, delay.For(300*time.Millisecond))
	if err := r.client.Publisher().Publish(r.queue, msg); err == nil {
		r.put = append(r.put, id)
	}
}

// awaitAll waits until all messages have ended in the right place.
func (r *deniedRun) awaitAll() {
	r.Helper()
	r.awaitEnds(r.put)
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, id := range r.put {
		if fails := strings.HasPrefix(id, "fails"); fails != (len(r.dead[id]) > 0) || fails == (r.done[id] > 0) {
			r.Errorf("%s ran %v; it was committed %d times, and dead-lettered %d times", id, r.runs[id], r.done[id], len(r.dead[id]))
		}
	}
}

// troublesLocked returns the problems that the events so far report, as readiness counts them.
func (r *deniedRun) troublesLocked() []string {
	all := map[string]bool{}
	for _, e := range r.events {
		c, ok := e.(redeliver.SubscriptionChanged)
		if !ok {
			continue
		}
		for _, t := range observed.Transitions[c.Change] {
			all[t.Problem] = t.Begins
		}
	}
	maps.DeleteFunc(all, func(problem string, begins bool) bool {
		return !begins || !slices.Contains([]string{"disconnected", "intake paused", string(redeliver.ChangeOperationFails)}, problem)
	})
	return slices.Sorted(maps.Keys(all))
}

// names reports whether text has an operation, its place and the broker's error.
func names(text string, o operation) bool {
	method, _, _ := strings.Cut(o.Method, ",")
	return (strings.Contains(text, method) || strings.Contains(text, "right to "+o.Right())) && strings.Contains(text, o.Place) && strings.Contains(text, "ACCESS_REFUSED")
}

// isReportedLocked reports whether an event names the operation.
func (r *deniedRun) isReportedLocked(o operation) bool {
	return slices.ContainsFunc(r.events, func(e redeliver.Event) bool {
		c, ok := e.(redeliver.SubscriptionChanged)
		return ok && c.Err != nil && names(c.Detail+" "+c.Err.Error(), o)
	})
}

// changes returns the subscription's changes.
func (r *deniedRun) changes() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []string
	for _, e := range r.events {
		if c, ok := e.(redeliver.SubscriptionChanged); ok {
			all = append(all, fmt.Sprintf("%s: %s: %v", c.Change, c.Detail, c.Err))
		}
	}
	return strings.Join(all, "\n")
}

// within repeats do, every second, until ok returns true, and fails the test when that takes longer than a minute.
func (r *deniedRun) within(what string, do func(), ok func() bool) {
	r.Helper()
	const most = time.Minute
	over, tick := time.After(most), time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		do()
		r.mu.Lock()
		fine := ok()
		r.mu.Unlock()
		if fine {
			return
		}
		select {
		case <-tick.C:
		case <-over:
			r.Fatalf("not within %v: %s; the changes are\n%s", most, what, r.changes())
		}
	}
}

// exercise makes the service use all its operations once.
func (r *deniedRun) exercise() {
	r.Helper()
	r.traffic()
	r.awaitAll()
	r.proxy.Cut()
	r.within("it reads its queues again", func() {}, func() bool { return r.countLocked("consuming") > 1 })
	r.traffic()
	r.awaitAll()
	r.pauseAndResume()
}

func (r *deniedRun) pauseAndResume() {
	r.Helper()
	n := func(change string) int {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.countLocked(change)
	}
	paused, resumed := n("group paused"), n("group resumed")
	if err := r.operator.Operations().Pause(r.Context(), r.queue, "a test"); err != nil {
		r.Fatal(err)
	}
	r.awaitChange("group paused", paused+1)
	if err := r.operator.Operations().Resume(r.Context(), r.queue); err != nil {
		r.Fatal(err)
	}
	r.awaitChange("group resumed", resumed+1)
}

// need makes the service need an operation that is denied.
func (r *deniedRun) need(o operation) {
	r.Helper()
	suffix := strings.TrimPrefix(o.Place, r.queue)
	if r.cuts || o.Method == "basic.consume" || o.Method == methodproxy.PassiveDeclare {
		r.proxy.Cut()
	}
	switch {
	case o.Method == "queue.declare":
		r.delete(suffix)
	case o.Method == "exchange.declare" || o.Method == "queue.bind":
		err := r.wire.do(r, func(ch *amqp091.Channel) error { return ch.ExchangeDelete(r.queue+".exchange", false, false) })
		if err != nil {
			r.Fatal(err)
		}
	case o.Method == "basic.get" && suffix == ".retry.paused":
		if err := r.operator.Operations().Pause(r.Context(), r.queue, "a test"); err != nil {
			r.Fatal(err)
		}
	}
}

// repeat is the traffic that needs a denied operation.
func (r *deniedRun) repeat(o operation) {
	switch suffix := strings.TrimPrefix(o.Place, r.queue); {
	case o.Method != "queue.declare" && o.Method != "exchange.declare" && o.Method != "queue.bind":
		r.traffic()
	case o.Method != "queue.declare":
		r.n++
		r.publishLater(fmt.Sprint("later", r.n))
	case suffix == ".dlq":
		r.n++
		id := fmt.Sprint("fails", r.n)
		r.publishMessages(id)
		r.put = append(r.put, id)
	}
}

// denyDuring denies an operation while the service runs, until that is reported, and then allows it again.
func (r *deniedRun) denyDuring(o operation) {
	r.Helper()
	if err := r.start(); err != nil {
		r.Fatal(err)
	}
	r.traffic()
	r.awaitAll()
	allow := r.deny(o)
	r.need(o)
	r.wantReport(o)
	allow()
	r.wantRecovery(o)
}

// wantReport checks that a denied operation is reported, and that the subscription is not ready.
func (r *deniedRun) wantReport(o operation) {
	r.Helper()
	r.within("an event names "+o.String(), func() { r.repeat(o) }, func() bool { return r.isReportedLocked(o) })
	r.within("it is not ready", func() { r.repeat(o) }, func() bool { return len(r.troublesLocked()) > 0 })
}

// wantRecovery checks that the subscription is ready after an operation was allowed again, and that messages end.
func (r *deniedRun) wantRecovery(o operation) {
	r.Helper()
	r.within("it is ready again", func() { r.repeat(o) }, func() bool { return len(r.troublesLocked()) == 0 })
	if err := r.operator.Operations().Resume(r.Context(), r.queue); err != nil {
		r.Fatal(err)
	}
	r.traffic()
	r.within("all messages end", func() {}, func() bool {
		return !slices.ContainsFunc(r.put, func(id string) bool { return r.done[id] == 0 && len(r.dead[id]) == 0 })
	})
	r.awaitAll()
	r.mu.Lock()
	defer r.mu.Unlock()
	if troubles := r.troublesLocked(); len(troubles) > 0 {
		r.Errorf("after a minute, %v", troubles)
	}
}

// denyBefore denies an operation before the start.
func (r *deniedRun) denyBefore(o operation) {
	r.Helper()
	a := newAdmin(r.T, r.rabbit)
	before := a.queues(r, r.queue)
	allow := r.deny(o)
	err := r.start()
	switch {
	case err != nil:
		refused, ok := errors.AsType[*redeliver.ConfigError](err)
		if !ok || !names(err.Error(), o) {
			r.Errorf("the start is refused with %v, %v", err, refused)
		}
		if now := a.queues(r, r.queue); !slices.Equal(now, before) {
			r.Errorf("the refused start has left %q, there were %q", now, before)
		}
		allow()
		if err := r.start(); err != nil {
			r.Fatal(err)
		}
	default: // only needed later
		r.need(o)
		r.wantReport(o)
		allow()
	}
	r.wantRecovery(o)
}

// One operation is denied during a run: TestEachOperationDeniedAlone denies all. A denied read of suspects was once reported
// every few seconds as a loss of the connection and its end, so that readiness was mostly green.
func TestADeniedOperation(t *testing.T) {
	t.Parallel()
	r := newDeniedRun(t, brokers.RequireRabbitMQ(t), nil)
	r.denyDuring(operation{Method: "basic.get", Place: r.queue + ".retry.suspects"})
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := r.countLocked("disconnected") + r.countLocked("consuming"); n > 1 {
		t.Errorf("the changes are %q", r.changesLocked())
	}
}
