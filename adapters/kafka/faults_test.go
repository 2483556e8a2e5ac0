package kafka_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka"
)

// quick returns a policy with one level of 100 ms. Its backoff leaves room for writes that are late.
func quick(retries int) redeliver.Policy {
	return redeliver.Policy{Outage: redeliver.Outage{Off: true}, MaxRetries: retries, Backoff: redeliver.Fixed(180 * time.Millisecond), Levels: []time.Duration{100 * time.Millisecond}}
}

// unacked returns the lowest uncommitted offset of a partition. It is 0 if the group has committed nothing.
func unacked(t *testing.T, addrs []string, group, topic string, partition int32) int64 {
	t.Helper()
	offsets, err := kadm.NewClient(independent(t, addrs)).FetchOffsets(t.Context(), group)
	if err != nil && !errors.Is(err, kerr.GroupIDNotFound) {
		t.Fatal(err)
	}
	o, ok := offsets.Lookup(topic, partition)
	if !ok {
		return 0
	}
	return max(0, o.At)
}

func TestARefusedWriteIsRetriedWithoutTheHandler(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		topic   string
		retries int
		taken   func(redeliver.Event) bool
	}{
		"delay topic": {"orders.billing.retry.100ms", 1, is[redeliver.RetryScheduled]},
		"DLQ":         {"orders.billing.dlq", redeliver.NoRetries, is[redeliver.DeadLettered]},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := fake(t, "orders")
			addrs := cluster.ListenAddrs()
			cl, ev := openClient(t, kafka.Config{Brokers: addrs, Group: "billing", Policy: quick(c.retries)})
			if err := cl.Subscriber().SubscribeInitialize("orders"); err != nil {
				t.Fatal(err)
			}
			refuse := kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: c.topic, Err: kerr.NotEnoughReplicas, Count: -1}
			due := refuse // the next topic of the message
			due.Topic = "orders.billing.retry"
			fault := cluster.Fault(refuse, due)
			var runs atomic.Int32
			route(t, cl, "orders", func(*message.Message) error {
				runs.Add(1)
				return errDeclined
			})
			put(t, addrs, order("orders", "a"))
			tries := ev.await(t, 2, is[redeliver.PublishFailed])
			if n := runs.Load(); n != 1 {
				t.Errorf("the handler ran %d times while the write was refused", n)
			}
			if f := tries[0].(redeliver.PublishFailed); f.Where != c.topic || !errors.Is(f.Err, sarama.ErrNotEnoughReplicas) {
				t.Errorf("refused: %+v", f)
			}
			if ev.count(isChange(redeliver.ChangeIntakePaused)) != 1 || ev.count(isChange(redeliver.ChangeIntakeResumed)) != 0 {
				t.Error("the intake is not paused, or was reported more than once")
			}
			put(t, addrs, order("orders", "b")) // it comes while the intake is paused
			ev.await(t, 3, is[redeliver.PublishFailed])
			if n := runs.Load(); n != 1 {
				t.Errorf("%d handlers ran while the intake was paused", n)
			}
			if off := unacked(t, addrs, "billing", "orders", 0); off != 0 {
				t.Errorf("offset %d is committed although the message was written nowhere", off)
			}
			fault.Remove()
			ev.await(t, 2, c.taken)
			ev.await(t, 1, isChange(redeliver.ChangeIntakeResumed))
			ev.awaitEnds(t, "a", "b")
			eventually(t, "both are committed", func() bool { return unacked(t, addrs, "billing", "orders", 0) == 2 })
			ev.noneEarly(t)
			for id, n := range ev.attempts() {
				if want := max(0, c.retries) + 1; n != want {
					t.Errorf("%s ran %d times, want %d", id, n, want)
				}
			}
			if n := count(t, addrs, c.topic) + count(t, addrs, "orders.billing.retry"); n != 2 {
				t.Errorf("%d records on %s, want 2", n, c.topic)
			}
		})
	}
}

// The broker has the record but reports a timeout. The idempotent producer sends the record again, and the broker
// recognizes it.
func TestATimeoutAfterTheAppendLosesNothing(t *testing.T) {
	t.Parallel()
	for _, topic := range []string{"orders.billing.retry.100ms", "orders.billing.dlq"} {
		t.Run(topic, func(t *testing.T) {
			t.Parallel()
			cluster := fake(t, "orders")
			addrs := cluster.ListenAddrs()
			cl, ev := openClient(t, kafka.Config{Brokers: addrs, Group: "billing", Policy: quick(1)})
			if err := cl.Subscriber().SubscribeInitialize("orders"); err != nil {
				t.Fatal(err)
			}
			fault := cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: topic, Err: kerr.RequestTimedOut, Count: 6})
			route(t, cl, "orders", func(*message.Message) error { return errDeclined })
			recs, ids := orders("orders", 100)
			write(t, addrs, recs...)
			ev.awaitEnds(t, ids...)
			ev.noneEarly(t)
			if fault.Hits() == 0 {
				t.Fatal("nothing timed out")
			}
			dead := make(map[string]int)
			for _, rec := range read(t, addrs, "orders.billing.dlq", len(ids)) {
				dead[string(rec.Key)]++
			}
			for _, id := range ids {
				if dead[id] == 0 {
					t.Errorf("%s is not in the DLQ", id)
				}
			}
			t.Logf("report: %d time-outs after the append made %d and %d duplicates", fault.Hits(),
				count(t, addrs, "orders.billing.retry.100ms")-int64(len(ids)), count(t, addrs, "orders.billing.dlq")-int64(len(ids)))
		})
	}
}

