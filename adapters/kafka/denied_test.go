package kafka_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka"
	"github.com/redeliver/redeliver/internal/kafkatest"
	"github.com/redeliver/redeliver/internal/observed"
	"github.com/redeliver/redeliver/middleware"
)

// deniedRun is a service with all kinds of traffic, of which one operation is denied.
type deniedRun struct {
	*testing.T
	fixture
	writer *kgo.Client // knows the origin, so that the test's own requests are not denied
	ev     *events
	n      int
}

func newDeniedRun(t *testing.T) *deniedRun {
	t.Helper()
	r := &deniedRun{T: t, fixture: fixture{topic: "orders", group: "billing"}, ev: newEvents()}
	var err error
	r.cluster, err = kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, r.topic), kfake.GroupMinSessionTimeout(time.Second),
		kfake.BrokerConfigs(map[string]string{"group.initial.rebalance.delay.ms": "0"}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.cluster.Close)
	r.addrs = r.cluster.ListenAddrs()
	r.writer = independent(t, r.addrs)
	return r
}

// put writes a message, and returns its id.
func (r *deniedRun) put(what string) string {
	r.Helper()
	r.n++
	id := fmt.Sprint(what, r.n)
	if err := r.writer.ProduceSync(r.Context(), order(r.topic, id)).FirstErr(); err != nil {
		r.Fatal(err)
	}
	return id
}

// begin starts the service. The error of a refused start is on the channel that it returns.
func (r *deniedRun) begin() (client *kafka.Client, failed <-chan error, stop func()) {
	r.Helper()
	errs := make(chan error, 1)
	sc := withLongTimeouts(nil)
	sc.Consumer.Group.Session.Timeout, sc.Consumer.Group.Heartbeat.Interval = 2*time.Second, 200*time.Millisecond
	sc.Consumer.Retry.Backoff, sc.Consumer.Group.Rebalance.Retry.Backoff = 200*time.Millisecond, 50*time.Millisecond
	sc.Metadata.Retry.Backoff = 50 * time.Millisecond
	c, err := kafka.Open(r.Context(), kafka.Config{Brokers: r.addrs, Group: r.group, Sink: r.ev, Sarama: sc, Policy: redeliver.Policy{MaxRetries: 1, Backoff: redeliver.Fixed(180 * time.Millisecond), Outage: redeliver.Outage{Off: true}}})
	if err != nil {
		errs <- err
		return nil, errs, func() {}
	}
	kafka.SweepEvery(c, 300*time.Millisecond)
	ctx, cancel := context.WithCancel(context.Background())
	messages, err := c.Subscriber().Subscribe(ctx, r.topic)
	if err != nil {
		errs <- err
	}
	handle := middleware.Retry()(func(m *message.Message) ([]*message.Message, error) {
		switch {
		case strings.HasPrefix(m.UUID, "fails"):
			return nil, errDeclined
		case strings.HasPrefix(m.UUID, "short"): // it waits on the retry topic
			return nil, redeliver.RetryAfter(errDeclined, 20*time.Millisecond)
		case strings.HasPrefix(m.UUID, "long"):
			return nil, redeliver.RetryAfter(errDeclined, 2*time.Hour)
		}
		return nil, nil
	})
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
	return c, errs, func() {
		cancel()
		done.Wait()
		_ = c.Close(context.Background())
	}
}

// rebalance makes the service join its group again.
func (r *deniedRun) rebalance() *kfake.FaultHandle {
	return r.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Heartbeat}, Group: r.group, Err: kerr.RebalanceInProgress, Count: 1})
}

// troubles returns the problems that the events so far report, as readiness counts them.
func (r *deniedRun) troubles() map[string]bool {
	problems := map[string]bool{}
	for _, e := range all[redeliver.SubscriptionChanged](r.ev) {
		for _, t := range observed.Transitions[e.Change] {
			if t.Begins {
				problems[t.Problem] = true
			} else {
				delete(problems, t.Problem)
			}
		}
	}
	delete(problems, "commands are not read") // does not affect readiness
	return problems
}

