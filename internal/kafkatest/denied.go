package kafkatest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka"
	"github.com/redeliver/redeliver/internal/observed"
)

// Denied is a service on an in-process Kafka, of which operations are denied one after another.
type Denied struct {
	Cluster      *kfake.Cluster
	Topic, Group string
	// Begin starts the service with a sink. It returns the error of a refused start.
	Begin func(t *testing.T, sink redeliver.Sink) (stop func(), err error)
	// Rebalance makes the service join its group again.
	Rebalance func()
	// Wished says why the service can do without an operation, or returns "". An event tells all the same.
	Wished func(op Operation) string

	writer *kgo.Client // knows the origin, so that the test's own requests are not denied
	n      int
	mu     sync.Mutex
	events []redeliver.Event
}

// NewDenied starts the in-process Kafka. The caller sets Begin, Rebalance and Wished.
func NewDenied(t *testing.T, topic, group string) *Denied {
	t.Helper()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, topic), kfake.GroupMinSessionTimeout(time.Second),
		kfake.BrokerConfigs(map[string]string{"group.initial.rebalance.delay.ms": "0"}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	d := &Denied{Cluster: cluster, Topic: topic, Group: group}
	if d.writer, err = kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.writer.Close)
	d.Put(t, "fine")
	return d
}

// Event implements [redeliver.Sink].
func (d *Denied) Event(e redeliver.Event) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.events = append(d.events, e)
}

// Put writes a message, and returns its id. Handle says what becomes of it.
func (d *Denied) Put(t *testing.T, what string) string {
	t.Helper()
	d.n++
	id := fmt.Sprint(what, d.n)
	d.write(t, &kgo.Record{Topic: d.Topic, Key: []byte(id), Value: []byte(id), Headers: []kgo.RecordHeader{{Key: kafka.UUIDHeader, Value: []byte(id)}}})
	return id
}

func (d *Denied) write(t *testing.T, rec *kgo.Record) {
	t.Helper()
	if err := d.writer.ProduceSync(t.Context(), rec).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

// Command writes a record to the control topic, which must exist.
func (d *Denied) Command(t *testing.T) {
	t.Helper()
	d.write(t, &kgo.Record{Topic: d.Ours("control"), Key: []byte("seen"), Value: []byte("{}")})
}

// Ours returns the name of a topic of redeliver's, such as "retry" or "dlq".
func (d *Denied) Ours(suffix string) string { return d.Topic + "." + d.Group + "." + suffix }

var errDenied = errors.New("card declined")

// Handle is the handler of the service.
func (d *Denied) Handle(id string) error {
	switch {
	case strings.HasPrefix(id, "fails"):
		return errDenied
	case strings.HasPrefix(id, "short"): // it waits on the retry topic
		return redeliver.RetryAfter(errDenied, 20*time.Millisecond)
	case strings.HasPrefix(id, "long"):
		return redeliver.RetryAfter(errDenied, 2*time.Hour)
	}
	return nil
}

// Serve handles the messages of the origin behind middleware.Retry until stop is called, which then calls closeClient.
func (d *Denied) Serve(sub message.Subscriber, retry message.HandlerMiddleware, closeClient func()) (stop func(), err error) {
	ctx, cancel := context.WithCancel(context.Background())
	messages, err := sub.Subscribe(ctx, d.Topic)
	handle := retry(func(m *message.Message) ([]*message.Message, error) { return nil, d.Handle(m.UUID) })
	var done sync.WaitGroup
	if err == nil {
		done.Go(func() {
			for m := range messages {
				if _, err := handle(m); err != nil {
					m.Nack()
				}
				m.Ack()
			}
		})
	}
	stop = func() {
		cancel()
		done.Wait()
		closeClient()
	}
	if err != nil {
		stop()
	}
	return stop, err
}

// changes returns the changes of the subscription after the first n ones.
func (d *Denied) changes(n int) (all []redeliver.SubscriptionChanged) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, e := range d.events {
		if e, ok := e.(redeliver.SubscriptionChanged); ok {
			all = append(all, e)
		}
	}
	return all[n:]
}

// troubles returns the problems that events report, as readiness counts them: those that began, and those that last.
func troubles(changes []redeliver.SubscriptionChanged) (began bool, last map[string]bool) {
	last = make(map[string]bool)
	for _, e := range changes {
		for _, t := range observed.Transitions[e.Change] {
			if delete(last, t.Problem); t.Begins {
				last[t.Problem] = true
				began = began || t.Problem != "commands are not read" // that does not affect readiness
			}
		}
	}
	return began, last
}

// names reports whether one of the events names an operation's right, its place and the error.
func names(changes []redeliver.SubscriptionChanged, op Operation) bool {
	return slices.ContainsFunc(changes, func(e redeliver.SubscriptionChanged) bool {
		return e.Err != nil && strings.Contains(e.Err.Error(), op.Need()) && strings.Contains(strings.ToLower(e.Err.Error()), "authoriz")
	})
}

// deniedWaits bounds the waits for an event and for the recovery. The intervals of the services are a hundredth of the real
// ones.
const deniedWaits = 30 * time.Second

