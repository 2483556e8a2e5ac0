// Package diagnose examines a group and the topics on which its messages wait, for mq.Operations.Doctor. It joins no group,
// and writes nothing.
package diagnose

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka/internal/cluster"
	"github.com/redeliver/redeliver/adapters/kafka/internal/commands"
	"github.com/redeliver/redeliver/adapters/kafka/internal/record"
	"github.com/redeliver/redeliver/adapters/kafka/internal/topiclog"
	"github.com/redeliver/redeliver/adapters/kafka/internal/topology"
	"github.com/redeliver/redeliver/doctor"
	"github.com/redeliver/redeliver/internal/kafkaname"
	"github.com/redeliver/redeliver/internal/wirename"
)

// Examiner examines groups. CheckInterval is how often members look for levels of other policies. Brokers are the
// addresses for the commands that it prints.
type Examiner struct {
	Topics        *topology.Provisioner
	CheckInterval time.Duration
	Brokers       []string
}

// examination is one examination of a group.
type examination struct {
	*doctor.Diagnosis
	*Examiner

	admin   cluster.Admin
	layout  *topology.Layout
	options doctor.Examination
}

// Examine examines the group of a layout, see mq.Operations.Doctor. It may change the layout.
func (e *Examiner) Examine(ctx context.Context, l *topology.Layout, how doctor.Examination) (*doctor.Diagnosis, error) {
	d := &examination{&doctor.Diagnosis{Origin: l.Origin, Group: l.Group}, e, e.Topics.Admin, l, how}
	if how.AnyPolicy {
		l.AdoptLevels()
		d.NotChecked = append(d.NotChecked, "levels that the policy does not use, and levels that are missing (the policy of the group is not given)")
	}
	if err := d.checkSettings(); err != nil {
		return nil, err
	}
	d.checkPause(ctx)
	if err := d.checkWaiting(ctx, d.findReaders(ctx)); err != nil {
		return nil, err
	}
	return d.Diagnosis, d.checkAbandoned(ctx)
}

// checkPause checks whether the group is paused.
func (d *examination) checkPause(ctx context.Context) {
	if !d.layout.Control.Exists {
		d.AddPause(nil, nil)
		return
	}
	d.AddPause(commands.Paused(ctx, d.admin.Client, d.layout.Control.Name))
}

// checkAbandoned looks for messages that wait for groups without members, for example after a group was renamed.
func (d *examination) checkAbandoned(ctx context.Context) error {
	existing, err := d.admin.Topics()
	if err != nil {
		return err
	}
	names := d.Topics.Config.Names
	for _, name := range slices.Sorted(maps.Keys(existing)) {
		rest, ok := strings.CutPrefix(name, d.layout.Origin+".")
		escaped, _, level := strings.Cut(rest, wirename.RetrySuffix)
		group := kafkaname.UnescapeGroup(escaped)
		if !ok || !level || group == d.layout.Group {
			continue
		}
		if _, waits := kafkaname.Level(names.RetryTopic(d.layout.Origin, group), name); !waits {
			continue
		}
		found, err := d.admin.DescribeGroup(group)
		if err == nil && (len(found.Members) > 0 || !slices.Contains([]string{"Empty", "Dead"}, found.State)) {
			continue // it has members
		}
		lags, failure := d.lags(ctx, group, []string{name})
		if failure != nil {
			return failure
		}
		switch n := lags[name].total(); {
		case n > 0 && err != nil:
			d.NotChecked = append(d.NotChecked, fmt.Sprintf("whether group %s, for which %d messages wait on %s, has members (%v)", group, n, name, err))
		case n > 0:
			d.Add(doctor.SymptomOrphan, name, fmt.Sprintf("%d messages wait on it for group %s, which has no members: if the group was renamed, start a member with the old name until they have run", n, group))
		}
	}
	d.Checked = append(d.Checked, "messages that wait for other groups of the topic without members")
	return nil
}

// checkSettings checks whether the topics exist and can hold the policy.
func (d *examination) checkSettings() error {
	for _, t := range d.layout.Topics {
		if !t.Exists && !t.Rung {
			d.Add(doctor.SymptomMissing, t.Name, fmt.Sprintf("the %s topic does not exist: the group has never subscribed to %s with this policy, or it was deleted", t.Kind, d.layout.Origin))
		}
	}
	d.Checked = append(d.Checked, "which topics exist, their settings and their retention")
	err := d.Topics.Verify(d.layout)
	found := slices.Concat(d.layout.Unfit, d.layout.Warnings)
	companions, _, failure := d.Topics.CheckCompanions(d.layout)
	if failure != nil {
		d.NotChecked = append(d.NotChecked, fmt.Sprintf("the settings of %s and %s (%v)", d.layout.State.Name, d.layout.Control.Name, failure))
	}
	found = append(found, companions...)
	if refused, ok := errors.AsType[*redeliver.ConfigError](err); ok {
		found = append(refused.Problems, found...)
	} else if err != nil {
		return err
	}
	for _, p := range found {
		name, setting, _ := strings.Cut(strings.TrimPrefix(p.Field, "topic "), " ")
		if name == p.Field || p.Value == "missing" { // it is about the client's configuration, or reported already
			continue
		}
		kind := doctor.SymptomSettings
		if strings.HasPrefix(setting, "retention") {
			kind = doctor.SymptomRetention
		}
		d.Add(kind, name, fmt.Sprintf("%s is %v: %s", setting, p.Value, p.Rule))
	}
	return nil
}

