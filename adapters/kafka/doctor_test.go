package kafka_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka"
	"github.com/redeliver/redeliver/doctor"
)

// doctorCase is a group on a Kafka, and the policy that Doctor gets.
type doctorCase struct {
	fixture
	policy redeliver.Policy
}

func newDoctorCase(t *testing.T) *doctorCase {
	t.Helper()
	return &doctorCase{onKafka(t), redeliver.Policy{MaxRetries: 2, Backoff: redeliver.Steps(time.Second, time.Minute), Levels: []time.Duration{time.Second, time.Minute}}}
}

func (p *doctorCase) config(policy redeliver.Policy) kafka.Config {
	return kafka.Config{Brokers: p.addrs, Group: p.group, Policy: policy}
}

// member starts a member of the group with a policy.
func (p *doctorCase) member(t *testing.T, policy redeliver.Policy) (*kafka.Client, *events) {
	t.Helper()
	c, ev := open(t, p.config(policy))
	kafka.SweepEvery(c, time.Hour) // until then it does not look for levels again
	route(t, c, p.topic, failFirst(0))
	ev.awaitJoined(t, 1)
	return c, ev
}

// putWaiting writes a message to a level.
func (p *doctorCase) putWaiting(t *testing.T, level string, due time.Time) {
	t.Helper()
	put(t, p.addrs, ours(p.ours("retry."+level), "waits", redeliver.State{
		ID: "waits", Group: p.group, Origin: p.topic, Attempts: 1, Due: due, Source: redeliver.Source{Known: true},
	}))
}

func (p *doctorCase) examine(t *testing.T, how doctor.Examination) *doctor.Diagnosis {
	t.Helper()
	c, _ := open(t, p.config(p.policy))
	d, err := c.Doctor(t.Context(), p.topic, how)
	if err != nil {
		t.Fatal(err)
	}
	if d.Origin != p.topic || d.Group != p.group {
		t.Errorf("%+v", d)
	}
	return d
}

// wantSymptoms fails the test unless the diagnosis has exactly these symptoms, each as "kind place part of the text".
func wantSymptoms(t *testing.T, d *doctor.Diagnosis, want ...string) {
	t.Helper()
	for i, s := range d.Symptoms {
		if i < len(want) {
			part := strings.SplitN(want[i], " ", 3)
			if string(s.Kind) == part[0] && s.Place == part[1] && strings.Contains(s.Text, part[2]) {
				continue
			}
		}
		t.Errorf("found %s %s: %s", s.Kind, s.Place, s.Text)
	}
	if len(d.Symptoms) < len(want) {
		t.Errorf("found only %v, want %q", d.Symptoms, want)
	}
}

func TestOnKafkaDoctorFindsNothingInAHealthyGroup(t *testing.T) {
	t.Parallel()
	p := newDoctorCase(t)
	p.member(t, p.policy)
	p.member(t, p.policy)
	write(t, p.addrs, order(p.topic, "a"))
	p.putWaiting(t, "1m", time.Now().Add(time.Minute))
	for _, how := range []doctor.Examination{{}, {AnyPolicy: true}} {
		d := p.examine(t, how)
		wantSymptoms(t, d)
		checked, unchecked := 7, 0
		if how.AnyPolicy { // levels of older policies are not checked
			checked, unchecked = 6, 1
		}
		if len(d.Checked) != checked || len(d.NotChecked) != unchecked {
			t.Errorf("checked: %q, not checked: %q", d.Checked, d.NotChecked)
		}
	}
}

func TestOnKafkaDoctorFindsUnreadMessages(t *testing.T) {
	t.Parallel()
	p := newDoctorCase(t)
	d := p.examine(t, doctor.Examination{})
	wantSymptoms(t, d, "missing "+p.ours("retry.1s")+" does not exist", "missing "+p.ours("retry.1m")+" does not exist", "missing "+p.ours("retry")+" does not exist", "missing "+p.ours("dlq")+" does not exist")
	wantSymptoms(t, p.examine(t, doctor.Examination{AnyPolicy: true}), "missing "+p.ours("retry")+" does not exist", "missing "+p.ours("dlq")+" does not exist")
	p.provision(t, p.policy)
	wantSymptoms(t, p.examine(t, doctor.Examination{})) // nothing waits
	p.putWaiting(t, "1m", time.Now().Add(time.Minute))
	write(t, p.addrs, order(p.topic, "a"))
	wantSymptoms(t, p.examine(t, doctor.Examination{}), "consumer "+p.group+" about 2 messages wait, 1 of them retries")
}

func TestOnKafkaDoctorFindsLateMessages(t *testing.T) {
	t.Parallel()
	p := newDoctorCase(t)
	p.provision(t, p.policy)
	p.putWaiting(t, "1m", time.Now().Add(-10*time.Minute))
	p.putWaiting(t, "1m", time.Now().Add(time.Minute))
	p.putWaiting(t, "1s", time.Now().Add(-10*time.Minute))
	noReader := "consumer " + p.group + " 3 of them retries"
	wantSymptoms(t, p.examine(t, doctor.Examination{}), noReader, "late "+p.ours("retry.1s")+" offset 0 of partition 0", "late "+p.ours("retry.1m")+" from it to the end there are 2 records")
	wantSymptoms(t, p.examine(t, doctor.Examination{Late: time.Hour}), noReader)
}

