package kafka_test

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka"
	"github.com/redeliver/redeliver/driver"
)

// failFirst fails the first attempt of every message. If wait is not 0, the handler asks for a retry after it.
func failFirst(wait time.Duration) message.NoPublishHandlerFunc {
	return func(msg *message.Message) error {
		if st, _ := redeliver.FromContext(msg.Context()); st.Attempts == 0 {
			if wait > 0 {
				return redeliver.RetryAfter(errDeclined, wait)
			}
			return errDeclined
		}
		return nil
	}
}

func TestWaitsOfAnyLengthEndOnTime(t *testing.T) {
	t.Parallel()
	places := []string{"retry", "retry.400ms", "retry.1.2s"}
	for name, c := range map[string]struct {
		wait  time.Duration
		first string // where it waits first
		hops  []string
	}{
		"shorter than all levels is held": {200 * time.Millisecond, "retry", nil},
		"a level":                         {400 * time.Millisecond, "retry.400ms", nil},
		"a level and a hold":              {600 * time.Millisecond, "retry.400ms", nil},
		"longer than the largest level":   {2800 * time.Millisecond, "retry.1.2s", []string{"retry.1.2s"}},
		"two levels and a hold":           {1800 * time.Millisecond, "retry.1.2s", []string{"retry.400ms"}},
		"far longer":                      {5 * time.Second, "retry.1.2s", []string{"retry.1.2s", "retry.1.2s"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			addrs := fake(t, "orders").ListenAddrs()
			c2, ev := openClient(t, kafka.Config{
				Brokers: addrs, Group: "billing",
				// Without jitter, which would be held instead of hopped.
				Policy: redeliver.Policy{Backoff: redeliver.Fixed(time.Second), Levels: []time.Duration{400 * time.Millisecond, 1200 * time.Millisecond}},
			})
			route(t, c2, "orders", failFirst(c.wait))
			// At least one message of each kind must take the expected way: on a slow machine late writes and hops go
			// to lower levels.
			begin := time.Now()
			for round, first, whole := 0, false, false; !first || !whole; round++ {
				if round > 0 && time.Since(begin) > waitTimeout {
					t.Fatalf("a message waited on %s first: %v; and one went by %v: %v", c.first, first, c.hops, whole)
				}
				var recs []*kgo.Record
				var ids []string
				for i := range 20 {
					id := fmt.Sprintf("%d-%02d", round, i)
					recs, ids = append(recs, order("orders", id)), append(ids, id)
				}
				write(t, addrs, recs...)
				ev.awaitEnds(t, ids...)
				for _, s := range all[redeliver.RetryScheduled](ev) {
					where := strings.TrimPrefix(s.Where, "orders.billing.")
					if first = first || where == c.first; !slices.Contains(places[:slices.Index(places, c.first)+1], where) {
						t.Errorf("waits on %s first, want %s", where, c.first)
					}
				}
				for _, id := range ids {
					var hops []string
					for _, h := range all[redeliver.Hopped](ev) {
						if h.State.ID == id {
							hops = append(hops, strings.TrimPrefix(h.To, "orders.billing."))
						}
					}
					for i, to := range hops[:min(len(hops), len(c.hops))] {
						if !slices.Contains(places[:slices.Index(places, c.hops[i])+1], to) {
							t.Errorf("hops %v, want %v first", hops, c.hops)
						}
					}
					whole = whole || slices.Equal(hops[:min(len(hops), len(c.hops))], c.hops)
				}
			}
			ev.noneEarly(t)
			ev.noFindings(t)
		})
	}
}

// If an old level between two levels of the ladder bounded the lower one, longer waits would end with the lower level.
func TestAnOldLevelDoesNotMakeLongerWaitsEarly(t *testing.T) {
	t.Parallel()
	addrs := fake(t, "orders").ListenAddrs()
	old, _ := openClient(t, kafka.Config{Brokers: addrs, Group: "billing", Policy: redeliver.Policy{Levels: []time.Duration{500 * time.Millisecond}}})
	if err := old.Subscriber().SubscribeInitialize("orders"); err != nil {
		t.Fatal(err)
	}
	c, ev := openClient(t, kafka.Config{Brokers: addrs, Group: "billing", Policy: redeliver.Policy{Levels: []time.Duration{200 * time.Millisecond, 5 * time.Second}}})
	route(t, c, "orders", failFirst(1500*time.Millisecond))
	write(t, addrs, order("orders", "a"))
	ev.awaitEnds(t, "a")
	ev.noneEarly(t)
	ev.noFindings(t)
}

