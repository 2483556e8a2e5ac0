package topology

import (
	"context"
	"reflect"

	"github.com/redeliver/redeliver/adapters/amqp/internal/layout"
	"github.com/redeliver/redeliver/adapters/amqp/internal/management"
	"github.com/redeliver/redeliver/internal/check"
)

// Origin is what the latest check found out about the queue of a subscription. Its owner may delete the queue and declare
// it again, with other arguments.
type Origin struct {
	Expires bool // the broker may delete the queue while it has no consumer
	Classic bool
	// Missing are redeliver's queues that do not exist, if the latest check has looked for them.
	Missing []string
	// Unasked is why the management API did not answer the latest check that has asked it.
	Unasked error

	info management.QueueInfo
	fit  bool // it had no problem
}

// AutoDelete reports whether the broker deletes the queue with its last consumer.
func (o *Origin) AutoDelete() bool { return o.info.AutoDelete }

// CheckOrigin checks the queue of a subscription again before it is read, if its arguments have changed. Its error is that
// of a start.
func (b *Broker) CheckOrigin(ctx context.Context, l *layout.Layout, o *Origin) error {
	return b.checkAgain(ctx, l, o, false)
}

// CheckAgain repeats the checks of a start: also redeliver's queues, and what the management API knows.
func (b *Broker) CheckAgain(ctx context.Context, l *layout.Layout, o *Origin) error {
	return b.checkAgain(ctx, l, o, true)
}

func (b *Broker) checkAgain(ctx context.Context, l *layout.Layout, o *Origin, whole bool) error {
	o.Missing = nil
	d := b.Declarer(ctx)
	defer d.Close()
	s := &Survey{broker: b, layout: l}
	var ps check.Problems
	if exists := d.Exists(&ps, l.Queue); !exists || ps != nil {
		return d.Result(ps)
	}
	guess := o.info
	if guess.Name == "" {
		guess = s.infoOf(l.OriginQueue())
	}
	info, why := d.readArguments(guess)
	if d.err != nil {
		return d.err
	}
	if !whole && o.fit && why == "" && reflect.DeepEqual(info, o.info) {
		return nil
	}
	asked, err := b.Survey(ctx, l)
	if asked == nil {
		return err
	}
	s = asked
	o.Unasked = err
	silent := err != nil // the management API, which knows the policies
	if whole {
		there := d.inspectQueues(s, false)
		for _, q := range l.Queues {
			if !there[q.Name] && !b.NoProvisioning { // otherwise it is a problem
				o.Missing = append(o.Missing, q.Name)
			}
		}
	}
	if !s.originKnown {
		if err := s.checkArgumentsOf(d, info, why); err != nil {
			return err
		}
	}
	if d.err != nil {
		return d.err
	}
	err = d.Refusal(s.Problems)
	if why == "" {
		o.info = info
	}
	o.Expires, o.Classic = l.Expires || silent && o.Expires, l.Classic
	o.fit = err == nil
	return err
}
