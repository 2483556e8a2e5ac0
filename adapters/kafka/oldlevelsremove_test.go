package kafka_test

import (
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka"
	"github.com/redeliver/redeliver/doctor"
)

// keepReasons returns for each old level "name: why it must stay", or "removed".
func (p *doctorCase) keepReasons(all []doctor.OldLevel) (reasons []string) {
	for _, o := range all {
		why := o.KeepReason
		if o.Removed {
			why = "removed"
		}
		reasons = append(reasons, strings.TrimPrefix(o.Place, p.ours(""))+": "+why)
	}
	return reasons
}

// wantReasons fails the test unless the results begin with these texts.
func wantReasons(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.EqualFunc(got, want, strings.HasPrefix) {
		t.Errorf("%q, want %q", got, want)
	}
}

// A level is drained if it is empty and no member runs its policy. The group continues without it.
func TestOnKafkaOnlyDrainedLevelsAreRemoved(t *testing.T) {
	t.Parallel()
	p := newDoctorCase(t)
	was := redeliver.Policy{MaxRetries: 1, Backoff: redeliver.Fixed(time.Hour), Levels: []time.Duration{time.Second, 10 * time.Minute, time.Hour}}
	p.provision(t, was)
	c, ev := open(t, p.config(p.policy))
	kafka.SweepEvery(c, 50*time.Millisecond)
	if err := c.Subscriber().SubscribeInitialize(p.topic); err != nil {
		t.Fatal(err)
	}
	p.putWaiting(t, "1h", time.Now().Add(time.Hour))
	asks, _ := open(t, p.config(p.policy))
	look := func() []string {
		t.Helper()
		old, err := asks.OldLevels(t.Context(), p.topic)
		if err != nil {
			t.Fatal(err)
		}
		return p.keepReasons(old)
	}
	wantReasons(t, look(), "retry.10m: ", "retry.1h: 1 messages wait on it") // there are no members

	// While a member runs the older policy, none is deleted.
	older, oldEv := open(t, p.config(was))
	route(t, older, p.topic, failFirst(0))
	oldEv.awaitJoined(t, 1)
	wantReasons(t, look(), "retry.10m: ", "retry.1h: 1 messages wait on it")
	names := []string{p.ours("retry.10m"), p.ours("retry.1h"), p.ours("retry.1m"), p.topic, "nothing"}
	done, err := asks.RemoveOldLevels(t.Context(), p.topic, names...)
	if err != nil {
		t.Fatal(err)
	}
	no := "it is not a level of an older policy"
	if said := p.keepReasons(done); len(said) != 5 || !strings.Contains(said[0], "finish the rollout") {
		t.Errorf("%q", said)
	}
	if err := older.Close(t.Context()); err != nil {
		t.Fatal(err)
	}

	route(t, c, p.topic, failFirst(1))
	ev.awaitJoined(t, 1)
	if done, err = asks.RemoveOldLevels(t.Context(), p.topic, names...); err != nil {
		t.Fatal(err)
	}
	wantReasons(t, p.keepReasons(done), "retry.10m: removed", "retry.1h: 1 messages wait on it", "retry.1m: "+no, p.topic+": "+no, "nothing: "+no)
	var existing kadm.TopicDetails
	adm := kadm.NewClient(independent(t, p.addrs))
	eventually(t, "the broker knows what its controller has removed", func() bool {
		existing, err = adm.ListTopics(t.Context())
		return err == nil && !existing.Has(p.ours("retry.10m"))
	})
	if !existing.Has(p.ours("retry.1h")) || !existing.Has(p.ours("retry.1m")) || !existing.Has(p.topic) {
		t.Errorf("the topics are %q", existing.Names())
	}
	recs, ids := orders(p.topic, 10)
	write(t, p.addrs, recs...)
	ev.awaitEnds(t, ids...)
}

// A controller may delete a topic slowly, and a broker lists a deleted topic for a while without having its offsets.
// Neither is an error, so the other levels are removed, too.
func TestALevelThatIsDeletedSlowlyIsRemoved(t *testing.T) {
	t.Parallel()
	cluster := fake(t, "orders")
	p := &doctorCase{fixture{addrs: cluster.ListenAddrs(), topic: "orders", group: "billing"}, quick(1)}
	p.provision(t, redeliver.Policy{MaxRetries: 1, Backoff: redeliver.Fixed(time.Hour), Levels: []time.Duration{time.Second, 10 * time.Minute, time.Hour}})
	slow, gone := p.ours("retry.10m"), p.ours("retry.1h")
	var answers atomic.Int32
	cluster.ControlKey(int16(kmsg.DeleteTopics), func(req kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		asked := req.(*kmsg.DeleteTopicsRequest)
		res := req.ResponseKind().(*kmsg.DeleteTopicsResponse)
		one := kmsg.NewDeleteTopicsResponseTopic()
		one.Topic = asked.Topics[0].Topic
		switch {
		case *one.Topic == gone: // another client was faster
			one.ErrorCode = kerr.UnknownTopicOrPartition.Code
		case answers.Add(1) == 1:
			one.ErrorCode = kerr.RequestTimedOut.Code
		}
		res.Topics = append(res.Topics, one)
		return res, nil, true
	})
	cluster.ControlKey(int16(kmsg.ListOffsets), func(req kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		asked := req.(*kmsg.ListOffsetsRequest)
		if answers.Load() < 2 || asked.Topics[0].Topic != slow {
			return nil, nil, false
		}
		res := req.ResponseKind().(*kmsg.ListOffsetsResponse)
		for _, topic := range asked.Topics {
			one := kmsg.NewListOffsetsResponseTopic()
			one.Topic = topic.Topic
			for _, partition := range topic.Partitions {
				none := kmsg.NewListOffsetsResponseTopicPartition()
				none.Partition, none.ErrorCode = partition.Partition, kerr.UnknownTopicOrPartition.Code
				one.Partitions = append(one.Partitions, none)
			}
			res.Topics = append(res.Topics, one)
		}
		return res, nil, true
	})
	c, _ := open(t, p.config(p.policy))
	done, err := c.RemoveOldLevels(t.Context(), p.topic, slow, gone)
	if err != nil {
		t.Fatal(err)
	}
	wantReasons(t, p.keepReasons(done), "retry.10m: removed", "retry.1h: removed")
}
