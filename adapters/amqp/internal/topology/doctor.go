package topology

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/amqp/internal/layout"
	"github.com/redeliver/redeliver/adapters/amqp/internal/link"
	"github.com/redeliver/redeliver/adapters/amqp/internal/management"
	"github.com/redeliver/redeliver/doctor"
	"github.com/redeliver/redeliver/internal/wait"
)

// examination checks one queue and the queues on which its messages wait.
type examination struct {
	*doctor.Diagnosis
	*Survey

	how doctor.Examination
}

// Examine checks a queue and the queues on which its messages wait. paused returns the mark of a pause.
func (s *Survey) Examine(ctx context.Context, how doctor.Examination, paused func() (*redeliver.PauseMark, error)) (*doctor.Diagnosis, error) {
	d := &examination{&doctor.Diagnosis{Origin: s.layout.Queue, Group: s.layout.Queue}, s, how}
	if how.AnyPolicy {
		d.NotChecked = append(d.NotChecked, "levels of older policies, and levels that are missing (the policy is not given)")
	}
	if err := d.checkQueues(ctx); err != nil {
		return nil, err
	}
	d.AddPause(paused())
	d.NotChecked = append(d.NotChecked, s.Unchecked...)
	if !s.Asked {
		d.NotChecked = append(d.NotChecked, "what is late, and the policies of the consumers (ManagementURL is not set)")
		return d.Diagnosis, nil
	}
	d.reportSettings()
	if !how.AnyPolicy {
		d.reportOldLevels()
	}
	if err := d.findLate(ctx); err != nil {
		return nil, err
	}
	return d.Diagnosis, d.comparePolicies(ctx)
}

// checkQueues checks which queues exist, and whether anything reads them.
func (d *examination) checkQueues(ctx context.Context) error {
	for _, q := range append([]layout.Queue{{Name: d.layout.Queue, Kind: layout.MainQueue}}, d.layout.Queues...) {
		c, err := d.broker.Consuming.Stat(ctx, q.Name) // not Publishing: see Broker.Declarer
		switch {
		case err == nil:
			d.addCounts(q, c)
		case link.ErrorCode(err) == 0:
			return err
		case link.IsNotFound(err):
			if q.Kind != layout.PauseQueue && (q.Kind != layout.DelayQueue || !d.how.AnyPolicy) {
				d.Add(doctor.SymptomMissing, q.Name, fmt.Sprintf("the %s queue does not exist: there was never a subscription to %s with this policy, or it was deleted", q.Kind, d.layout.Queue))
			}
		default:
			d.NotChecked = append(d.NotChecked, fmt.Sprintf("%s (%v)", q.Name, err))
		}
	}
	d.Checked = append(d.Checked, "which queues exist, and whether they have consumers")
	return nil
}

func (d *examination) addCounts(q layout.Queue, c link.Counts) {
	if q.Kind == layout.MainQueue {
		backlog := int64(c.Ready)
		d.Backlog = &backlog
	}
	if (q.Kind == layout.MainQueue || q.Kind == layout.RetryQueue) && c.Consumers == 0 && c.Ready > 0 {
		d.Add(doctor.SymptomConsumer, q.Name, fmt.Sprintf("has no consumer, and %d messages wait in it", c.Ready))
	}
}

// reportSettings reports the problems that the survey has found.
func (d *examination) reportSettings() {
	for _, p := range d.Problems {
		name, ok := strings.CutPrefix(p.Field, "queue ")
		kind := doctor.SymptomSettings
		if set, is := p.Value.(management.Setting); is && slices.Contains([]string{"message-ttl", "expires", "max-length", "max-length-bytes"}, set.Key) {
			kind = doctor.SymptomRetention
		}
		if !ok {
			name = p.Field
		}
		d.Add(kind, name, fmt.Sprintf("%v: %s", p.Value, p.Rule))
	}
	d.Checked = append(d.Checked, "arguments of the queues, and policies and limits on them")
}

func (d *examination) reportOldLevels() {
	for _, q := range d.OldLevels() {
		d.Add(doctor.SymptomOrphan, q.Name, d.oldLevelText(q))
	}
	d.Checked = append(d.Checked, "levels of older policies")
}

// countDelay is a bound for how old the broker's own counts may be.
const countDelay = 6 * time.Second

// findLate finds messages whose level is over and that do not move. Messages that were just released look the same,
// so it looks twice.
func (d *examination) findLate(ctx context.Context) error {
	stuck := d.countStuck(d.Queues)
	if len(stuck) > 0 {
		if err := wait.For(ctx, countDelay); err != nil {
			return err
		}
		again, err := d.broker.Management.Queues(ctx, d.layout.Pattern())
		if err != nil {
			return err
		}
		now := d.countStuck(again)
		for _, name := range slices.Sorted(maps.Keys(stuck)) {
			if n := min(now[name], stuck[name]); n > 0 {
				d.Add(doctor.SymptomLate, name, fmt.Sprintf("%d messages have waited for their level and are stuck: %s does not take them, or the broker is behind with them", n, d.layout.Retry()))
			}
		}
	}
	d.Checked = append(d.Checked, "whether messages whose level is over are stuck")
	d.NotChecked = append(d.NotChecked, "how long messages wait in "+d.layout.Retry()+" when they are due (no API reports it)")
	return nil
}

// countStuck returns the number of stuck messages of each level.
func (d *examination) countStuck(queues map[string]management.QueueInfo) map[string]int64 {
	found := make(map[string]int64)
	for name, q := range queues {
		if _, level := d.layout.Names.Level(d.layout.Queue, name); level && q.Stuck() > 0 {
			found[name] = q.Stuck()
		}
	}
	return found
}

// comparePolicies checks whether all consumers of the queue run one policy.
func (d *examination) comparePolicies(ctx context.Context) error {
	runs, unreported, err := d.broker.Management.Consumers(ctx, d.layout.Queue)
	if err != nil {
		return err
	}
	if unreported > 0 {
		d.NotChecked = append(d.NotChecked, fmt.Sprintf("the policies of %d consumers of %s (they do not report one: an older version, or another program)", unreported, d.layout.Queue))
	}
	if len(runs) > 0 {
		d.Checked = append(d.Checked, "the policies of the consumers")
	}
	var texts []string
	for _, p := range slices.Sorted(maps.Keys(runs)) {
		texts = append(texts, fmt.Sprintf("%s runs on %s", p, strings.Join(runs[p], ", ")))
	}
	switch {
	case len(runs) > 1:
		d.Add(doctor.SymptomPolicies, d.layout.Queue, "consumers run different policies: "+strings.Join(texts, "; ")+". Which one decides depends on the consumer that gets a message: finish the deployment that is under way")
	case len(runs) == 1 && !d.how.AnyPolicy && runs[d.layout.Fingerprint] == nil:
		d.Add(doctor.SymptomPolicies, d.layout.Queue, "the consumers run a policy other than the given one, which is "+d.layout.Fingerprint+": "+texts[0])
	}
	return nil
}
