package kafka

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/redeliver/redeliver/doctor"
)

// OldLevels lists the delay topics that an older policy has left beside the client's own. For each
// that must stay, it reports why. It changes nothing.
//
// A level is drained when nothing waits on it, and all members of the group report the client's
// policy. A group without members has none with another policy. Kafka does not know programs that
// publish with a delay and are not members: stop those that have an older policy.
func (c *Client) OldLevels(ctx context.Context, topic string) ([]doctor.OldLevel, error) {
	return c.checkOldLevels(ctx, topic, func(string) bool { return true })
}

// checkOldLevels is OldLevels for the wanted delay topics.
func (c *Client) checkOldLevels(ctx context.Context, topic string, wanted func(place string) bool) ([]doctor.OldLevel, error) {
	l, err := c.layout(topic, c.cfg.Group)
	if err != nil {
		return nil, err
	}
	var old []doctor.OldLevel
	var names []string
	for _, t := range l.Topics {
		if t.Old && wanted(t.Name) {
			old = append(old, doctor.OldLevel{Place: t.Name, Level: t.Level, Messages: -1})
			names = append(names, t.Name)
		}
	}
	if len(old) == 0 {
		return nil, nil
	}
	d := &examination{&doctor.Diagnosis{Origin: l.Origin, Group: l.Group}, c, l, doctor.Examination{}}
	reason := d.keepReason(d.describeGroup(ctx))
	lags, err := d.lags(ctx, d.layout.Group, names)
	if err != nil {
		return nil, err
	}
	for i := range old {
		o := &old[i]
		if lag, known := lags[o.Place]; known {
			o.Messages = lag.total()
		}
		switch {
		case o.Messages > 0:
			o.KeepReason = fmt.Sprintf("%d messages wait on it", o.Messages)
		case o.Messages < 0:
			o.KeepReason = "whether messages wait on it is not known: the user needs Describe on group " + l.Group
		default:
			o.KeepReason = reason
		}
	}
	return old, nil
}

// keepReason returns why no level may be deleted, even if it is empty: a member may write there. It is "" if there is
// no reason.
func (d *examination) keepReason(g *groupState) string {
	if g == nil {
		return "not checked: " + strings.Join(d.NotChecked, "; ")
	}
	if g.unreported > 0 {
		return fmt.Sprintf("%d members of group %s do not report their policy: end them, or delete it by hand when none runs an older one", g.unreported, d.layout.Group)
	}
	for _, p := range slices.Sorted(maps.Keys(g.policies)) {
		if p != d.layout.Fingerprint {
			return fmt.Sprintf("%s runs policy %s, and the one that is given is %s: end the deployment that is under way, or give the policy of the service", strings.Join(g.policies[p], ", "), p, d.layout.Fingerprint)
		}
	}
	return ""
}

// RemoveOldLevels deletes those of the named delay topics that are drained, see [Client.OldLevels].
// The others stay, and the result has the reason. Each topic is checked again immediately before it
// is deleted. With an error, the result has the topics that were handled before it. The user needs
// Delete on the topics. The group rebalances once for each.
func (c *Client) RemoveOldLevels(ctx context.Context, topic string, places ...string) (done []doctor.OldLevel, err error) {
	for _, place := range places {
		// Check only this one: levels that were just deleted may still be listed, and have no offsets.
		old, err := c.checkOldLevels(ctx, topic, func(name string) bool { return name == place })
		if err != nil {
			return done, err
		}
		if len(old) == 0 {
			done = append(done, doctor.OldLevel{Place: place, Messages: -1, KeepReason: "it is not a level of an older policy, or no longer exists"})
			continue
		}
		o := old[0]
		if o.KeepReason == "" {
			if err := c.admin.DeleteTopic(place); err != nil {
				return done, err
			}
			o.Removed = true
		}
		done = append(done, o)
	}
	return done, nil
}