// checkWaiting checks how many messages wait, who reads them, and whether they are late.
func (d *examination) checkWaiting(ctx context.Context, of readers) error {
	topics := []string{d.layout.Origin}
	for _, t := range d.layout.Topics {
		if t.Waits() && t.Exists {
			topics = append(topics, t.Name)
		}
	}
	lags, err := d.lags(ctx, d.layout.Group, topics)
	if err != nil {
		return err
	}
	if lags == nil { // the user may not ask
		d.NotChecked = append(d.NotChecked, "waiting messages, and whether they are late (that needs the offsets of the group)")
		return nil
	}
	backlog := lags[d.layout.Origin].total()
	d.Backlog = &backlog
	d.checkReaders(of, lags)
	if err := d.checkTransactions(ctx, lags); err != nil {
		return err
	}
	for _, t := range d.layout.Topics {
		if !t.Waits() || !t.Exists {
			continue
		}
		n := lags[t.Name].total()
		switch {
		case t.Old:
			d.AddUnusedLevel(t.Name, n, kafkaname.DeleteCommand(d.Brokers, t.Name))
		case of.read(d.layout.Origin) && !of.read(t.Name) && n > 0:
			d.Add(doctor.SymptomOrphan, t.Name, fmt.Sprintf("%d messages wait on it, and no member of the group reads it: members look for such levels when the group rebalances, and every %s", n, d.CheckInterval))
		}
		if err := d.checkLate(ctx, t, lags[t.Name]); err != nil {
			return err
		}
	}
	d.Checked = append(d.Checked, "waiting messages, and whether they are late")
	if !d.options.AnyPolicy {
		d.Checked = append(d.Checked, "levels that the policy does not use")
	}
	return nil
}

// checkReaders checks whether a member reads the messages that wait.
func (d *examination) checkReaders(of readers, lags map[string]lag) {
	var sum, retries int64
	for topic, lag := range lags {
		sum += lag.total()
		if topic != d.layout.Origin {
			retries += lag.total()
		}
	}
	if sum > 0 && !of.read(d.layout.Origin) {
		d.Add(doctor.SymptomConsumer, d.layout.Group, fmt.Sprintf("no member of the group reads %s, and about %d messages wait, %d of them retries", d.layout.Origin, sum, retries))
	}
}

// checkTransactions checks whether an open transaction hides records of the topics from the group.
func (d *examination) checkTransactions(ctx context.Context, lags map[string]lag) error {
	late := d.options.WithDefaults().Late
	for _, topic := range slices.Sorted(maps.Keys(lags)) {
		log := topiclog.Reader{Client: d.admin.Client, Topic: topic}
		for _, p := range slices.Sorted(maps.Keys(lags[topic])) {
			left := lags[topic][p]
			if left.count() <= 0 {
				continue
			}
			open, err := log.StableEnd(ctx, p, left.end)
			if err != nil {
				return err
			}
			if open >= left.end {
				continue
			}
			since, err := log.TimeFrom(ctx, p, open)
			if err != nil {
				return err
			}
			if !since.IsZero() && time.Since(since) > late {
				d.Add(doctor.SymptomLate, topic, fmt.Sprintf("a transaction of a producer is open since offset %d of partition %d, for more than %s: no consumer that reads committed records gets the %d records from it to the end. "+
					"If its producer has died, the broker ends it after transaction.timeout.ms; if not, end it: kafka-transactions.sh --bootstrap-server %s abort --topic %s --partition %[2]d --start-offset %[1]d",
					open, p, late, left.end-open, strings.Join(d.Brokers, ","), topic))
			}
		}
	}
	return nil
}

// checkLate checks the oldest unsettled record of each partition.
func (d *examination) checkLate(ctx context.Context, t topology.Topic, waiting lag) error {
	log := topiclog.Reader{Client: d.admin.Client, Topic: t.Name}
	for _, p := range slices.Sorted(maps.Keys(waiting)) {
		left := waiting[p]
		if left.count() <= 0 {
			continue
		}
		page, err := log.Read(ctx, p, left.from)
		if err != nil {
			return err
		}
		if len(page.Records) == 0 {
			continue // only markers of transactions
		}
		rec := page.Records[0]
		leavesAt := rec.Time.Add(t.Level)
		if due, ok := dueOf(&rec); ok && (t.Level == 0 || due.Before(leavesAt)) {
			leavesAt = due
		}
		if lateBy := time.Since(leavesAt); lateBy > d.options.WithDefaults().Late {
			d.Add(doctor.SymptomLate, t.Name, fmt.Sprintf("offset %d of partition %d should have moved on at %s, %s ago, and is not settled; from it to the end there are %d records",
				rec.Offset, p, leavesAt.UTC().Format(time.RFC3339), lateBy.Round(time.Second), left.count()))
		}
	}
	return nil
}

// dueOf returns when a record is due, if its headers say so.
func dueOf(rec *topiclog.Record) (due time.Time, ok bool) {
	_, ours := record.SplitHeaders(rec.Headers)
	for _, h := range ours {
		if h != nil && string(h.Key) == redeliver.HeaderDue {
			due, err := time.Parse(time.RFC3339Nano, string(h.Value))
			return due, err == nil
		}
	}
	return due, false
}
