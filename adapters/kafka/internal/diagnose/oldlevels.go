package diagnose

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/redeliver/redeliver/adapters/kafka/internal/topology"
	"github.com/redeliver/redeliver/doctor"
)

// OldLevels lists the wanted delay topics of a layout that an older policy has left, see kafka.Client.OldLevels.
func (e *Examiner) OldLevels(ctx context.Context, l *topology.Layout, wanted func(place string) bool) ([]doctor.OldLevel, error) {
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
	d := e.begin(l, doctor.Examination{})
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
func (d *examination) keepReason(g *Members) string {
	if g == nil {
		return "not checked: " + strings.Join(d.NotChecked, "; ")
	}
	if g.Unreported > 0 {
		return fmt.Sprintf("%d members of group %s do not report their policy: end them, or delete it by hand when none runs an older one", g.Unreported, d.layout.Group)
	}
	for _, p := range slices.Sorted(maps.Keys(g.Policies)) {
		if p != d.layout.Fingerprint {
			return fmt.Sprintf("%s uses policy %s, but this client has policy %s: finish the rollout, or give the policy of the service", strings.Join(g.Policies[p], ", "), p, d.layout.Fingerprint)
		}
	}
	return ""
}