func TestLevelsOfAnOlderPolicyAreDrained(t *testing.T) {
	t.Parallel()
	addrs := fake(t, "orders").ListenAddrs()
	recs, ids := orders("orders", 1000)
	was, before := openClient(t, kafka.Config{Brokers: addrs, Group: "billing", Policy: redeliver.Policy{
		Backoff: redeliver.Fixed(4 * time.Second), Levels: []time.Duration{500 * time.Millisecond, 3 * time.Second},
	}})
	route(t, was, "orders", func(*message.Message) error { return errDeclined })
	write(t, addrs, recs...)
	before.await(t, len(ids), is[redeliver.RetryScheduled])
	if err := was.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	now, ev := openClient(t, kafka.Config{Brokers: addrs, Group: "billing", Policy: redeliver.Policy{Levels: []time.Duration{100 * time.Millisecond}}})
	route(t, now, "orders", failFirst(0))
	ev.awaitEnds(t, ids...)
	ev.noneEarly(t, before)
	ev.noFindings(t)
	if dead := all[redeliver.DeadLettered](ev); len(dead) > 0 {
		t.Errorf("%d dead-lettered, %+v is one", len(dead), dead[0])
	}
}

func TestADelayedPublishReachesEveryGroupOnceAndNotEarly(t *testing.T) {
	t.Parallel()
	addrs := fake(t, "orders").ListenAddrs()
	policy := redeliver.Policy{Levels: []time.Duration{100 * time.Millisecond, 300 * time.Millisecond}}
	billing, ev1 := openClient(t, kafka.Config{Brokers: addrs, Group: "billing", Policy: policy})
	mail, ev2 := openClient(t, kafka.Config{Brokers: addrs, Group: "mail", Policy: policy})
	ok := func(msg *message.Message) error {
		if string(kafka.RecordFromContext(msg.Context()).Key) != "k-"+msg.UUID || string(msg.Payload) != msg.UUID {
			t.Errorf("%s came as %q under key %q", msg.UUID, msg.Payload, kafka.RecordFromContext(msg.Context()).Key)
		}
		return nil
	}
	route(t, billing, "orders", ok)
	route(t, mail, "orders", ok)
	due := make(map[string]time.Time)
	var msgs []*message.Message
	var ids []string
	for i, wait := range []time.Duration{20 * time.Millisecond, 100 * time.Millisecond, 250 * time.Millisecond, 700 * time.Millisecond, 1500 * time.Millisecond} {
		id := string(rune('a' + i))
		msg := message.NewMessage(id, []byte(id))
		kafka.SetKey(msg, []byte("k-"+id))
		delay.Message(msg, delay.For(wait))
		due[id] = time.Now().Add(wait)
		msgs, ids = append(msgs, msg), append(ids, id)
	}
	if err := billing.Publisher().Publish("orders", msgs...); err != nil {
		t.Fatal(err)
	}
	for name, ev := range map[string]*events{"billing": ev1, "mail": ev2} {
		ev.awaitEnds(t, ids...)
		ev.noFindings(t)
		for _, a := range all[redeliver.Attempted](ev) {
			if a.State.Attempt() != 1 || a.State.Group != name {
				t.Errorf("%s got %s as attempt %d of group %s", name, a.State.ID, a.State.Attempt(), a.State.Group)
			}
			if early := due[a.State.ID].Sub(a.Start); early > time.Millisecond { // For counts from its own now
				t.Errorf("%s got %s %s early", name, a.State.ID, early)
			}
		}
	}
	if n := count(t, addrs, "orders"); n != int64(len(ids)) {
		t.Errorf("%d records on the origin, want %d", n, len(ids))
	}
	for name, ev := range map[string]*events{"billing": ev1, "mail": ev2} {
		for id, n := range ev.attempts() {
			if n != 1 {
				t.Errorf("%s got %s %d times", name, id, n)
			}
		}
	}
}

