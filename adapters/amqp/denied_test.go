package amqp

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/amqp/internal/amqptest"
	"github.com/redeliver/redeliver/adapters/amqp/internal/link"
	"github.com/redeliver/redeliver/internal/engine"
)

// deniedQueue is a reader of a fake broker that denies requests about one queue.
type deniedQueue struct {
	*reader
	denied atomic.Bool

	mu      sync.Mutex
	changes []string
}

func newDeniedQueue(t *testing.T, queue string) *deniedQueue {
	t.Helper()
	q := &deniedQueue{}
	w := amqptest.NewServer(t)
	w.Denies = func(name string) bool { return name == queue && q.denied.Load() }
	cfg := Config{Policy: redeliver.Policy{Order: redeliver.OrderBlocking}, Sink: redeliver.SinkFunc(func(e redeliver.Event) {
		if c, ok := e.(redeliver.SubscriptionChanged); ok {
			q.mu.Lock()
			defer q.mu.Unlock()
			text := string(c.Change) + ": " + c.Detail
			if c.Err != nil {
				text += ": " + c.Err.Error()
			}
			q.changes = append(q.changes, text)
		}
	})}.withDefaults()
	cfg.URLs, cfg.AMQP.Dial = []string{"amqp://guest:guest@localhost/"}, w.Dialer(t)
	c := &client{cfg: cfg, turn: engine.NewTurn(), consuming: link.New(cfg.link("test", true)), publishing: link.New(cfg.link("test", false))}
	c.declared = newDeclared(c)
	c.forwarded = link.NewSender(c.publishing)
	t.Cleanup(c.Disconnect)
	l, err := newLayout(&cfg, "orders")
	if err != nil {
		t.Fatal(err)
	}
	q.reader = newReader(t.Context(), c, l)
	t.Cleanup(q.operations.Attach(q.sub))
	return q
}

// wantChanges fails the test unless the changes since its last call, without repetitions, begin like this.
func (q *deniedQueue) wantChanges(t *testing.T, want ...string) {
	t.Helper()
	q.mu.Lock()
	defer q.mu.Unlock()
	q.changes = slices.Compact(q.changes)
	ok := len(q.changes) == len(want)
	for i := range want {
		ok = ok && strings.HasPrefix(q.changes[i], want[i])
	}
	if !ok {
		t.Errorf("the changes are %q, want %q", q.changes, want)
	}
	q.changes = nil
}

// The checks of the start are repeated every five minutes. A right that is missing for them says nothing about the queues: it
// was once reported as a setting that may lose messages. They are repeated earlier then, so that the end is noticed.
func TestADeniedCheckIsRepeatedSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newDeniedQueue(t, "orders.dlq")
		go q.checkRegularly(t.Context())
		<-time.After(checkInterval + time.Minute)
		q.wantChanges(t)
		q.denied.Store(true)
		<-time.After(checkInterval)
		q.wantChanges(t, "an operation fails: checking the queues on orders: amqp: configuration refused: right to configure is missing: must be given to the user for orders.dlq (")
		q.denied.Store(false)
		<-time.After(operationInterval)
		q.wantChanges(t, "an operation works again: checking the queues on orders")
	})
}

// Reading the notes is denied. That is reported at once and every minute, and its end is reported. A suspect waits for that,
// because its crashes would not be counted.
func TestDeniedNotes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newDeniedQueue(t, "orders.retry.place")
		q.denied.Store(true)
		s := &source{r: q.reader, lane: idleLane{posted: make(chan func(), 100)}, notes: q.newNotes(10)}
		defer s.notes.Close()
		s.suspectCtx, s.cancelSuspects = context.WithCancel(t.Context())
		defer s.cancelSuspects()
		d := new(slab).delivery(&amqp091.Delivery{MessageId: "a1"})
		s.needNote(d)
		go s.takeTurn(d)
		<-time.After(90 * time.Second)
		const fails = "an operation fails: basic.consume on orders.retry.place: basic.consume on orders.retry.place is denied: "
		q.wantChanges(t, fails, "suspect not marked: it waits in its place for its turn: ", fails)
		if d.hasTurn.Load() {
			t.Error("it has its turn")
		}
		q.denied.Store(false)
		<-time.After(10 * time.Second)
		q.wantChanges(t, "an operation works again: basic.consume on orders.retry.place")
	})
}

// The management API stops to answer while the service runs. That was once reported only at the start.
func TestTheManagementAPIStopsToAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newDeniedQueue(t, "")
		q.client.cfg.ManagementURL = "http://guest:guest@127.0.0.1:1"
		go q.checkRegularly(t.Context())
		<-time.After(3 * checkInterval)
		q.wantChanges(t, "not checked: policies and limits on the queues: the management API does not answer: ")
	})
}
