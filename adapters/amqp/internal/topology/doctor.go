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
		d.NotChecked = append(d.NotChecked, "levels that the policy does not use, and levels that are missing (the policy is not given)")
	}
	if err := d.checkQueues(ctx); err != nil {
		return nil, err
	}
	d.AddPause(paused())
	d.NotChecked = append(d.NotChecked, s.Unchecked...)
	if !s.Asked {
		d.NotChecked = append(d.NotChecked, "what is late (ManagementURL is not set)")
		return d.Diagnosis, nil
	}
	d.reportSettings()
	if !how.AnyPolicy {
		d.reportUnusedLevels()
	}
	if err := d.findLate(ctx); err != nil {
		return nil, err
	}
	return d.Diagnosis, nil
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

func (d *examination) reportUnusedLevels() {
	for _, q := range d.OldLevels() {
		messages := int64(-1)
		if n := d.Queues[q.Name].Messages; n != nil {
			messages = *n
		}
		d.AddUnusedLevel(q.Name, messages, d.broker.Management.DeleteCommand(q.Name))
	}
	d.Checked = append(d.Checked, "levels that the policy does not use")
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