// Within waits until ok, and reports whether it was in time.
func Within(d time.Duration, ok func() bool) bool {
	for end := time.Now().Add(d); !ok(); <-time.After(20 * time.Millisecond) {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}

// wantReported waits until an event after the first n changes reports that an operation is denied, and readiness showed
// that. A refused write of a copy that is soon due goes to the retry topic instead, so the trouble may be over.
func (d *Denied) wantReported(t *testing.T, op Operation, n int) {
	t.Helper()
	reported := func() bool {
		changes := d.changes(n)
		began, _ := troubles(changes)
		return names(changes, op) && (began || d.Wished(op) != "")
	}
	for range 6 { // a service may use an operation only for new messages
		if Within(deniedWaits/6, reported) {
			return
		}
		d.Put(t, "fine")
		d.Put(t, "fails")
	}
	began, _ := troubles(d.changes(n))
	t.Errorf("an event names it: %t; it was not ready: %t", names(d.changes(n), op), began)
	for _, e := range d.changes(n) {
		t.Logf("%s: %s: %v", e.Change, e.Detail, e.Err)
	}
}

// WantWorks waits until a new message succeeds, another one is dead-lettered, and readiness is green.
func (d *Denied) WantWorks(t *testing.T) {
	t.Helper()
	fine, fails := d.Put(t, "fine"), d.Put(t, "fails")
	inTime := Within(deniedWaits, func() bool { return d.ended(fine) && d.ended(fails) })
	ready := inTime && Within(deniedWaits, func() bool {
		_, last := troubles(d.changes(0))
		return len(last) == 0
	})
	if !ready {
		_, last := troubles(d.changes(0))
		all := d.changes(0)
		for _, e := range all[max(0, len(all)-10):] {
			t.Logf("%s: %s: %v", e.Change, e.Detail, e.Err)
		}
		t.Fatalf("%s ended: %t, %s: %t; the troubles are %v", fine, d.ended(fine), fails, d.ended(fails), last)
	}
}

func (d *Denied) ended(id string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.ContainsFunc(d.events, func(e redeliver.Event) bool {
		switch e := e.(type) {
		case redeliver.Committed:
			return e.State.ID == id
		case redeliver.DeadLettered:
			return e.State.ID == id
		}
		return false
	})
}

// traffic writes messages of all kinds and a command, and makes the service join again.
func (d *Denied) traffic(t *testing.T) {
	t.Helper()
	for _, what := range []string{"fine", "fails", "short"} {
		d.Put(t, what)
	}
	d.Command(t)
	d.Rebalance()
}

// Record runs the service without a denial, and returns its operations. The writer's own are left out. meanwhile is
// called while it runs.
func (d *Denied) Record(t *testing.T, meanwhile func(*Operations)) []Operation {
	t.Helper()
	record := RecordOperations(d.Cluster)
	stop, err := d.Begin(t, d)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	d.WantWorks(t)
	d.traffic(t)
	if !Within(deniedWaits, func() bool {
		return slices.ContainsFunc(record.Used(), func(op Operation) bool { return op.Key.Name() == "DeleteRecords" })
	}) {
		t.Error("no settled record was deleted")
	}
	meanwhile(record)
	d.traffic(t)
	d.WantWorks(t)
	return slices.DeleteFunc(record.Used(), func(op Operation) bool {
		return op.Key.Name() == "Produce" && (op.Name == d.Topic || op.Name == d.Ours("control"))
	})
}

// During denies operations while the service runs, one after another. An event names the right, its place and the error,
// and the service is not ready. When the right is back, it is ready, and messages run.
func (d *Denied) During(t *testing.T, ops []Operation) {
	t.Helper()
	stop, err := d.Begin(t, d)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	d.WantWorks(t)
	for _, op := range ops {
		t.Run(op.String(), func(t *testing.T) { d.deny(t, op, func() {}) })
	}
}

// deny denies an operation while the service runs. It calls then when it is denied.
func (d *Denied) deny(t *testing.T, op Operation, then func()) {
	t.Helper()
	n := len(d.changes(0))
	denied := op.Deny(d.Cluster)
	defer denied.Remove()
	then()
	for try := 0; !Within(time.Second, func() bool { return denied.Hits() > 0 }); try++ {
		if try == 10 {
			t.Fatal("it was not needed")
		}
		d.traffic(t)
	}
	d.wantReported(t, op, n)
	denied.Remove()
	if op.Key == kmsg.DeleteRecords { // no event says that it works again, and another refusal within a minute is not reported
		if again := RecordOperations(d.Cluster); !Within(deniedWaits, func() bool { return slices.Contains(again.Used(), op) }) {
			t.Fatal("it was not tried again")
		}
	}
	d.WantWorks(t)
}

// Deleted deletes a topic while the service runs and may not create it again.
func (d *Denied) Deleted(t *testing.T, topic string) {
	t.Helper()
	stop, err := d.Begin(t, d)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	d.WantWorks(t)
	d.deny(t, Operation{kmsg.CreateTopics, "topic", topic}, func() {
		if _, err := kadm.NewClient(d.writer).DeleteTopic(t.Context(), topic); err != nil {
			t.Fatal(err)
		}
	})
}

// Before denies an operation before the service starts. The start is refused with an error that names the right and its
// place, or the service does without it, or reports it as during a run.
func (d *Denied) Before(t *testing.T, op Operation) {
	t.Helper()
	n := len(d.changes(0))
	denied := op.Deny(d.Cluster)
	defer denied.Remove()
	stop, err := d.Begin(t, d)
	if err != nil {
		if !strings.Contains(err.Error(), op.Need()) {
			t.Errorf("the error does not name %s: %v", op.Need(), err)
		}
		return
	}
	defer stop()
	d.Put(t, "fails")
	d.Put(t, "short")
	if !Within(deniedWaits, func() bool { return denied.Hits() > 0 }) {
		t.Fatal("it was not needed")
	}
	d.wantReported(t, op, n)
	denied.Remove()
	d.WantWorks(t)
}
