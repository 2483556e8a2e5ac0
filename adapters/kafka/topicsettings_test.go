package kafka_test

import (
	"context"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka"
	"github.com/redeliver/redeliver/doctor"
	"github.com/redeliver/redeliver/internal/kafkatest"
)

// makeTopics creates topics with settings, as an administrator would.
func makeTopics(t *testing.T, p fixture, settings map[string]string, topics ...string) {
	t.Helper()
	configs := make(map[string]*string, len(settings))
	for name, value := range settings {
		configs[name] = &value
	}
	for _, topic := range topics {
		kafkatest.MakeTopic(t, kadm.NewClient(independent(t, p.addrs)), 4, configs, topic)
	}
}

// Many tools write the largest integer for unlimited retention. As nanoseconds it overflows.
func TestOnKafkaTheLargestRetentionIsUnlimited(t *testing.T) {
	t.Parallel()
	p := onKafka(t)
	forever := map[string]string{"retention.ms": strconv.FormatInt(math.MaxInt64, 10), "max.message.bytes": "3000000"}
	makeTopics(t, p, forever, p.ours("retry.100ms"), p.ours("retry"), p.ours("dlq"))
	c, _ := openClient(t, kafka.Config{Brokers: p.addrs, Group: p.group, Policy: quick(1)})
	plan, err := c.Plan(t.Context(), p.topic)
	if err != nil {
		t.Fatal(err)
	}
	if plan.LongestWait != redeliver.MaxWait {
		t.Errorf("a handler may ask for %s, want %s", plan.LongestWait, redeliver.MaxWait)
	}
}

// A due time is rounded up to the millisecond. That must not make the policy's longest wait longer than the retention
// allows.
func TestTheShortestRetentionHoldsTheLongestWait(t *testing.T) {
	t.Parallel()
	const wait = 60 * time.Hour // a quarter of the retention
	p := onKafka(t)
	settings := map[string]string{"retention.ms": strconv.FormatInt((4 * wait).Milliseconds(), 10), "max.message.bytes": "3000000"}
	policy := redeliver.Policy{MaxRetries: 1, Backoff: redeliver.Fixed(wait), Levels: []time.Duration{wait}}
	makeTopics(t, p, settings, kafka.DelayTopicName(p.topic, p.group, wait), p.ours("retry"))
	ev, _ := consume(t, p, kafka.Config{Policy: policy}, func(context.Context, *sarama.ConsumerMessage) error { return errDeclined })
	recs, _ := orders(p.topic, 50)
	put(t, p.addrs, recs...)
	ev.await(t, len(recs), func(e redeliver.Event) bool { return is[redeliver.RetryScheduled](e) || is[redeliver.DeadLettered](e) })
	for _, d := range all[redeliver.DeadLettered](ev) {
		t.Fatalf("dead-lettered as %s: %s", d.State.Reason, d.State.Error)
	}
}

// If a retention that is a nanosecond too short were accepted, every failure would become a dead letter.
func TestARetentionBelowTheLongestWaitIsRefused(t *testing.T) {
	t.Parallel()
	const wait = 60*time.Hour + time.Nanosecond
	p := onKafka(t)
	const ms = "864000000"
	topic := kafka.DelayTopicName(p.topic, p.group, time.Hour)
	makeTopics(t, p, map[string]string{"retention.ms": ms, "max.message.bytes": "3000000"}, topic)
	c, _ := openClient(t, kafka.Config{Brokers: p.addrs, Group: p.group, Policy: redeliver.Policy{
		MaxRetries: 1, Backoff: redeliver.Fixed(wait), Levels: []time.Duration{time.Hour},
	}})
	_, err := c.Plan(t.Context(), p.topic)
	refused(t, err, "topic "+topic+" retention.ms", ms)
}

