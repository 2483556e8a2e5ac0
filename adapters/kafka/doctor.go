package kafka

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/doctor"
)

// doctor looks at one subscription.
type examination struct {
	*doctor.Diagnosis

	c   *Client
	l   *layout
	how doctor.Examination
}

// Doctor checks the client's group and the topics on which messages of a topic wait. It checks that
// the topics exist, keep their messages for long enough, are read, and deliver what is due. It
// lists levels that an older policy left, and reports whether all members run one policy. It joins
// no group, and writes and creates nothing. It returns an error if the cluster does not answer, or
// the topic itself does not exist.
func (c *Client) Doctor(ctx context.Context, topic string, how doctor.Examination) (*doctor.Diagnosis, error) {
	l, err := c.layout(topic)
	if err != nil {
		return nil, err
	}
	d := &examination{&doctor.Diagnosis{Origin: l.origin, Group: l.group}, c, l, how}
	if how.AnyPolicy {
		l.adopt()
		d.NotChecked = append(d.NotChecked, "levels of older policies, and levels that are missing (the policy of the group is not given)")
	}
	if err := d.settings(); err != nil {
		return nil, err
	}
	g := d.group(ctx)
	d.policies(g)
	if err := d.waiting(ctx, g); err != nil {
		return nil, err
	}
	return d.Diagnosis, d.abandoned(ctx)
}

// abandoned looks for messages that wait for groups without members, as those of a group do that was renamed.
func (d *examination) abandoned(ctx context.Context) error {
	there, err := d.c.admin.topics()
	if err != nil {
		return err
	}
	names := d.c.cfg.Names
	for _, name := range slices.Sorted(maps.Keys(there)) {
		rest, ok := strings.CutPrefix(name, d.l.origin+".")
		escaped, _, level := strings.Cut(rest, ".retry")
		group := unescapeGroup(escaped)
		if !ok || !level || group == d.l.group {
			continue
		}
		if _, level = names.level(d.l.origin, group, name); !level && name != names.retry(d.l.origin, group) {
			continue
		}
		found, err := d.c.admin.sarama.DescribeConsumerGroups([]string{group})
		if err != nil || len(found) != 1 || len(found[0].Members) > 0 || !slices.Contains([]string{"Empty", "Dead"}, found[0].State) {
			continue // it has members, or nobody knows
		}
		lags, err := d.lags(ctx, group, []string{name})
		if err != nil {
			return err
		}
		if n := lags[name].all(); n > 0 {
			d.Add(doctor.SymptomOrphan, name, fmt.Sprintf("%d messages wait on it for group %s, which has no members: if the group was renamed, start a member with the old name until they have run", n, group))
		}
	}
	d.Checked = append(d.Checked, "what waits for other groups of the topic that have no members")
	return nil
}

// adopt takes the levels that there are for those of the policy.
func (l *layout) adopt() {
	l.topics = slices.DeleteFunc(l.topics, func(t ownTopic) bool { return t.kind == delayTopic && !t.exists })
	l.ladder = nil
	for i := range l.topics {
		l.topics[i].old, l.topics[i].rung = false, false
		if l.topics[i].kind == delayTopic {
			l.ladder = append(l.ladder, l.topics[i].level)
		}
	}
	slices.Sort(l.ladder)
	l.policy = redeliver.Policy{MaxRetries: redeliver.NoRetries}
	if len(l.ladder) > 0 {
		l.policy = redeliver.Policy{MaxRetries: len(l.ladder), Backoff: redeliver.Steps(l.ladder...)}
	}
	l.policy = l.policy.WithDefaults()
}

