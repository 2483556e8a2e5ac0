package amqp

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/redeliver/redeliver/adapters/amqp/internal/dlq"
	"github.com/redeliver/redeliver/adapters/amqp/internal/layout"
	"github.com/redeliver/redeliver/adapters/amqp/internal/management"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/deadletter/driver"
	"github.com/redeliver/redeliver/internal/check"
	"github.com/redeliver/redeliver/internal/rules"
	"github.com/redeliver/redeliver/internal/wirename"
	"github.com/redeliver/redeliver/mq"
)

// DeadLetters opens the DLQ of a topic's queue, which must exist. Its companion, "<dlq>.state", is
// created with the first write to it. The returned queue has connections of its own. Keep the
// client open while you use it.
func (c *client) DeadLetters(ctx context.Context, cfg mq.DeadLetterConfig) (deadletter.Queue, error) {
	queue := c.cfg.Topology.queue(cfg.Topic)
	var ps check.Problems
	ps = append(ps, cfg.Unused("RabbitMQ has neither groups nor leases, and a replay goes to the retry queue", "Group", "ReplayTo", "ReadBy", "Lease")...)
	layout.CheckQueue(&ps, fmt.Sprintf("queue of topic %q", cfg.Topic), queue)
	c.cfg.names().Check(&ps, queue)
	info := deadletter.Info{
		Broker: "rabbitmq", DLQ: c.cfg.names().DLQOf(queue), Origin: queue, Group: queue, ReplayTo: c.cfg.names().RetryOf(queue),
		MaxHold:    c.cfg.ConsumerTimeout,
		ReadEffect: "each scan is a delivery of every message that it passes (x-delivery-count), and hides them from others until the scan ends",
	}
	foreign := cfg.DLQ != "" && cfg.DLQ != info.DLQ
	if foreign {
		layout.CheckQueue(&ps, "DLQ", cfg.DLQ)
		rules.CheckOwnName(&ps, "queue", "DLQ", cfg.DLQ, queue, info.ReplayTo)
		info.OwnDLQ, info.DLQ = info.DLQ, cfg.DLQ
	}
	layout.CheckQueue(&ps, "the DLQ's state", dlq.LockQueue(info.DLQ, driver.ClaimLock))
	ps.CheckCount("DeliveryLimit", cfg.DeliveryLimit, 0, layout.NoLimit)
	if err := ps.Err(); err != nil {
		return nil, fmt.Errorf("amqp: %w", err)
	}
	q, err := dlq.Open(ctx, info, dlq.Options{
		Foreign: foreign, DeliveryLimit: cfg.DeliveryLimit, Keys: c.cfg.StateKeys, Link: c.cfg.link("", false), Sender: c.forwarded, Management: c.cfg.management(),
		SendTimeout: c.cfg.SendTimeout, DialTimeout: c.cfg.DialTimeout, RetryBytes: c.cfg.RetryBytes, NoProvisioning: c.cfg.NoProvisioning,
	})
	if err != nil {
		return nil, err
	}
	return driver.New(q), nil
}

// ErrNoManagement means that only the management API can answer, and Config.ManagementURL is not
// set.
var ErrNoManagement = management.ErrNoAPI

// DeadLetterQueues lists the DLQs of the virtual host by name: the queues whose names end in
// ".dlq". Without the management API the error is ErrNoManagement. Origin, Group and ReplayTo come
// from the name. They are empty if the name was too long and was cut, or if the queue belongs to
// another program. DLQs with other names (Config.Names) are not found.
func (c *client) DeadLetterQueues(ctx context.Context) ([]deadletter.Info, error) {
	m := c.cfg.management()
	if m == nil {
		return nil, fmt.Errorf("amqp: listing the DLQs: %w", ErrNoManagement)
	}
	there, err := m.Queues(ctx, "("+regexp.QuoteMeta(wirename.DLQSuffix)+"|"+regexp.QuoteMeta(wirename.RetrySuffix)+")$")
	if err != nil {
		return nil, err
	}
	var found []deadletter.Info
	for name := range there {
		if !strings.HasSuffix(name, wirename.DLQSuffix) {
			continue
		}
		info := deadletter.Info{Broker: "rabbitmq", DLQ: name}
		// A DLQ without a retry queue never had a subscription.
		if queue, ok := layout.QueueOf(name); ok && c.cfg.names().DLQOf(queue) == name {
			if _, ours := there[c.cfg.names().RetryOf(queue)]; ours {
				info.Origin, info.Group, info.ReplayTo = queue, queue, c.cfg.names().RetryOf(queue)
			}
		}
		found = append(found, info)
	}
	slices.SortFunc(found, func(x, y deadletter.Info) int { return strings.Compare(x.DLQ, y.DLQ) })
	return found, nil
}
