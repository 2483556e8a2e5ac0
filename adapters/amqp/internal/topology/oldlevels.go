package topology

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver/adapters/amqp/internal/layout"
	"github.com/redeliver/redeliver/adapters/amqp/internal/link"
	"github.com/redeliver/redeliver/adapters/amqp/internal/management"
	"github.com/redeliver/redeliver/doctor"
	"github.com/redeliver/redeliver/internal/wait"
)

// OldLevels lists the delay queues that an older policy has left. It reports why a level
// must stay, if it must.
func (b *Broker) OldLevels(ctx context.Context, l *layout.Layout) ([]doctor.OldLevel, error) {
	m := b.Management
	if m == nil {
		return nil, fmt.Errorf("amqp: listing old levels: %w", management.ErrNoAPI)
	}
	var err error
	s := &Survey{broker: b, layout: l}
	if s.Queues, err = m.Queues(ctx, l.Pattern()); err != nil {
		return nil, err
	}
	runs, unreported, err := m.Consumers(ctx, l.Queue)
	if err != nil {
		return nil, err
	}
	keepAll := keepReason(l, runs, unreported)
	var old []doctor.OldLevel
	for _, q := range s.OldLevels() {
		o := doctor.OldLevel{Place: q.Name, Level: q.Level, Messages: -1}
		if n := s.Queues[q.Name].Messages; n != nil {
			o.Messages = *n
		}
		switch {
		case o.Messages > 0:
			o.KeepReason = fmt.Sprintf("%d messages wait on it", o.Messages)
		case o.Messages < 0:
			o.KeepReason = "how many messages wait on it is not known yet: the broker counts them every few seconds"
		default:
			o.KeepReason = keepAll
		}
		old = append(old, o)
	}
	return old, nil
}

// keepReason returns why no level may be removed now: a consumer may still write there.
func keepReason(l *layout.Layout, runs map[string][]string, unreported int) string {
	if unreported > 0 {
		return fmt.Sprintf("%d consumers of %s do not report their policy: end them, or delete it by hand when none runs an older one", unreported, l.Queue)
	}
	for _, p := range slices.Sorted(maps.Keys(runs)) {
		if p != l.Fingerprint {
			return fmt.Sprintf("%s uses policy %s, but this client has policy %s: finish the rollout, or give the policy of the service", strings.Join(runs[p], ", "), p, l.Fingerprint)
		}
	}
	return ""
}

// RemoveOldLevels deletes those of the named delay queues that are drained.
func (b *Broker) RemoveOldLevels(ctx context.Context, l *layout.Layout, places ...string) (done []doctor.OldLevel, err error) {
	first, err := b.findOldLevels(ctx, l, places) // twice, because the counts of the API are seconds old
	if err != nil {
		return nil, err
	}
	if slices.ContainsFunc(first, func(o doctor.OldLevel) bool { return o.KeepReason == "" }) {
		if err := wait.For(ctx, countDelay); err != nil {
			return nil, err
		}
	}
	second, err := b.findOldLevels(ctx, l, places)
	if err != nil {
		return nil, err
	}
	d := b.Declarer(ctx)
	defer d.Close()
	for i, o := range second {
		if o.KeepReason == "" {
			o.KeepReason = first[i].KeepReason
		}
		if o.KeepReason == "" {
			err = d.removeQueue(&o)
		}
		if err == nil || o.Removed {
			done = append(done, o)
		}
		if err != nil {
			return done, err
		}
	}
	return done, nil
}

// findOldLevels returns the old levels with these names.
func (b *Broker) findOldLevels(ctx context.Context, l *layout.Layout, places []string) ([]doctor.OldLevel, error) {
	old, err := b.OldLevels(ctx, l)
	if err != nil {
		return nil, err
	}
	chosen := make([]doctor.OldLevel, len(places))
	for i, place := range places {
		chosen[i] = doctor.OldLevel{Place: place, Messages: -1, KeepReason: "it is not a level of an older policy, or no longer exists"}
		if n := slices.IndexFunc(old, func(o doctor.OldLevel) bool { return o.Place == place }); n >= 0 {
			chosen[i] = old[n]
		}
	}
	return chosen, nil
}

// removeQueue deletes a queue if it is empty and has no consumer.
func (d *Declarer) removeQueue(o *doctor.OldLevel) error {
	var counts link.Counts
	counted := true
	refused := d.run(func(ch *amqp091.Channel) (err error) {
		counts, err = link.ConfirmedStat(ch, o.Place)
		if counted = !errors.Is(err, link.ErrUncounted); !counted {
			return nil // a new connection would not help
		}
		return err
	})
	switch {
	case d.err != nil:
		return d.err
	case !counted:
		o.KeepReason = "it is not counted: " + link.ErrUncounted.Error()
		return nil
	case refused != nil:
		o.KeepReason = "the broker says: " + refused.Reason
		return nil //nolint:nilerr // the broker's answer is not an error of the call, and is reported
	case counts != (link.Counts{}):
		o.Messages, o.KeepReason = int64(counts.Ready), fmt.Sprintf("%d messages wait on it, and %d consumers read it", counts.Ready, counts.Consumers)
		return nil
	}
	lost := 0
	refused = d.runOnce(func(ch *amqp091.Channel) (err error) {
		lost, err = ch.QueueDelete(o.Place, false, false, false)
		return err
	})
	switch {
	case d.err != nil:
		return d.err
	case refused != nil:
		o.KeepReason = "the broker says: " + refused.Reason
	case lost > 0:
		o.Removed = true
		return fmt.Errorf("amqp: queue %s was deleted, and with it %d messages that came at that moment: an instance with an older policy still writes there", o.Place, lost)
	default:
		o.Removed = true
	}
	return nil
}
