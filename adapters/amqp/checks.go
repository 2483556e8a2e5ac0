package amqp

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/amqp/internal/layout"
	"github.com/redeliver/redeliver/adapters/amqp/internal/topology"
	"github.com/redeliver/redeliver/doctor"
	"github.com/redeliver/redeliver/internal/wait"
)

// Doctor checks a queue and the queues on which its messages wait. It checks that they exist, keep
// their messages, are read, and deliver what is due. It lists levels that an older policy left, and
// reports whether all consumers run one policy. It consumes, writes and creates nothing. Most of
// these checks need the management API: without Config.ManagementURL they are listed as not
// checked. Doctor returns an error if the broker or that API does not answer.
func (c *Client) Doctor(ctx context.Context, topic string, how doctor.Examination) (*doctor.Diagnosis, error) {
	_, s, err := c.survey(ctx, topic)
	if err != nil {
		return nil, err
	}
	return s.Examine(ctx, how, func() (*redeliver.PauseMark, error) { return c.Paused(ctx, topic) })
}

// OldLevels lists the delay queues that an older policy has left beside the client's own. It reports why a level must stay, if it must. It changes nothing.
// Without Config.ManagementURL the error is ErrNoManagement.
//
// A level is drained when nothing waits on it, nothing reads it, and all consumers of the topic's
// queue report the client's policy. That holds for a queue without consumers.
// RabbitMQ does not know programs that publish with a delay and do not consume: stop those that
// have an older policy.
func (c *Client) OldLevels(ctx context.Context, topic string) ([]doctor.OldLevel, error) {
	l, err := newLayout(&c.cfg, topic)
	if err != nil {
		return nil, err
	}
	return c.broker().OldLevels(ctx, l)
}

// RemoveOldLevels deletes those of the named delay queues that are drained, see [Client.OldLevels].
// The others stay, and the result has the reasons. The management API's counts are seconds old, so
// it reads them twice, some seconds apart. Immediately before the deletion it asks over AMQP for the
// count and for a message, because a queue whose leader does not answer counts as empty. RabbitMQ
// cannot delete a quorum queue on condition that it is empty. With an error, the result has the
// queues that were handled before. The user needs the right to configure the queues.
func (c *Client) RemoveOldLevels(ctx context.Context, topic string, places ...string) (done []doctor.OldLevel, err error) {
	l, err := newLayout(&c.cfg, topic)
	if err != nil {
		return nil, err
	}
	return c.broker().RemoveOldLevels(ctx, l, places...)
}

// checkInterval is how often the checks of the start are repeated, and up to a tenth less, so that processes which were
// started together do not ask together.
const checkInterval = 5 * time.Minute

// openChecked is open. A queue that its owner may have declared again is checked first, as at the start.
func (r *reader) openChecked(ctx context.Context, cfg *queueConfig) (*amqp091.Channel, <-chan amqp091.Delivery, error) {
	if cfg.kind == layout.MainQueue && cfg.first == nil {
		if err := r.checkOrigin(ctx, (*topology.Broker).CheckOrigin, "it is not read until that is corrected"); err != nil {
			return nil, nil, err
		}
	}
	return r.open(ctx, cfg)
}

// checkOrigin makes a check of the origin, takes over what it has found, and reports problems once, with their result.
func (r *reader) checkOrigin(ctx context.Context, check func(*topology.Broker, context.Context, *layout.Layout, *topology.Origin) error, result string) error {
	r.originMu.Lock()
	defer r.originMu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, r.client.cfg.SendTimeout)
	defer cancel()
	fresh, err := newLayout(&r.client.cfg, r.layout.Topic)
	if err != nil {
		return err
	}
	err = check(r.client.broker(), ctx, fresh, &r.origin)
	r.expires.Store(r.origin.Expires)
	r.classic.Store(r.origin.Classic)
	switch {
	case err == nil:
		r.unfit = ""
	case errors.Is(err, redeliver.ErrConfig) && err.Error() != r.unfit:
		r.unfit = err.Error()
		r.sub.EmitChange(redeliver.ChangeTopicUnfit, result, err)
	}
	return err
}

// checkRegularly repeats the checks of the start until ctx ends.
func (r *reader) checkRegularly(ctx context.Context) {
	for wait.For(ctx, checkInterval-rand.N(checkInterval/10)) == nil {
		// Another error has no use: what uses the broker reports it.
		_ = r.checkOrigin(ctx, (*topology.Broker).CheckAgain, "it was changed since the start; messages may be lost")
	}
}

// compareEvery is how often a subscription reads the policies of its queue's consumers. The management API knows a
// new consumer within seconds.
const compareEvery = 15 * time.Second

// comparePolicies reports until ctx ends when consumers of the queue run another policy, and when they stop. Without
// a management API that answers, only returning messages show it, see [engine.Subscription.CheckPolicyOf].
func (r *reader) comparePolicies(ctx context.Context) {
	m := r.client.cfg.management()
	if m == nil || r.sub.Sink == nil {
		return
	}
	for wait.For(ctx, compareEvery) == nil {
		asking, cancel := context.WithTimeout(ctx, r.client.cfg.DialTimeout)
		runs, unreported, err := m.Consumers(asking, r.layout.Queue)
		cancel()
		if err != nil {
			continue
		}
		same := unreported == 0 && len(runs) > 0
		for _, p := range slices.Sorted(maps.Keys(runs)) {
			if p != r.layout.Fingerprint {
				r.sub.ReportOtherPolicy(p, "it runs on "+strings.Join(runs[p], ", "))
				same = false
			}
		}
		if same {
			r.sub.ReportOnePolicy()
		}
	}
}
