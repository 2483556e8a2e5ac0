package kafka_test

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/doctor"
	"github.com/redeliver/redeliver/internal/kafkaname"
	"github.com/redeliver/redeliver/mq"
)

// refuseSettings makes a cluster refuse topics with these settings. The text of a refusal may name the setting.
func refuseSettings(cluster *kfake.Cluster, why *kerr.Error, named bool, settings ...string) {
	cluster.ControlKey(int16(kmsg.CreateTopics), func(req kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		for _, c := range req.(*kmsg.CreateTopicsRequest).Topics[0].Configs {
			if !slices.Contains(settings, c.Name) {
				continue
			}
			res := refuseCreateTopics(req, why).(*kmsg.CreateTopicsResponse)
			text := "The request does not satisfy the configured policy."
			if named {
				text = fmt.Sprintf("Config property '%s' with value '%s' is not allowed for %s.", c.Name, *c.Value, res.Topics[0].Topic)
			}
			res.Topics[0].ErrorMessage = &text
			return res, nil, true
		}
		return nil, nil, false
	})
}

// A service that refuses one setting lets everybody start, replay, purge, pause and resume, unless its default would lose
// something. Then the error says what to set.
func TestNoRefusedSettingRefusesAStartOrACommand(t *testing.T) {
	t.Parallel()
	for _, setting := range kafkaname.AllSettings {
		for _, why := range []*kerr.Error{kerr.PolicyViolation, kerr.InvalidConfig} {
			for _, named := range []bool{true, false} {
				t.Run(fmt.Sprint(setting.Name, " ", why.Message, " named ", named), func(t *testing.T) {
					t.Parallel()
					p := fixture{topic: "orders", group: "billing"}
					p.cluster = fake(t, p.topic)
					p.addrs = p.cluster.ListenAddrs()
					refuseSettings(p.cluster, why, named, setting.Name)
					worksWithout(t, p, setting.Name)
				})
			}
		}
	}
}

// worksWithout starts a subscription whose topics lack a setting, dead-letters a message, replays, purges and pauses.
func worksWithout(t *testing.T, p fixture, setting string) {
	t.Helper()
	if setting == "max.message.bytes" { // the largest record of the origin and our headers need more than Kafka's own
		c, _ := openClient(t, kafka.Config{Brokers: p.addrs, Group: p.group, Policy: quick(1)})
		if err := c.Subscriber().SubscribeInitialize(p.topic); err == nil || !strings.Contains(err.Error(), "--entity-name "+p.ours("dlq")+" --add-config max.message.bytes=") {
			t.Errorf("a start with topics that are too small: %v", err)
		}
		return
	}
	c, ev := openClient(t, kafka.Config{Brokers: p.addrs, Group: p.group, Policy: quick(1)})
	route(t, c, p.topic, func(msg *message.Message) error {
		if st, _ := redeliver.FromContext(msg.Context()); st.Replays > 0 {
			return nil
		}
		return errDeclined
	})
	write(t, p.addrs, order(p.topic, "a"))
	ev.awaitEnds(t, "a")
	q, err := c.Operations().DeadLetters(t.Context(), mq.DeadLetterConfig{Topic: p.topic})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = q.Close() }()
	_, replayed := deadletter.Replay(t.Context(), q, ann)
	paused := c.Operations().Pause(t.Context(), p.topic, "the bank is closed")
	if setting == "cleanup.policy" { // Kafka's own removes what they write
		for what, err := range map[string]error{p.ours("dlq.state"): replayed, p.ours("control"): paused} {
			if err == nil || !strings.Contains(err.Error(), "--entity-name "+what+" --add-config cleanup.policy=compact") {
				t.Errorf("%s would forget its records: %v", what, err)
			}
		}
		return
	}
	if replayed != nil || paused != nil {
		t.Fatalf("replay: %v; pause: %v", replayed, paused)
	}
	if _, err := deadletter.Purge(t.Context(), q, deadletter.PurgeOptions{Who: "ann", Why: "test", Everything: true}); err != nil {
		t.Error(err)
	}
	if err := c.Operations().Resume(t.Context(), p.topic); err != nil {
		t.Error(err)
	}
	ev.await(t, 1, is[redeliver.Committed])
	plan, err := c.Plan(t.Context(), p.topic)
	if err != nil {
		t.Fatal(err)
	}
	if setting == "segment.bytes" && !slices.ContainsFunc(plan.Notes, func(n string) bool {
		return strings.HasPrefix(n, "topic "+p.ours("retry")+" segment.bytes is ") && strings.Contains(n, "would ask for 16777216")
	}) {
		t.Errorf("the plan does not mention %s: %q", setting, plan.Notes)
	}
	d, err := c.Operations().Doctor(t.Context(), p.topic, doctor.Examination{})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range d.Symptoms {
		if setting != "message.timestamp.type" || s.Place != p.ours("control") { // only releases need it
			t.Errorf("the doctor found %+v", s)
		}
	}
}