func TestOnKafkaDoctorFindsLevelsOfAnOlderPolicy(t *testing.T) {
	t.Parallel()
	p := newDoctorCase(t)
	p.provision(t, redeliver.Policy{MaxRetries: 1, Backoff: redeliver.Fixed(time.Hour), Levels: []time.Duration{time.Second, 10 * time.Minute, time.Hour}})
	p.provision(t, p.policy)
	p.putWaiting(t, "1h", time.Now().Add(time.Hour))
	p.member(t, p.policy)
	empty, left := "orphan "+p.ours("retry.10m")+" is an empty level", "orphan "+p.ours("retry.1h")+" and 1 messages wait on it"
	wantSymptoms(t, p.examine(t, doctor.Examination{}), empty, left)
	wantSymptoms(t, p.examine(t, doctor.Examination{AnyPolicy: true})) // it cannot know
	// A level that is created after the members' check has no reader for a while.
	p.provision(t, redeliver.Policy{MaxRetries: 1, Backoff: redeliver.Fixed(2 * time.Hour), Levels: []time.Duration{2 * time.Hour}})
	p.putWaiting(t, "2h", time.Now().Add(time.Hour))
	wantSymptoms(t, p.examine(t, doctor.Examination{AnyPolicy: true}), "orphan "+p.ours("retry.2h")+" no member of the group reads it")
}

func TestOnKafkaDoctorFindsMembersWithDifferentPolicies(t *testing.T) {
	t.Parallel()
	p := newDoctorCase(t)
	other := p.policy
	other.MaxRetries = 1
	_, first := p.member(t, p.policy)
	wantSymptoms(t, p.examine(t, doctor.Examination{}))
	p.member(t, other)
	first.awaitJoined(t, 2) // after the rebalance it reports its assignment again
	for _, how := range []doctor.Examination{{}, {AnyPolicy: true}} {
		wantSymptoms(t, p.examine(t, how), "policies "+p.group+" members run different policies: ")
	}
	p.policy = redeliver.Policy{MaxRetries: 7, Backoff: redeliver.Steps(time.Second, time.Minute), Levels: p.policy.Levels}
	alone := newDoctorCase(t)
	alone.member(t, other)
	wantSymptoms(t, alone.examine(t, doctor.Examination{AnyPolicy: true}))
	wantSymptoms(t, alone.examine(t, doctor.Examination{}), "policies "+alone.group+" a policy other than the given one")
}

func TestOnKafkaDoctorFindsShortRetention(t *testing.T) {
	t.Parallel()
	p := newDoctorCase(t)
	p.provision(t, p.policy)
	alterSetting(t, p.fixture, "retention.ms", "3600000", p.ours("retry.1m"))
	alterSetting(t, p.fixture, "cleanup.policy", "compact", p.ours("dlq"))
	eventually(t, "all brokers have the settings", func() bool {
		return len(p.examine(t, doctor.Examination{}).Symptoms) == 2
	})
	for _, how := range []doctor.Examination{{}, {AnyPolicy: true}} {
		wantSymptoms(t, p.examine(t, how), "retention "+p.ours("retry.1m")+" retention.ms is 3600000: must be -1", "settings "+p.ours("dlq")+" cleanup.policy is compact")
	}
}

// Messages of a group that was renamed have no reader.
func TestDoctorFindsRetriesOfARenamedGroup(t *testing.T) {
	t.Parallel()
	p := newDoctorCase(t)
	p.provision(t, p.policy)
	p.putWaiting(t, "1s", time.Now().Add(-time.Hour))
	left := p.ours("retry.1s")
	p.group += "-renamed"
	p.member(t, p.policy)
	d := p.examine(t, doctor.Examination{})
	for _, s := range d.Symptoms {
		if s.Place == left {
			return
		}
	}
	t.Errorf("found %v, want that a message waits on %s, which no member reads", d.Symptoms, left)
}

// The examined group may be another than the client's.
func TestDoctorReportsThePauseOfTheGroupThatItExamines(t *testing.T) {
	t.Parallel()
	p := newDoctorCase(t)
	p.provision(t, p.policy)
	c, _ := open(t, p.config(p.policy))
	if err := c.Pause(t.Context(), p.topic, "the bank is closed"); err != nil {
		t.Fatal(err)
	}
	operator, _ := open(t, kafka.Config{Brokers: p.addrs, Group: "operators", Policy: p.policy})
	d, err := operator.Doctor(t.Context(), p.topic, doctor.Examination{Group: p.group})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(d.Symptoms, func(s doctor.Symptom) bool { return s.Kind == doctor.SymptomPaused }) {
		t.Errorf("found %+v", d.Symptoms)
	}
}
