package kafka_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka"
)

func TestRedeliverHeadersOnTheOriginAreIgnored(t *testing.T) {
	t.Parallel()
	addrs := fake(t, "orders").ListenAddrs()
	c, ev := openClient(t, kafka.Config{Brokers: addrs, Group: "billing", Policy: quick(1)})
	route(t, c, "orders", failFirst(0))
	put(t, addrs, ours("orders", "a", redeliver.State{
		ID: "another", Group: "billing", Origin: "elsewhere", Attempts: 50, Due: time.Now().Add(time.Hour), Reason: redeliver.ReasonExhausted,
	}))
	ev.awaitEnds(t, "a")
	attempts := all[redeliver.Attempted](ev)
	if len(attempts) != 2 || attempts[0].State.Attempts != 0 || attempts[0].State.Origin != "orders" {
		t.Errorf("attempts %+v, want 1 and 2 of a message from orders", attempts)
	}
	found := all[redeliver.HeadersIgnored](ev)
	if len(found) != 1 || found[0].Topic != "orders" || found[0].ID != "a" || len(found[0].Findings) < 5 {
		t.Errorf("reported %+v, want every forged header once", found)
	}
}

func TestGarbageOnADelayTopicRunsOrIsDeadLettered(t *testing.T) {
	t.Parallel()
	now := time.Now()
	good := redeliver.State{
		Group: "billing", Origin: "orders", Attempts: 1, Due: now, FirstFailed: now, LastFailed: now,
		Source: redeliver.Source{Known: true, Partition: 0, Offset: 1},
	}
	with := func(name, value string) func(*kgo.Record) {
		return func(r *kgo.Record) {
			for i := range r.Headers {
				if r.Headers[i].Key == name {
					r.Headers[i].Value = []byte(value)
					return
				}
			}
			r.Headers = append(r.Headers, kgo.RecordHeader{Key: name, Value: []byte(value)})
		}
	}
	cases := []struct {
		name    string
		corrupt func(*kgo.Record)
		fine    bool // there are no findings
		runs    int  // attempts of a handler that always fails, with two retries
	}{
		{"as written", func(*kgo.Record) {}, true, 2},
		{"no block", func(r *kgo.Record) { r.Headers = r.Headers[:1] }, false, 3},
		{"negative attempts", with(redeliver.HeaderAttempt, "-5"), false, 2},
		{"huge attempts", with(redeliver.HeaderAttempt, "99999999999999999999"), false, 2},
		{"attempts in words", with(redeliver.HeaderAttempt, "many"), false, 2},
		{"another group", with(redeliver.HeaderGroup, "mail"), false, 3},
		{"another origin", with(redeliver.HeaderOrigin, "secrets"), true, 2},
		{"due long ago", with(redeliver.HeaderDue, "0001-01-01T00:00:01Z"), true, 2},
		{"due in words", with(redeliver.HeaderDue, "soon"), false, 2},
		{"no UTF-8", with(redeliver.HeaderError, "\xff\xfe"), false, 2},
		{"a foreign reason", with(redeliver.HeaderReason, "because"), false, 2},
		{"a place out of range", with(redeliver.HeaderOriginOffset, "-1"), false, 2},
		{"written in ten years", func(r *kgo.Record) { r.Timestamp = now.AddDate(10, 0, 0) }, true, 2},
		{"written in ten years, no due time", func(r *kgo.Record) {
			r.Timestamp = now.AddDate(10, 0, 0)
			with(redeliver.HeaderDue, "soon")(r)
		}, false, 2},
		{"written in 1970", func(r *kgo.Record) { r.Timestamp = time.UnixMilli(1) }, true, 2},
		{"thousands of headers", func(r *kgo.Record) {
			for i := range 9_000 {
				r.Headers = append(r.Headers, kgo.RecordHeader{Key: redeliver.HeaderDue, Value: fmt.Append(nil, i)})
			}
		}, false, 2},
	}
	for _, topic := range []string{"orders.billing.retry.100ms", "orders.billing.retry.300ms", "orders.billing.retry"} {
		for _, tc := range cases {
			t.Run(topic+"/"+tc.name, func(t *testing.T) {
				t.Parallel()
				addrs := fake(t, "orders").ListenAddrs()
				c, ev := openClient(t, kafka.Config{Brokers: addrs, Group: "billing", Policy: redeliver.Policy{
					MaxRetries: 2, Backoff: redeliver.Fixed(100 * time.Millisecond), Levels: []time.Duration{100 * time.Millisecond, 300 * time.Millisecond},
				}})
				if err := c.Subscriber().SubscribeInitialize("orders"); err != nil {
					t.Fatal(err)
				}
				st := good
				st.ID = "garbage"
				bad := ours(topic, "garbage", st)
				tc.corrupt(bad)
				next := good
				next.ID = "next"
				next.Due = time.Now()
				put(t, addrs, bad, ours(topic, "next", next))
				route(t, c, "orders", func(msg *message.Message) error {
					if string(msg.Payload) == "next" {
						return nil
					}
					return errDeclined
				})
				ev.awaitEnds(t, "garbage", "next")
				if n := ev.attempts()["garbage"]; n != tc.runs {
					t.Errorf("the handler ran %d times, want %d", n, tc.runs)
				}
				if dead := all[redeliver.DeadLettered](ev); len(dead) != 1 || dead[0].State.Reason != redeliver.ReasonExhausted {
					t.Errorf("dead-lettered %+v, want it exhausted", dead)
				}
				if found := all[redeliver.HeadersIgnored](ev); (len(found) == 0) != tc.fine || len(found) > 1 {
					t.Errorf("findings %+v", found)
				}
			})
		}
	}
}

