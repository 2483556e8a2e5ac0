package kafkashare_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafkashare"
	"github.com/redeliver/redeliver/doctor"
	"github.com/redeliver/redeliver/integration/brokers"
	"github.com/redeliver/redeliver/internal/adaptertest"
	"github.com/redeliver/redeliver/internal/kafkatest"
	"github.com/redeliver/redeliver/mq"
)

func open(t *testing.T, cfg kafkashare.Config) *mq.Client {
	t.Helper()
	cfg.Brokers = brokers.RequireKafka(t)
	c, err := kafkashare.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(t.Context()) })
	return c
}

func TestAPlanListsTopicsAndCreatesNothing(t *testing.T) {
	t.Parallel()
	h := kafkatest.NewShare(t, brokers.RequireKafka(t))
	origin, groups := h.Origin(t, 1)
	c := open(t, kafkashare.Config{Group: groups[0], Policy: redeliver.Policy{MaxRetries: 2, Backoff: redeliver.Steps(time.Second, time.Minute), Levels: []time.Duration{time.Second, time.Minute}}})
	check := func(exist bool) {
		p, err := c.Plan(t.Context(), origin)
		if err != nil {
			t.Fatal(err)
		}
		var kinds []string
		for _, topic := range p.Places {
			kinds = append(kinds, topic.Kind)
			if topic.Exists != exist || topic.Partitions != 2 || topic.Replicas != 1 || topic.Settings["retention.ms"] != "-1" || !strings.HasPrefix(topic.Name, origin+"."+groups[0]+".") {
				t.Errorf("planned %+v, want it to exist: %t", topic, exist)
			}
		}
		if want := []string{"delay", "delay", "retry", "dlq"}; !slices.Equal(kinds, want) {
			t.Errorf("planned %v, want %v", kinds, want)
		}
		if p.Settings["share.delivery.count.limit"] != "10" || p.Settings["share.auto.offset.reset"] != "earliest" || len(p.Settings) != 4 || len(p.Delays) != 2 || len(p.Rights) != 8 {
			t.Errorf("planned %+v", p)
		}
		if text := p.String(); !strings.Contains(text, origin+"."+groups[0]+".retry.1m") || !strings.Contains(text, "earliest") {
			t.Error(text)
		}
	}
	check(false)
	check(false)
	_, err := kafkashare.Open(t.Context(), kafkashare.Config{Brokers: brokers.RequireKafka(t), Group: groups[0], NoProvisioning: true})
	wantProblems(t, err, "share.auto.offset.reset", "share.delivery.count.limit")
	if err := c.Subscriber().SubscribeInitialize(origin); err != nil {
		t.Fatal(err)
	}
	check(true)
	p, err := open(t, kafkashare.Config{Group: groups[0], NoProvisioning: true, Policy: redeliver.Policy{Backoff: redeliver.Fixed(time.Hour), Levels: []time.Duration{time.Hour}}}).Plan(t.Context(), origin)
	if p != nil {
		t.Errorf("planned %+v without the right to create", p)
	}
	wantProblems(t, err, "topic "+origin+"."+groups[0]+".retry.1h")
}

// With a misspelled name, the topic that was meant would run the default policy.
func TestAPolicyOfATopicThatDoesNotExistIsRefused(t *testing.T) {
	t.Parallel()
	h := kafkatest.NewShare(t, brokers.RequireKafka(t))
	origin, groups := h.Origin(t, 1)
	c := open(t, kafkashare.Config{Group: groups[0], Topics: map[string]redeliver.Policy{origin: {}, origin + "-typo": {}}})
	_, err := c.Subscriber().Subscribe(t.Context(), origin)
	wantProblems(t, err, `Topics["`+origin+`-typo"]`)
}

func TestDoctorFindsMissingUnreadLateAndOldTopics(t *testing.T) {
	t.Parallel()
	h := kafkatest.NewShare(t, brokers.RequireKafka(t))
	origin, groups := h.Origin(t, 1)
	group, ours := groups[0], origin+"."+groups[0]
	policy := redeliver.Policy{Backoff: redeliver.Fixed(time.Minute), Levels: []time.Duration{time.Minute}}
	c := open(t, kafkashare.Config{Group: group, Policy: policy})
	examine := func(want ...string) *doctor.Diagnosis {
		t.Helper()
		d, err := c.Operations().Doctor(t.Context(), origin, doctor.Examination{})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, s := range d.Symptoms {
			got = append(got, string(s.Kind)+" "+s.Place)
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("found %v, want %v: %+v", got, want, d)
		}
		return d
	}
	examine("missing "+ours+".retry.1m", "missing "+ours+".retry", "missing "+ours+".dlq")

	if err := open(t, kafkashare.Config{Group: group, Policy: redeliver.Policy{Backoff: redeliver.Fixed(time.Hour), Levels: []time.Duration{time.Hour}}}).Subscriber().SubscribeInitialize(origin); err != nil {
		t.Fatal(err)
	}
	if err := c.Subscriber().SubscribeInitialize(origin); err != nil {
		t.Fatal(err)
	}
	examine("orphan " + ours + ".retry.1h")

	putWaiting(t, connect(t), ours+".retry", redeliver.State{ID: "late", Group: group, Origin: origin, Due: time.Now().Add(-time.Hour)})
	examine("orphan "+ours+".retry.1h", "consumer "+group, "late "+ours+".retry")

	seen := newEvents()
	cfg := adaptertest.Config{Origin: origin, Group: group, Policy: policy, Sink: seen}
	s, err := h.Open(t, cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(t.Context())
	handle(t, s, origin)
	await(t, seen, func(e redeliver.Committed) bool { return e.State.ID == "late" })
	h.Put(t, origin, adaptertest.Message{ID: "new"})
	await(t, seen, func(e redeliver.Committed) bool { return e.State.ID == "new" })
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	d := examine("orphan " + ours + ".retry.1h")
	if d.Backlog == nil || *d.Backlog != 0 {
		t.Errorf("the backlog is %v", d.Backlog)
	}
	h.Put(t, origin, adaptertest.Message{ID: "unread"})
	if d = examine("orphan "+ours+".retry.1h", "consumer "+group); d.Backlog == nil || *d.Backlog != 1 {
		t.Errorf("the backlog is %v", d.Backlog)
	}
	if err := c.Operations().Pause(t.Context(), origin, "the bank is closed"); err != nil {
		t.Fatal(err)
	}
	examine("orphan "+ours+".retry.1h", "consumer "+group, "paused "+origin)
	if _, err := c.Operations().Doctor(t.Context(), origin, doctor.Examination{Group: "other"}); err == nil {
		t.Error("a client examined another group")
	}
}