// settings looks whether the topics are there and can hold the policy.
func (d *examination) settings() error {
	for _, t := range d.l.topics {
		if !t.exists && !t.rung {
			d.Add(doctor.SymptomMissing, t.name, fmt.Sprintf("the %s topic does not exist: the group has never subscribed to %s with this policy, or somebody deleted it", t.kind, d.l.origin))
		}
	}
	d.Checked = append(d.Checked, "which topics are there, their settings and their retention")
	err := d.c.verify(d.l)
	found := slices.Concat(d.l.unfit, d.l.warnings)
	if refused, ok := errors.AsType[*redeliver.ConfigError](err); ok {
		found = append(refused.Problems, found...)
	} else if err != nil {
		return err
	}
	for _, p := range found {
		name, setting, _ := strings.Cut(strings.TrimPrefix(p.Field, "topic "), " ")
		if name == p.Field || p.Value == "missing" { // of this client's configuration, or told already
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

// waiting looks at what lies on the topics, and who reads it.
func (d *examination) waiting(ctx context.Context, g *groupState) error {
	topics := []string{d.l.origin}
	for _, t := range d.l.topics {
		if t.waits() && t.exists {
			topics = append(topics, t.name)
		}
	}
	lags, err := d.lags(ctx, d.l.group, topics)
	if err != nil {
		return err
	}
	if lags == nil { // d says why
		d.NotChecked = append(d.NotChecked, "what waits, and what is late (offsets of the group are needed for that)")
		return nil
	}
	d.reads(g, lags)
	for _, t := range d.l.topics {
		if !t.waits() || !t.exists {
			continue
		}
		n := lags[t.name].all()
		switch {
		case t.old && n == 0:
			d.Add(doctor.SymptomOrphan, t.name, "is a level of an older policy, and empty: delete it when no older version of the service runs; redeliver prune does that")
		case t.old:
			d.Add(doctor.SymptomOrphan, t.name, fmt.Sprintf("is a level of an older policy, and %d messages wait on it: it is read until it is empty", n))
		case g.reads(d.l.origin) && !g.reads(t.name) && n > 0:
			d.Add(doctor.SymptomOrphan, t.name, fmt.Sprintf("%d messages wait on it, and no member of the group reads it: members look for such levels when the group rebalances, and every %s", n, sweepEvery*lookEvery))
		}
		if err := d.late(ctx, t, lags[t.name]); err != nil {
			return err
		}
	}
	d.Checked = append(d.Checked, "what waits, and whether it is late")
	if !d.how.AnyPolicy {
		d.Checked = append(d.Checked, "levels of older policies")
	}
	return nil
}

// reads looks whether somebody reads what waits.
func (d *examination) reads(g *groupState, lags map[string]lag) {
	if g == nil {
		return // it is said already why nobody knows
	}
	var sum, retries int64
	for topic, lag := range lags {
		sum += lag.all()
		if topic != d.l.origin {
			retries += lag.all()
		}
	}
	if sum > 0 && !g.reads(d.l.origin) {
		d.Add(doctor.SymptomConsumer, d.l.group, fmt.Sprintf("no member of the group reads %s, and about %d messages wait, %d of them retries", d.l.origin, sum, retries))
	}
}

// late looks at the oldest record of each partition that is not settled.
func (d *examination) late(ctx context.Context, t ownTopic, waiting lag) error {
	log := logReader{d.c.admin.client, t.name}
	for _, p := range slices.Sorted(maps.Keys(waiting)) {
		left := waiting[p]
		if left.n() <= 0 {
			continue
		}
		page, err := log.read(ctx, p, left.from)
		if err != nil {
			return err
		}
		if len(page.records) == 0 {
			continue // what ends a transaction
		}
		rec := page.records[0]
		leaves := rec.at.Add(t.level)
		if due, ok := dueOf(&rec); ok && (t.level == 0 || due.Before(leaves)) {
			leaves = due
		}
		if over := time.Since(leaves); over > d.how.WithDefaults().Late {
			d.Add(doctor.SymptomLate, t.name, fmt.Sprintf("offset %d of partition %d should have moved on at %s, %s ago, and is not settled; from it to the end there are %d records",
				rec.offset, p, leaves.UTC().Format(time.RFC3339), over.Round(time.Second), left.n()))
		}
	}
	return nil
}

// dueOf reads when a record is due, where it says so.
func dueOf(rec *fetched) (due time.Time, ok bool) {
	_, ours := split(rec.headers)
	for _, h := range ours {
		if h != nil && string(h.Key) == redeliver.HeaderDue {
			due, err := time.Parse(time.RFC3339Nano, string(h.Value))
			return due, err == nil
		}
	}
	return due, false
}