// Twice the limit of such an origin exceeds Kafka's integers.
func TestOnKafkaAnOriginWithTheLargestRecordLimitWorks(t *testing.T) {
	t.Parallel()
	p := onKafka(t)
	limit := strconv.Itoa(math.MaxInt32)
	alterSetting(t, p, "max.message.bytes", limit, p.topic)
	c, _ := openClient(t, kafka.Config{Brokers: p.addrs, Group: p.group, Policy: quick(1)})
	if err := c.Subscriber().SubscribeInitialize(p.topic); err != nil {
		t.Fatal(err)
	}
	plan, err := c.Plan(t.Context(), p.topic)
	if err != nil {
		t.Fatal(err)
	}
	for _, topic := range plan.Places {
		for _, setting := range []string{"max.message.bytes", "segment.bytes"} { // no batch may be larger than a segment
			if got := topic.Settings[setting]; got != limit {
				t.Errorf("%s: %s is %s, want %s", topic.Name, setting, got, limit)
			}
		}
	}
}

// Levels of older policies neither count towards MaxPartitions nor need settings that suit the policy. Otherwise a
// service could not start after some changes of its policy, or after a roll-back.
func TestOnKafkaLevelsOfOlderPoliciesRefuseNoStart(t *testing.T) {
	t.Parallel()
	p := onKafka(t)
	for _, level := range []time.Duration{time.Second, 2 * time.Second, 3 * time.Second} {
		makeTopics(t, p, map[string]string{"retention.ms": "3600000", "max.message.bytes": "1200", "cleanup.policy": "compact"}, kafka.DelayTopicName(p.topic, p.group, level))
	}
	old := kafka.DelayTopicName(p.topic, p.group, time.Second)
	c, ev := openClient(t, kafka.Config{Brokers: p.addrs, Group: p.group, Policy: quick(1), MaxPartitions: 12}) // a level, the retry topic and the DLQ
	plan, err := c.Plan(t.Context(), p.topic)
	if err != nil {
		t.Fatal(err)
	}
	for _, setting := range []string{"retention.ms", "max.message.bytes", "cleanup.policy"} {
		if !slices.ContainsFunc(plan.Notes, func(note string) bool { return strings.Contains(note, "topic "+old+" "+setting+" is") }) {
			t.Errorf("the plan does not mention %s: %q", setting, plan.Notes)
		}
	}
	if plan.LongestWait != redeliver.MaxWait {
		t.Errorf("a handler may ask for %s although such a wait is not written there", plan.LongestWait)
	}
	diagnosis, err := c.Operations().Doctor(t.Context(), p.topic, doctor.Examination{})
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []doctor.SymptomKind{doctor.SymptomSettings, doctor.SymptomRetention} {
		if !slices.ContainsFunc(diagnosis.Symptoms, func(s doctor.Symptom) bool { return s.Kind == kind && s.Place == old }) {
			t.Errorf("the doctor does not mention %s: %+v", kind, diagnosis.Symptoms)
		}
	}
	route(t, c, p.topic, failFirst(0))
	put(t, p.addrs, order(p.topic, "a"))
	ev.awaitEnds(t, "a")
}

// With OrderThroughRetries a level with another number of partitions cannot be read in order. So it is not read, which is reported.
func TestAnUnequalOldLevelRefusesNoStart(t *testing.T) {
	t.Parallel()
	p := onKafka(t)
	old := kafka.DelayTopicName(p.topic, p.group, time.Second)
	kafkatest.MakeTopic(t, kadm.NewClient(independent(t, p.addrs)), 2, map[string]*string{}, old)
	c, ev := openClient(t, kafka.Config{Brokers: p.addrs, Group: p.group, Policy: perKeyPolicy(100 * time.Millisecond)})
	route(t, c, p.topic, failFirst(0))
	put(t, p.addrs, order(p.topic, "a"))
	ev.awaitEnds(t, "a")
	ev.await(t, 1, func(e redeliver.Event) bool {
		c, ok := e.(redeliver.SubscriptionChanged)
		return ok && c.Change == redeliver.ChangeNotRead && strings.Contains(c.Detail, old)
	})
}