func TestGroupsNeverSeeEachOthersRetries(t *testing.T) {
	t.Parallel()
	addrs := fake(t, "orders").ListenAddrs()
	groups := []string{"a.b", "a_2eb", "a_b", "a"}
	evs := make(map[string]*events)
	for i, group := range groups {
		c, ev := openClient(t, kafka.Config{Brokers: addrs, Group: group, Policy: quick(2)})
		evs[group] = ev
		route(t, c, "orders", func(msg *message.Message) error {
			st, _ := redeliver.FromContext(msg.Context())
			if st.Group != group {
				t.Errorf("%s got a message of %s", group, st.Group)
			}
			if st.Attempts < i%3 { // the groups fail differently often
				return errDeclined
			}
			return nil
		})
	}
	recs, ids := orders("orders", 50)
	write(t, addrs, recs...)
	for i, group := range groups {
		evs[group].awaitEnds(t, ids...)
		for id, n := range evs[group].attempts() {
			if n != i%3+1 {
				t.Errorf("group %s ran %s %d times, want %d", group, id, n, i%3+1)
			}
		}
		evs[group].noFindings(t)
		evs[group].noneEarly(t)
	}
}

// A wait may exceed the retention, because that was shortened meanwhile or a policy with longer waits wrote the
// message. Its hop is not refused, which would pause the intake.
func TestAWaitLongerThanRetentionStopsNoOtherMessage(t *testing.T) {
	t.Parallel()
	addrs := fake(t, "orders").ListenAddrs()
	week, size := "604800000", "3000000"
	adm := kadm.NewClient(independent(t, addrs))
	for _, topic := range []string{"orders.billing.retry.100ms", "orders.billing.retry"} {
		if _, err := adm.CreateTopic(t.Context(), 1, 1, map[string]*string{"retention.ms": &week, "max.message.bytes": &size}, topic); err != nil {
			t.Fatal(err)
		}
	}
	c, ev := openClient(t, kafka.Config{Brokers: addrs, Group: "billing", Policy: quick(2)})
	route(t, c, "orders", func(*message.Message) error { return nil })
	put(t, addrs, ours("orders.billing.retry.100ms", "far", redeliver.State{
		ID: "far", Group: "billing", Origin: "orders", Attempts: 1, Due: time.Now().AddDate(0, 0, 100), Policy: "an older one",
		Source: redeliver.Source{Known: true, Partition: 0, Offset: 1},
	}))
	ev.await(t, 1, func(e redeliver.Event) bool {
		switch e := e.(type) {
		case redeliver.Hopped:
			return true // it waits
		case redeliver.DeadLettered:
			return e.State.Reason == redeliver.ReasonUnschedulable
		case redeliver.PublishFailed:
			t.Errorf("writing to %s: %v, again in %s", e.Where, e.Err, e.Retry)
			return true
		}
		return false
	})
	put(t, addrs, order("orders", "a"))
	ev.awaitEnds(t, "a")
}
