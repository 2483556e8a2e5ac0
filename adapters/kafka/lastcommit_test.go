package kafka_test

import (
	"errors"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka"
	"github.com/redeliver/redeliver/mq"
)

// runAgain returns the reports of settled messages that run again.
func runAgain(evs ...*events) (found []redeliver.SubscriptionChanged) {
	for _, ev := range evs {
		for _, c := range all[redeliver.SubscriptionChanged](ev) {
			if c.Change == "settled messages run again" {
				found = append(found, c)
			}
		}
	}
	return found
}

var repeatText = regexp.MustCompile(`^[^:]+/\d+: up to (\d+) messages, because `)

// repeatsIn returns the number of messages in such a report.
func repeatsIn(t *testing.T, c redeliver.SubscriptionChanged) (n int) {
	t.Helper()
	found := repeatText.FindStringSubmatch(c.Detail)
	if found == nil {
		t.Fatalf("reported %q, which does not say how many", c.Detail)
	}
	n, err := strconv.Atoi(found[1])
	if err != nil || n == 0 {
		t.Fatalf("reported %q, %v", c.Detail, err)
	}
	return n
}

// countRepeats returns how many settled messages may run again according to the members' reports, and fails above
// maxRepeats. On a slow machine the group may remove a member, which then cannot commit its finished messages, and
// reports that. No other messages are repeated if every handler has time to finish.
func countRepeats(t *testing.T, maxRepeats int, evs ...*events) (n int) {
	t.Helper()
	reported := runAgain(evs...)
	for _, c := range reported {
		if c.Err == nil {
			t.Errorf("a drain has left something unsettled: %s", c.Detail)
		} else {
			n += repeatsIn(t, c)
		}
	}
	if n > maxRepeats { // even on a slow machine, most last commits succeed
		t.Errorf("%d settled messages were reported to run again: %v", n, reported)
	}
	return n
}

// Messages that a member has handled and cannot commit run again when their partition moves.
func TestAFailedLastCommitIsReported(t *testing.T) {
	t.Parallel()
	for name, refusal := range map[string]struct {
		code *kerr.Error
		err  error // nil: no answer in time
	}{
		"another generation has begun": {kerr.IllegalGeneration, sarama.ErrIllegalGeneration},
		"the member is out":            {kerr.UnknownMemberID, sarama.ErrUnknownMemberId},
		"the group does not settle":    {kerr.RebalanceInProgress, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := fake(t, "orders")
			addrs := cluster.ListenAddrs()
			join := func() (*mq.Client, *events) {
				c, ev := openClient(t, kafka.Config{Brokers: addrs, Group: "billing", Policy: quick(1)})
				route(t, c, "orders", func(*message.Message) error { return nil })
				return c, ev
			}
			c, ev := join()
			recs, ids := orders("orders", 15) // all on partition 0
			put(t, addrs, recs[:10]...)
			ev.awaitEnds(t, ids[:10]...)
			eventually(t, "ten are committed", func() bool { return unacked(t, addrs, "billing", "orders", 0) == 10 })
			refused := cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetCommit}, Err: refusal.code, Count: -1})
			put(t, addrs, recs[10:]...)
			ev.awaitEnds(t, ids...)
			if err := c.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			refused.Remove()
			reported := runAgain(ev)
			if len(reported) != 1 || !strings.HasPrefix(reported[0].Detail, "orders/0: up to 5 ") || !strings.Contains(reported[0].Detail, "offset 15") ||
				reported[0].Err == nil || refusal.err != nil && !errors.Is(reported[0].Err, refusal.err) {
				t.Errorf("reported %+v, want the 5 of orders/0 that were not committed", reported)
			}
			next, after := join()
			put(t, addrs, order("orders", "last"))
			after.awaitEnds(t, append(ids[10:], "last")...)
			if err := next.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			if ran := after.attempts(); len(ran) != 6 {
				t.Errorf("then ran %v, want the 5 and the last", ran)
			}
			if reported := runAgain(after); len(reported) > 0 {
				t.Errorf("reported %+v, although the last commit succeeded", reported)
			}
		})
	}
}

// Messages that settle above a running one are in the settlement set, so the next owner skips them.
func TestOnKafkaRecordsSettledAboveAnUnsettledOneDoNotRunAgain(t *testing.T) {
	t.Parallel()
	p := onKafka(t)
	cfg := kafka.Config{Brokers: p.addrs, Group: p.group, Policy: quick(1), DrainTimeout: 200 * time.Millisecond}
	c, ev := openClient(t, cfg)
	route(t, c, p.topic, func(msg *message.Message) error {
		if msg.UUID == "a" {
			<-msg.Context().Done()
			return msg.Context().Err()
		}
		return nil
	})
	var recs []*kgo.Record
	for _, id := range []string{"before", "a", "b", "c", "d"} {
		recs = append(recs, order(p.topic, id))
	}
	put(t, p.addrs, recs...)
	ev.awaitEnds(t, "before", "b", "c", "d")
	if err := c.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if reported := runAgain(ev); len(reported) > 0 {
		t.Errorf("reported %+v", reported)
	}
	next, after := openClient(t, cfg)
	route(t, next, p.topic, func(*message.Message) error { return nil })
	after.awaitEnds(t, "a")
	if err := next.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if ran := after.attempts(); len(ran) != 1 {
		t.Errorf("then ran %v, want only a", ran)
	}
	if off := unacked(t, p.addrs, p.group, p.topic, 0); off != 5 {
		t.Errorf("committed up to %d, want 5", off)
	}
}

// In a cooperative group the generation rises before the members' lanes know. If metadata that is refused for that
// reason were not committed again, its lane would wait for ten seconds, and then continue without counting crashes.
func TestMetadataRefusedInACooperativeRebalanceIsCommittedAgain(t *testing.T) {
	t.Parallel()
	cluster := fake(t, "orders")
	addrs := cluster.ListenAddrs()
	refused := cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetCommit}, Err: kerr.IllegalGeneration, Count: 1})
	c, ev := openClient(t, kafka.Config{Brokers: addrs, Group: "billing", Policy: quick(1)})
	route(t, c, "orders", func(*message.Message) error { return nil })
	put(t, addrs, order("orders", "a"))
	ev.awaitEnds(t, "a")
	if refused.Hits() != 1 {
		t.Errorf("%d commits were refused, want the first", refused.Hits())
	}
	for _, changed := range all[redeliver.SubscriptionChanged](ev) {
		if changed.Change == redeliver.ChangeCrashesUncounted {
			t.Errorf("reported %+v", changed)
		}
	}
}