func TestLostOffsetsLoseNoWaitingMessage(t *testing.T) {
	t.Parallel()
	cluster := fake(t, "orders")
	addrs := cluster.ListenAddrs()
	cfg := kafka.Config{Brokers: addrs, Group: "billing", Policy: redeliver.Policy{Backoff: redeliver.Fixed(2 * time.Second), Levels: []time.Duration{2 * time.Second}}}
	recs, ids := orders("orders", 1000)
	was, before := openClient(t, cfg)
	route(t, was, "orders", func(*message.Message) error { return errDeclined })
	write(t, addrs, recs...)
	before.await(t, len(ids), func(e redeliver.Event) bool {
		r, ok := e.(redeliver.RetryScheduled)
		return ok && r.State.Attempts == 1 // on a slow machine some have come back already
	})
	if err := was.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	adm := kadm.NewClient(independent(t, addrs))
	if _, err := adm.DeleteGroup(t.Context(), "billing"); err != nil {
		t.Fatal(err)
	}
	offsets, err := adm.FetchOffsets(t.Context(), "billing")
	if err == nil && len(offsets) > 0 {
		t.Fatalf("offsets are still there: %v", offsets)
	}
	// sarama's default is Newest. Waiting messages are read from the start in any case.
	cfg.SkipExisting = true
	now, ev := openClient(t, cfg)
	route(t, now, "orders", failFirst(0))
	ev.awaitEnds(t, ids...)
	ev.noneEarly(t, before)
	for _, a := range all[redeliver.Attempted](ev) {
		if a.State.Attempt() == 1 {
			t.Errorf("%s ran again; the origin's old records must be skipped", a.State.ID)
		}
	}
}

func TestNewestSkipsOldRecordsAndLosesNoFirstFailure(t *testing.T) {
	t.Parallel()
	for name, strategy := range strategies {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			addrs := fake(t, "orders").ListenAddrs()
			write(t, addrs, order("orders", "old"))
			// A first failure that was written before any member had joined: another member failed it and died before
			// its first commit.
			c0, _ := openClient(t, kafka.Config{Brokers: addrs, Group: "billing", Policy: redeliver.Policy{Levels: []time.Duration{100 * time.Millisecond}}})
			if err := c0.Subscriber().SubscribeInitialize("orders"); err != nil {
				t.Fatal(err)
			}
			st := redeliver.State{
				ID: "failed", Group: "billing", Origin: "orders", Attempts: 1, Due: time.Now().Add(100 * time.Millisecond),
				FirstFailed: time.Now(), LastFailed: time.Now(), Source: redeliver.Source{Known: true, Partition: 1, Offset: 7},
			}
			put(t, addrs, ours("orders.billing.retry.100ms", "failed", st))
			cfg := kafka.Config{Brokers: addrs, Group: "billing", Policy: redeliver.Policy{Levels: []time.Duration{100 * time.Millisecond}}, Sarama: sarama.NewConfig(), SkipExisting: true}
			cfg.Sarama.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{strategy()}
			var oldSeen atomic.Int32
			handler := func(msg *message.Message) error {
				if msg.UUID == "old" {
					oldSeen.Add(1)
				}
				return failFirst(0)(msg)
			}
			c1, ev1 := openClient(t, cfg)
			route(t, c1, "orders", handler)
			ev1.awaitJoined(t, 1)
			cfg.Sarama.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{strategy()}
			c2, ev2 := openClient(t, cfg) // cooperative members get partitions late
			route(t, c2, "orders", handler)
			ev2.awaitJoined(t, 1)
			recs, ids := orders("orders", 40)
			write(t, addrs, recs...)
			both := newEvents()
			eventually(t, "all new records and the first failure end", func() bool {
				both.list = nil
				for _, ev := range []*events{ev1, ev2} {
					for _, c := range all[redeliver.Committed](ev) {
						both.list = append(both.list, c)
					}
				}
				got := make(map[string]bool)
				for _, c := range all[redeliver.Committed](both) {
					got[c.State.ID] = true
				}
				for _, id := range append(ids, "failed") {
					if !got[id] {
						return false
					}
				}
				return true
			})
			if oldSeen.Load() > 0 {
				t.Error("a record from before the first join was delivered, although the caller asked for Newest")
			}
		})
	}
}

// ours makes a record as redeliver writes it.
func ours(topic, id string, st redeliver.State) *kgo.Record {
	rec := order(topic, id)
	for _, h := range driver.AppendStateHeaders(st, nil) {
		rec.Headers = append(rec.Headers, kgo.RecordHeader{Key: h.Name, Value: []byte(h.Value)})
	}
	return rec
}

var strategies = map[string]func() sarama.BalanceStrategy{
	"range":              sarama.NewBalanceStrategyRange,
	"cooperative sticky": sarama.NewBalanceStrategyCooperativeSticky,
}
