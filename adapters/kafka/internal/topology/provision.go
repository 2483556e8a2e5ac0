package topology

import (
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/IBM/sarama"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka/internal/cluster"
	"github.com/redeliver/redeliver/delayqueue"
	"github.com/redeliver/redeliver/internal/check"
	"github.com/redeliver/redeliver/internal/kafkaname"
)

// Provisioner makes layouts, and creates and verifies their topics.
type Provisioner struct {
	Admin  cluster.Admin
	Config Config
}

// Layout lists the topics of the cluster and returns the layout of a subscription.
func (p *Provisioner) Layout(topic, group string, policy redeliver.Policy) (*Layout, error) {
	var ps check.Problems
	kafkaname.CheckTopic(&ps, "topic", topic)
	kafkaname.CheckGroup(&ps, "Group", group)
	p.Config.Names.Check(&ps, topic, group)
	if err := ps.Err(); err != nil {
		return nil, fmt.Errorf("kafka: %w", err)
	}
	existing, err := p.Admin.Topics()
	if err != nil {
		return nil, err
	}
	for range 12 { // a new topic is not known to all brokers at once
		if existing[topic] != nil {
			break
		}
		if _, err := p.Admin.Topics(topic); err != nil { // a list leaves out topics that the user may not describe
			return nil, err
		}
		<-time.After(250 * time.Millisecond)
		if existing, err = p.Admin.Topics(); err != nil {
			return nil, err
		}
	}
	return p.layoutOf(topic, group, policy, existing)
}

// layoutOf returns the layout of a subscription for the existing topics.
func (p *Provisioner) layoutOf(topic, group string, policy redeliver.Policy, existing map[string]*sarama.TopicMetadata) (*Layout, error) {
	origin := existing[topic]
	if origin == nil {
		return nil, fmt.Errorf("kafka: topic %s does not exist: create it first", topic)
	}
	l := &Layout{
		Origin: topic, Group: group, Policy: policy, Ladder: delayqueue.NewLadder(policy),
		Partitions: int32(len(origin.Partitions)), MaxWait: redeliver.MaxWait, Fingerprint: delayqueue.Fingerprint(policy),
		writable: new(atomic.Pointer[delayqueue.Ladder]),
	}
	settings, err := p.Admin.Settings(topic)
	if err != nil {
		return nil, err
	}
	if l.MaxRecordBytes, err = strconv.Atoi(settings[topic]["max.message.bytes"]); err != nil {
		l.MaxRecordBytes = 1 << 20
	}
	l.addTopics(p.Config, existing, int16(len(origin.Partitions[0].Replicas)), kafkaname.Settings(l.MaxRecordBytes, p.Config.MaxMessageBytes, settings[topic]["min.insync.replicas"]))
	return l, nil
}

// Provision checks the topics that exist and creates the others. Several processes may call it at once.
func (p *Provisioner) Provision(l *Layout) error {
	if err := p.askFor(l.names(func(t Topic) bool { return !t.Exists && !t.Rung })); err != nil {
		return err
	}
	if err := p.VerifyFresh(l); err != nil {
		return err
	}
	created := false
	for _, t := range l.Topics {
		if !t.Exists && !t.Rung {
			if _, err := p.Admin.CreateTopic(t.spec()); err != nil {
				return err
			}
			created = true
		}
	}
	if !created {
		return nil
	}
	all := l.subscribed()
	if !l.Discards {
		all = append(all, l.TopicOf(DLQ, 0).Name)
	}
	if err := p.Admin.AwaitLeaders(all...); err != nil {
		return err
	}
	// Another process may have created them with other settings, or the broker may have changed ours.
	fresh, err := p.Layout(l.Origin, l.Group, l.Policy)
	if err != nil {
		return err
	}
	if err := p.Verify(fresh); err != nil {
		return err
	}
	*l = *fresh
	return nil
}

// askFor returns an error if the user may not describe some of these topics. They are missing from a list of all, although
// they may exist: to create them again would be wrong.
func (p *Provisioner) askFor(unlisted []string) error {
	if len(unlisted) == 0 {
		return nil
	}
	_, err := p.Admin.Topics(unlisted...)
	return err
}

// VerifyFresh is Verify, but lists the topics again if one was deleted meanwhile, for example a level of an older
// policy.
func (p *Provisioner) VerifyFresh(l *Layout) error {
	err := p.Verify(l)
	if !errors.Is(err, sarama.ErrUnknownTopicOrPartition) {
		return err
	}
	fresh, err := p.Layout(l.Origin, l.Group, l.Policy)
	if err != nil {
		return err
	}
	*l = *fresh
	return p.Verify(l)
}

// Verify refuses existing topics that cannot hold the policy.
func (p *Provisioner) Verify(l *Layout) error {
	var names []string
	for _, t := range l.Topics {
		if t.Exists {
			names = append(names, t.Name)
		}
	}
	settings, err := p.Admin.Settings(names...)
	if err != nil {
		return err
	}
	return l.check(p.Config, settings)
}

// CreateCompanion creates a companion of an existing topic, with as many replicas.
func (p *Provisioner) CreateCompanion(name string, k Kind, of *sarama.TopicMetadata) error {
	settings, err := p.Admin.Settings(of.Name)
	if err != nil {
		return err
	}
	t := companion(name, k, int16(len(of.Partitions[0].Replicas)), settings[of.Name]["min.insync.replicas"])
	if p.Config.NoProvisioning {
		return fmt.Errorf("kafka: topic %s is missing, and NoProvisioning is set: create it with 1 partition, %d replicas and %s", t.Name, t.Replicas, kafkaname.SettingsText(t.Settings))
	}
	if _, err := p.Admin.CreateTopic(t.spec()); err != nil {
		return err
	}
	return p.Admin.AwaitLeaders(t.Name)
}

// CheckCompanions returns the problems of the existing companions of a DLQ and a group, and their unmet wishes.
func (p *Provisioner) CheckCompanions(l *Layout) (problems check.Problems, wishes []string, err error) {
	var there []Topic
	var names []string
	for _, t := range []Topic{l.State, l.Control} {
		if t.Exists {
			there, names = append(there, t), append(names, t.Name)
		}
	}
	settings, err := p.Admin.Settings(names...)
	if err != nil {
		return nil, nil, err
	}
	for _, t := range there {
		kafkaname.CheckCompacted(&problems, t.Name, t.Kind == Control, settings[t.Name])
		wishes = append(wishes, kafkaname.Wishes(t.Name, t.Settings, settings[t.Name])...)
	}
	return problems, wishes, nil
}

// companion returns a compacted topic: a DLQ's state, or the commands to a group.
func companion(name string, k Kind, replicas int16, minInSync string) Topic {
	return Topic{Name: name, Kind: k, Partitions: 1, Replicas: replicas, Settings: kafkaname.CompactedSettings(k == Control, minInSync)}
}