func TestGroupErrorsLoseNothing(t *testing.T) {
	for name, inject := range map[string]func(c *kfake.Cluster) *kfake.FaultHandle{
		"the coordinator moves": func(c *kfake.Cluster) *kfake.FaultHandle { c.RehashCoordinators(); return nil },
		"the leaders move":      func(c *kfake.Cluster) *kfake.FaultHandle { c.ShufflePartitionLeaders(); return nil },
		"commits fail": func(c *kfake.Cluster) *kfake.FaultHandle {
			return c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetCommit}, Err: kerr.CoordinatorLoadInProgress, Count: 3})
		},
		"heartbeats fail": func(c *kfake.Cluster) *kfake.FaultHandle {
			return c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Heartbeat}, Err: kerr.UnknownMemberID, Count: 1})
		},
		"the broker closes connections": func(c *kfake.Cluster) *kfake.FaultHandle {
			for _, key := range []int16{int16(kmsg.Fetch), int16(kmsg.Produce), int16(kmsg.Heartbeat)} {
				c.ControlKey(key, func(kmsg.Request) (kmsg.Response, error, bool) { return nil, errors.New("closed"), true })
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster, err := kfake.NewCluster(kfake.NumBrokers(3), kfake.SeedTopics(4, "orders"),
				kfake.GroupMinSessionTimeout(time.Second), kfake.BrokerConfigs(map[string]string{"group.initial.rebalance.delay.ms": "0"}))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(cluster.Close)
			addrs := cluster.ListenAddrs()
			cl, ev := openClient(t, kafka.Config{Brokers: addrs, Group: "billing", Policy: quick(1)})
			route(t, cl, "orders", failFirst(0))
			ev.awaitJoined(t, 1)
			const rounds = 3
			var every []string
			for i := range rounds {
				recs, _ := orders("orders", 100)
				for _, r := range recs {
					id := string(rune('a'+i)) + string(r.Key)
					r.Key, r.Headers[0].Value = []byte(id), []byte(id)
					every = append(every, id)
				}
				write(t, addrs, recs...)
				ev.await(t, i*100+20, is[redeliver.Attempted])
				if fault := inject(cluster); fault != nil {
					if err := fault.Wait(t.Context(), 1); err != nil {
						t.Fatal(err)
					}
				}
			}
			ev.awaitEnds(t, every...)
			ev.noneEarly(t)
			twice := 0
			for _, n := range ev.attempts() {
				if n > 2 {
					twice += n - 2
				}
			}
			t.Logf("report: %d messages, %d attempts too many", len(every), twice)
		})
	}
}

// isChange matches a change of the subscription.
func isChange(to redeliver.Change) func(redeliver.Event) bool {
	return func(e redeliver.Event) bool {
		c, ok := e.(redeliver.SubscriptionChanged)
		return ok && c.Change == to
	}
}

// A write without an answer within SendTimeout may still succeed. A second write beside it would be a second copy with
// its own retries.
func TestASlowWriteIsNotRepeated(t *testing.T) {
	t.Parallel()
	for topic, taken := range map[string]func(redeliver.Event) bool{
		"orders.billing.retry.100ms": is[redeliver.RetryScheduled], "orders.billing.dlq": is[redeliver.DeadLettered],
	} {
		t.Run(topic, func(t *testing.T) {
			t.Parallel()
			cluster := fake(t, "orders")
			addrs := cluster.ListenAddrs()
			cl, ev := openClient(t, kafka.Config{Brokers: addrs, Group: "billing", Policy: quick(1), SendTimeout: 100 * time.Millisecond})
			if err := cl.Subscriber().SubscribeInitialize("orders"); err != nil {
				t.Fatal(err)
			}
			answer := make(chan struct{})
			cluster.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
				if produce, ok := req.(*kmsg.ProduceRequest); ok && produce.Topics[0].Topic == topic {
					cluster.SleepControl(func() { <-answer })
				} else {
					cluster.KeepControl()
				}
				return nil, nil, false
			})
			route(t, cl, "orders", func(*message.Message) error { return errDeclined })
			put(t, addrs, order("orders", "a"))
			ev.await(t, 1, func(e redeliver.Event) bool { // another write may be slow, too, on a slow machine
				f, ok := e.(redeliver.PublishFailed)
				return ok && f.Where == topic
			})
			ev.await(t, 1, isChange(redeliver.ChangeIntakePaused))
			close(answer)
			ev.await(t, 1, taken)
			ev.awaitEnds(t, "a")
			ev.await(t, 1, isChange(redeliver.ChangeIntakeResumed))
			ev.noneEarly(t)
			if n := count(t, addrs, topic); n != 1 {
				t.Errorf("%d records on %s, want 1", n, topic)
			}
		})
	}
}