// names reports whether an event after the first n ones names an operation's right, its place and the error.
func (r *deniedRun) names(op kafkatest.Operation, n int) bool {
	want := op.Need()
	return slices.ContainsFunc(all[redeliver.SubscriptionChanged](r.ev)[n:], func(e redeliver.SubscriptionChanged) bool {
		return e.Err != nil && strings.Contains(e.Err.Error(), want) && strings.Contains(e.Err.Error(), "not authorized")
	})
}

// deniedWaits bounds the waits for an event and for the recovery. The intervals of the test are a hundredth of the real ones.
const deniedWaits = 10 * time.Second

// within waits until ok, and reports whether it was in time.
func within(d time.Duration, ok func() bool) bool {
	for end := time.Now().Add(d); !ok(); <-time.After(20 * time.Millisecond) {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}

// wished is what the service can do without, and why. An event tells all the same.
func (r *deniedRun) wished(op kafkatest.Operation) string {
	switch {
	case op.Name == r.ours("control"):
		return "commands are not read; all else continues"
	case op.Key == kmsg.DeleteRecords:
		return "settled records stay"
	case op.Key == kmsg.CreateTopics && r.isRung(op):
		return "longer waits hop over the levels that are there"
	}
	return ""
}

func (r *deniedRun) isRung(op kafkatest.Operation) bool {
	level, ok := kafka.LevelOf(r.topic, r.group, op.Name)
	return ok && level > time.Second
}

// wantReported waits until an event reports that an operation is denied, and until readiness shows that.
func (r *deniedRun) wantReported(op kafkatest.Operation, since int) {
	r.Helper()
	// A refused write of a copy that is soon due goes to the retry topic instead, so the trouble may be over.
	notReady := func() bool {
		return slices.ContainsFunc(all[redeliver.SubscriptionChanged](r.ev)[since:], func(e redeliver.SubscriptionChanged) bool {
			return slices.ContainsFunc(observed.Transitions[e.Change], func(t observed.Transition) bool { return t.Begins })
		})
	}
	if !within(deniedWaits, func() bool { return r.names(op, since) && (r.wished(op) != "" || notReady()) }) {
		r.Errorf("an event names it: %t; the troubles are %v", r.names(op, since), r.troubles())
		for _, e := range all[redeliver.SubscriptionChanged](r.ev)[since:] {
			r.Logf("%s: %s: %v", e.Change, e.Detail, e.Err)
		}
	}
}

// wantWorks waits until a new message succeeds, another one is dead-lettered, and readiness is green.
func (r *deniedRun) wantWorks() {
	r.Helper()
	fine, fails := r.put("fine"), r.put("fails")
	ended := func(id string) bool {
		return slices.ContainsFunc(all[redeliver.Committed](r.ev), func(e redeliver.Committed) bool { return e.State.ID == id }) ||
			slices.ContainsFunc(all[redeliver.DeadLettered](r.ev), func(e redeliver.DeadLettered) bool { return e.State.ID == id })
	}
	if !within(deniedWaits, func() bool { return ended(fine) && ended(fails) }) {
		r.Fatalf("ended: %t, %t; the troubles are %v", ended(fine), ended(fails), r.troubles())
	}
	if !within(deniedWaits, func() bool { return len(r.troubles()) == 0 }) {
		r.Errorf("it works, but the troubles are %v", r.troubles())
	}
}

// operations returns those of a run of the service. The writer's own are left out.
func (r *deniedRun) operations(record *kafkatest.Operations) []kafkatest.Operation {
	return slices.DeleteFunc(record.Used(), func(op kafkatest.Operation) bool {
		return op.Key == kmsg.Produce && op.Name == r.topic
	})
}

// recordedRun runs the service without a denial, and returns its operations.
func recordedRun(t *testing.T) (*deniedRun, []kafkatest.Operation) {
	t.Helper()
	r := newDeniedRun(t)
	r.put("fine")
	r.writeControl(t, "seen", "a member reads the control topic") // creates it
	record := kafkatest.RecordOperations(r.cluster)
	client, _, stop := r.begin()
	defer stop()
	r.ev.awaitJoined(t, 1)
	r.wantWorks()
	r.put("long")
	r.put("short")
	eventually(t, "the rungs exist", func() bool { return r.cluster.TopicInfo(r.ours("retry.1h")) != nil })
	eventually(t, "a settled record is deleted", func() bool {
		return slices.ContainsFunc(record.Used(), func(op kafkatest.Operation) bool { return op.Key == kmsg.DeleteRecords })
	})
	r.rebalance()
	r.wantWorks()
	used := r.operations(record)
	plan, err := client.Plan(t.Context(), r.topic)
	if err != nil {
		t.Fatal(err)
	}
	r.wantPlanned(used, plan)
	return r, used
}

// wantPlanned checks that the rights of a plan are those that the operations need.
func (r *deniedRun) wantPlanned(used []kafkatest.Operation, plan *kafka.Plan) {
	r.Helper()
	planned := make(map[string]bool) // whether it was needed
	for _, right := range plan.Rights {
		for _, op := range right.Operations {
			planned[op+" on "+right.Resource+" "+right.Name] = false
		}
	}
	for _, op := range used {
		place := " on " + op.Kind + " " + op.Name
		needed := op.Need()
		_, known := planned[needed]
		switch {
		case known:
			planned[needed] = true
		case op.Right() == "Describe" && slices.ContainsFunc([]string{"Read", "Write", "Delete"}, func(right string) bool {
			_, known := planned[right+place]
			return known
		}): // they include it
		case op.Key == kmsg.CreateTopics && slices.ContainsFunc(plan.Topics, func(t kafka.PlannedTopic) bool { return t.Name == op.Name }):
			// The rights are for topics that exist, and the plan says which are created.
		case op.Key == kmsg.InitProducerID: // Write on one topic is enough
		default:
			r.Errorf("%s needs %s, which the plan does not name", op, needed)
		}
	}
	for right, needed := range planned {
		if !needed && !strings.Contains(right, "retry.1") && !(strings.HasPrefix(right, "Write") || strings.HasPrefix(right, "Delete")) {
			r.Errorf("the plan names %s, which was not needed", right)
		}
	}
}

// denyDuring denies operations while the service runs, one after another. An event names the right, its place and the
// error, and the service is not ready. When the right is back, it is ready, and messages run.
func denyDuring(t *testing.T, r *deniedRun, ops []kafkatest.Operation) {
	t.Helper()
	_, failed, stop := r.begin()
	defer stop()
	r.wantWorks()
	for _, op := range ops {
		t.Run(op.String(), func(t *testing.T) {
			r := *r
			r.T = t
			since := len(all[redeliver.SubscriptionChanged](r.ev))
			denied := op.Deny(r.cluster)
			defer denied.Remove()
			for try := 0; !within(time.Second, func() bool { return denied.Hits() > 0 }); try++ {
				if try == 10 {
					t.Fatal("it was not needed")
				}
				r.put("fine")
				r.put("fails")
				r.put("short")
				r.writeControl(t, "seen", "again")
				r.rebalance()
			}
			r.wantReported(op, since)
			denied.Remove()
			r.wantWorks()
		})
		r.n += 100 // the subtest has a copy
	}
	if len(failed) > 0 {
		t.Error(<-failed)
	}
}

// Some operations are denied alone while the service runs: a few of each kind. The proof denies all of them.
func TestOperationsDeniedAlone(t *testing.T) {
	t.Parallel()
	r, used := recordedRun(t)
	denyDuring(t, r, slices.DeleteFunc(used, func(op kafkatest.Operation) bool {
		switch op {
		case kafkatest.Operation{Key: kmsg.Fetch, Kind: "topic", Name: r.topic},
			kafkatest.Operation{Key: kmsg.Metadata, Kind: "topic", Name: r.ours("retry")},
			kafkatest.Operation{Key: kmsg.OffsetCommit, Kind: "topic", Name: r.topic},
			kafkatest.Operation{Key: kmsg.DescribeConfigs, Kind: "topic", Name: r.ours("dlq")},
			kafkatest.Operation{Key: kmsg.Produce, Kind: "topic", Name: r.ours("retry.180ms")},
			kafkatest.Operation{Key: kmsg.JoinGroup, Kind: "group", Name: r.group}:
			return false
		}
		return true
	}))
}
