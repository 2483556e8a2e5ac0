package kafkashare

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/doctor"
	"github.com/redeliver/redeliver/internal/check"
	"github.com/redeliver/redeliver/internal/kafkaname"
	"github.com/redeliver/redeliver/internal/rules"
)

// examination is one call of Doctor.
type examination struct {
	*doctor.Diagnosis

	client  *client
	layout  *layout
	options doctor.Examination
}

// Doctor checks the client's groups and the topics on which messages of a topic wait: whether they
// exist with the right settings, whether messages are read and run when due, whether the group is
// paused, and which levels the policy does not use. It joins no group, and writes and creates nothing.
// It returns an error if the cluster does not answer, the topic itself does not exist, or how names
// another group.
func (c *client) Doctor(ctx context.Context, topic string, how doctor.Examination) (*doctor.Diagnosis, error) {
	if how.Group != "" && how.Group != c.cfg.Group {
		return nil, fmt.Errorf("kafkashare: the client of group %s cannot examine group %s", c.cfg.Group, how.Group)
	}
	l, err := c.inspect(ctx, topic)
	refused, _ := errors.AsType[*redeliver.ConfigError](err)
	if l == nil || err != nil && refused == nil {
		return nil, err
	}
	d := &examination{&doctor.Diagnosis{Origin: topic, Group: l.group}, c, l, how.WithDefaults()}
	var ps check.Problems
	if refused != nil {
		ps = refused.Problems
	}
	if _, err := c.checkGroup(ctx, &ps); err != nil {
		return nil, err
	}
	d.addSettings(ps)
	d.AddPause((&pauseMarks{client: c.client, topic: l.control}).read(ctx))
	adm := kadm.NewClient(c.client)
	waiting, err := d.unsettled(ctx, adm)
	if err != nil {
		d.NotChecked = append(d.NotChecked, fmt.Sprintf("the members of the groups, and waiting messages (%v)", err))
		return d.Diagnosis, nil
	}
	return d.Diagnosis, d.checkLate(ctx, adm, waiting)
}

// addSettings adds missing topics, and the problems ps of topics and of the group.
func (d *examination) addSettings(ps check.Problems) {
	for _, t := range d.layout.topics {
		if !t.Exists && !(d.options.AnyPolicy && t.Kind == kindDelay) {
			d.Add(doctor.SymptomMissing, t.Name, fmt.Sprintf("the %s topic does not exist: the group has never subscribed to %s with this policy, or it was deleted", t.Kind, d.Origin))
		}
	}
	for _, p := range ps {
		if p.Value == rules.Missing {
			continue // reported already
		}
		kind, place, setting := doctor.SymptomSettings, d.Group, p.Field
		if topic, isTopic := strings.CutPrefix(p.Field, "topic "); isTopic {
			place, setting, _ = strings.Cut(topic, " ")
		}
		if strings.HasPrefix(setting, "retention") {
			kind = doctor.SymptomRetention
		}
		d.Add(kind, place, fmt.Sprintf("%s is %v: %s", setting, p.Value, p.Rule))
	}
	d.Checked = append(d.Checked, "which topics exist, their settings and those of group "+d.Group)
}

// unsettled checks whether a member reads the origin, and how many messages are unhandled or wait. It returns the first
// offset that the retry group has not settled, by topic and partition.
func (d *examination) unsettled(ctx context.Context, adm *kadm.Client) (map[string]map[int32]int64, error) {
	all, _, err := d.client.admin.topics(ctx)
	if err != nil {
		return nil, err
	}
	topics := slices.DeleteFunc(slices.Collect(maps.Keys(all)), func(name string) bool {
		_, waits := d.layout.level(name)
		return !waits && name != d.Origin
	})
	members, errMembers := adm.DescribeShareGroups(ctx, d.Group)
	shared, errShared := adm.DescribeShareGroupOffsets(ctx, d.Group)
	committed, errCommitted := adm.FetchOffsetsForTopics(ctx, d.client.cfg.retryGroup(), topics...)
	starts, errStarts := adm.ListStartOffsets(ctx, topics...)
	ends, errEnds := adm.ListCommittedOffsets(ctx, topics...)
	if err := members[d.Group].Err; err != nil && !errors.Is(err, kerr.GroupIDNotFound) {
		errMembers = err
	}
	if err := errors.Join(errMembers, errShared, errCommitted, errStarts, errEnds, starts.Error(), ends.Error()); err != nil {
		return nil, err
	}
	counts, from := make(map[string]int64), make(map[string]map[int32]int64)
	ends.Each(func(end kadm.ListedOffset) {
		topic, n := end.Topic, end.Partition
		first := max(starts[topic][n].Offset, committed[topic][n].At)
		count := end.Offset - first
		if p, ok := shared[d.Group].Offsets.Lookup(topic, n); ok && p.Lag >= 0 { // an unread partition has no lag
			count = p.Lag
		}
		counts[topic] += count
		if topic != d.Origin && count > 0 {
			if from[topic] == nil {
				from[topic] = make(map[int32]int64)
			}
			from[topic][n] = first
		}
	})
	d.addWaiting(counts, slices.Contains(members.SubscribedTopics(), d.Origin))
	return from, nil
}

// addWaiting adds the symptoms that the numbers of messages show. isRead reports whether a member reads the origin.
func (d *examination) addWaiting(counts map[string]int64, isRead bool) {
	backlog, retries := counts[d.Origin], int64(0)
	d.Backlog = &backlog
	for _, topic := range slices.Sorted(maps.Keys(counts)) {
		level, waits := d.layout.level(topic)
		if !waits {
			continue
		}
		retries += counts[topic]
		if level != 0 && !slices.Contains(d.layout.ladder, level) && !d.options.AnyPolicy {
			d.AddUnusedLevel(topic, counts[topic], kafkaname.DeleteCommand(d.client.cfg.Brokers, topic))
		}
	}
	if backlog+retries > 0 && !isRead {
		d.Add(doctor.SymptomConsumer, d.Group, fmt.Sprintf("no member of the group reads %s, and about %d messages wait, %d of them retries", d.Origin, backlog+retries, retries))
	}
	d.Checked = append(d.Checked, "the members of group "+d.Group, "waiting messages, and whether they are late", "levels that the policy does not use")
}

// checkLate checks how old the unsettled records are. from has the offset of the oldest in each partition.
func (d *examination) checkLate(ctx context.Context, adm *kadm.Client, from map[string]map[int32]int64) error {
	for _, topic := range slices.Sorted(maps.Keys(from)) {
		level, _ := d.layout.level(topic)
		longest := level + d.layout.jitter + slices.Min(append(slices.Clip(d.layout.ladder), redeliver.MaxWait)) // the end of a wait that is too short for a level
		limit := time.Now().Add(-longest - d.options.Late)
		recent, err := adm.ListOffsetsAfterMilli(ctx, limit.UnixMilli(), topic)
		if err != nil {
			return fmt.Errorf("kafkashare: asking for the oldest messages of %s: %w", topic, err)
		}
		for _, n := range slices.Sorted(maps.Keys(from[topic])) {
			offset := from[topic][n]
			if old := recent[topic][n].Offset - offset; old > 0 {
				d.Add(doctor.SymptomLate, topic, fmt.Sprintf("%d messages from offset %d of partition %d on were written before %s, should have left %s later at the latest, and are not settled",
					old, offset, n, limit.UTC().Format(time.RFC3339), longest))
			}
		}
	}
	return nil
}