// A service may also ignore a setting. redeliver reads back the settings of new topics, and refuses only those that break
// a promise, with the command that helps.
func TestAnIgnoredSettingThatBreaksAPromiseIsRefused(t *testing.T) {
	t.Parallel()
	for setting, c := range map[string]struct{ made, refused string }{
		"cleanup.policy":                 {"compact", "must be delete"},
		"retention.ms":                   {"3600000", "must be -1"},
		"retention.bytes":                {"1000000", "must be -1"},
		"message.timestamp.type":         {"LogAppendTime", "must be CreateTime"},
		"max.message.bytes":              {"1000", "must be at least"},
		"min.insync.replicas":            {"1", "must be at least 2"},
		"segment.bytes":                  {"1000000", "must be at least"},
		"unclean.leader.election.enable": {"true", ""},
	} {
		t.Run(setting, func(t *testing.T) {
			t.Parallel()
			p := fixture{topic: "orders", group: "billing"}
			p.cluster = fake(t, p.topic)
			p.addrs = p.cluster.ListenAddrs()
			alterSetting(t, p, "min.insync.replicas", "2", p.topic)
			p.cluster.ControlKey(int16(kmsg.CreateTopics), func(req kmsg.Request) (kmsg.Response, error, bool) {
				p.cluster.KeepControl()
				configs := req.(*kmsg.CreateTopicsRequest).Topics[0].Configs
				for i := range configs {
					if configs[i].Name == setting {
						configs[i].Value = &c.made
					}
				}
				return nil, nil, false
			})
			client, _ := openClient(t, kafka.Config{Brokers: p.addrs, Group: p.group, Policy: quick(1)})
			err := client.Subscriber().SubscribeInitialize(p.topic)
			switch {
			case c.refused == "" && err != nil:
				t.Error(err)
			case c.refused != "" && (err == nil || !strings.Contains(err.Error(), p.ours("retry")+" "+setting+" is "+c.made+": "+c.refused) ||
				!strings.Contains(err.Error(), "kafka-configs.sh --alter --entity-type topics --entity-name "+p.ours("retry")+" --add-config "+setting+"=")):
				t.Errorf("%v", err)
			}
		})
	}
}

// A broker that refuses topics for another reason than their settings is not asked without end.
func TestARefusalThatIsNotAboutSettingsIsReported(t *testing.T) {
	t.Parallel()
	p := fixture{topic: "orders", group: "billing"}
	p.cluster = fake(t, p.topic)
	p.addrs = p.cluster.ListenAddrs()
	var asked atomic.Int32
	p.cluster.ControlKey(int16(kmsg.CreateTopics), func(req kmsg.Request) (kmsg.Response, error, bool) {
		p.cluster.KeepControl()
		asked.Add(1)
		res := refuseCreateTopics(req, kerr.PolicyViolation).(*kmsg.CreateTopicsResponse)
		text := "Topics must have 3 replicas."
		res.Topics[0].ErrorMessage = &text
		return res, nil, true
	})
	c, _ := openClient(t, kafka.Config{Brokers: p.addrs, Group: p.group, Policy: quick(1)})
	if err := c.Subscriber().SubscribeInitialize(p.topic); err == nil || !strings.Contains(err.Error(), "Topics must have 3 replicas.") {
		t.Errorf("%v", err)
	}
	if n := asked.Load(); n > 30 {
		t.Errorf("the broker was asked %d times", n)
	}
}

// The reference has a row for each setting.
func TestTheReferenceHasAllSettings(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/reference/kafka.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range kafkaname.AllSettings {
		class := "needed"
		if s.Wished {
			class = "wished"
		}
		row := fmt.Sprintf("| `%s` | %s | %s | %s | %s |", s.Name, cmp.Or(s.Messages, "none"), cmp.Or(s.Compacted, "none"), class, s.Why)
		if !strings.Contains(string(text), row+"\n") {
			t.Errorf("there is no row\n%s", row)
		}
	}
}
