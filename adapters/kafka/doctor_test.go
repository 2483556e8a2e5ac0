package kafka_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka"
	"github.com/redeliver/redeliver/doctor"
	"github.com/redeliver/redeliver/mq"
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
func (p *doctorCase) member(t *testing.T, policy redeliver.Policy) (*mq.Client, *events) {
	t.Helper()
	c, ev := openClient(t, p.config(policy))
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
	c, _ := openClient(t, p.config(p.policy))
	d, err := c.Operations().Doctor(t.Context(), p.topic, how)
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
		checked, unchecked := 6, 0
		if how.AnyPolicy { // levels that the policy does not use are not checked
			checked, unchecked = 5, 1
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

// A producer that has died in a transaction hides all later records of its partition from the group, until the broker ends it.
func TestOnKafkaDoctorFindsAHangingTransaction(t *testing.T) {
	t.Parallel()
	p := newDoctorCase(t)
	p.member(t, p.policy)
	cl := independent(t, p.addrs, kgo.TransactionalID(p.topic), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	begin := func(at time.Time) {
		t.Helper()
		if err := cl.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		rec := order(p.topic, "hangs")
		rec.Timestamp = at
		if err := cl.ProduceSync(t.Context(), rec).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	begin(time.Now())
	wantSymptoms(t, p.examine(t, doctor.Examination{})) // it is young
	if err := cl.EndTransaction(t.Context(), kgo.TryAbort); err != nil {
		t.Fatal(err)
	}
	begin(time.Now().Add(-10 * time.Minute))
	write(t, p.addrs, order(p.topic, "behind it"))
	wantSymptoms(t, p.examine(t, doctor.Examination{}), "late "+p.topic+" transaction of a producer is open since offset 2 of partition 0, for more than 1m0s")
	wantSymptoms(t, p.examine(t, doctor.Examination{Late: time.Hour}))
	if err := cl.EndTransaction(t.Context(), kgo.TryCommit); err != nil {
		t.Fatal(err)
	}
	wantSymptoms(t, p.examine(t, doctor.Examination{}))
}

func TestOnKafkaDoctorFindsLevelsOfAnOlderPolicy(t *testing.T) {
	t.Parallel()
	p := newDoctorCase(t)
	p.provision(t, redeliver.Policy{MaxRetries: 1, Backoff: redeliver.Fixed(time.Hour), Levels: []time.Duration{time.Second, 10 * time.Minute, time.Hour}})
	p.provision(t, p.policy)
	p.putWaiting(t, "1h", time.Now().Add(time.Hour))
	p.member(t, p.policy)
	remove := func(level string) string {
		return fmt.Sprintf("delete it: kafka-topics.sh --bootstrap-server %s --delete --topic %s", strings.Join(p.addrs, ","), p.ours("retry."+level))
	}
	empty := "orphan " + p.ours("retry.10m") + " does not use; no message waits on it. When no instance and no publisher uses a policy with this level, " + remove("10m")
	left := "orphan " + p.ours("retry.1h") + " does not use; 1 messages wait on it, and come back when they are due. When it is empty and no instance and no publisher uses a policy with this level, " + remove("1h")
	wantSymptoms(t, p.examine(t, doctor.Examination{}), empty, left)
	wantSymptoms(t, p.examine(t, doctor.Examination{AnyPolicy: true})) // it cannot know
	// A level that is created after the members' check has no reader for a while.
	p.provision(t, redeliver.Policy{MaxRetries: 1, Backoff: redeliver.Fixed(2 * time.Hour), Levels: []time.Duration{2 * time.Hour}})
	p.putWaiting(t, "2h", time.Now().Add(time.Hour))
	wantSymptoms(t, p.examine(t, doctor.Examination{AnyPolicy: true}), "orphan "+p.ours("retry.2h")+" no member of the group reads it")
}

// describeNoMembers makes a cluster answer as Kafka does about a group of another type: it is Dead.
func describeNoMembers(cluster *kfake.Cluster) {
	cluster.ControlKey(int16(kmsg.DescribeGroups), func(req kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		res := req.ResponseKind().(*kmsg.DescribeGroupsResponse)
		for _, name := range req.(*kmsg.DescribeGroupsRequest).Groups {
			one := kmsg.NewDescribeGroupsResponseGroup()
			one.Group, one.State = name, "Dead"
			res.Groups = append(res.Groups, one)
		}
		return res, nil, true
	})
}

// The broker answers about a group of the protocol of KIP-848 as if it did not exist. Its levels once counted as having no
// reader.
func TestOnKafkaMembersThatCannotBeDescribedAreNotMissing(t *testing.T) {
	t.Parallel()
	p := newDoctorCase(t)
	p.provision(t, p.policy)
	p.putWaiting(t, "1m", time.Now().Add(time.Minute))
	write(t, p.addrs, order(p.topic, "a"))
	waits := p.ours("retry.1m")
	cl := independent(t, p.addrs, kgo.ConsumerGroup(p.group), kgo.ConsumeTopics(p.topic), kgo.ServerSideBalancer(), kgo.DisableAutoCommit())
	eventually(t, "the member has joined", func() bool {
		cl.PollFetches(t.Context())
		_, generation := cl.GroupMetadata()
		return generation > 0
	})
	if p.cluster != nil { // it describes such members
		describeNoMembers(p.cluster)
	}
	wantUnseen := func(about string, symptoms ...string) {
		t.Helper()
		d := p.examine(t, doctor.Examination{})
		wantSymptoms(t, d, symptoms...)
		if !slices.ContainsFunc(d.NotChecked, func(s string) bool {
			return strings.Contains(s, about) && strings.Contains(s, "group.protocol=consumer")
		}) {
			t.Errorf("not checked: %q, want %q", d.NotChecked, about)
		}
	}
	wantUnseen("the members of group " + p.group)
	w := p.waiting(t)
	if _, err := w.SendCommand(t.Context(), release()); err != nil {
		t.Errorf("a release is refused: %v", err)
	}

	// The same for another group of the topic. The examined one does not exist.
	others := p.group
	p.group += "-renamed"
	p.provision(t, p.policy)
	wantUnseen("whether group "+others+", for which 1 messages wait on "+waits, "consumer "+p.group+" no member of the group reads "+p.topic)
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
	c, _ := openClient(t, p.config(p.policy))
	if err := c.Operations().Pause(t.Context(), p.topic, "the bank is closed"); err != nil {
		t.Fatal(err)
	}
	operator, _ := openClient(t, kafka.Config{Brokers: p.addrs, Group: "operators", Policy: p.policy})
	d, err := operator.Operations().Doctor(t.Context(), p.topic, doctor.Examination{Group: p.group})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(d.Symptoms, func(s doctor.Symptom) bool { return s.Kind == doctor.SymptomPaused }) {
		t.Errorf("found %+v", d.Symptoms)
	}
}
