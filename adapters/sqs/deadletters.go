package sqs

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/redeliver/redeliver/adapters/sqs/internal/api"
	"github.com/redeliver/redeliver/adapters/sqs/internal/dlq"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/deadletter/driver"
	"github.com/redeliver/redeliver/internal/check"
	"github.com/redeliver/redeliver/internal/rules"
	"github.com/redeliver/redeliver/mq"
)

// A lease is how long messages of a DLQ stay hidden after their receive. A crashed process blocks the next one for up
// to twice that time.
const (
	defaultLease = 30 * time.Second
	maxLease     = 10 * time.Minute
)

// DeadLetters opens the DLQ of a queue. Both must exist. The DLQ's companion, "<dlq>-state.fifo",
// is created at the first look. Keep the client open while you use the DLQ.
func (c *client) DeadLetters(ctx context.Context, cfg mq.DeadLetterConfig) (deadletter.Queue, error) {
	cfg.Lease = cmp.Or(cfg.Lease, defaultLease)
	var ps check.Problems
	ps = append(ps, cfg.Unused("SQS has no groups and no limit of deliveries, and a replay goes to the queue", "Group", "ReplayTo", "ReadBy", "DeliveryLimit")...)
	a := checkTopic(&ps, cfg.Topic)
	if ps.Err() == nil {
		c.cfg.Names.check(&ps, a.name)
	}
	checkSeconds(&ps, "Lease", cfg.Lease, time.Second, maxLease)
	at := address{name: c.cfg.Names.dlq(a.name)}
	if cfg.DLQ != "" {
		at = parseTopic(cfg.DLQ)
		checkName(&ps, "DLQ", at.name)
		rules.CheckOwnName(&ps, "queue", "DLQ", at.name, a.name)
	}
	if err := ps.Err(); err != nil {
		return nil, fmt.Errorf("sqs: %w", err)
	}
	main, err := c.findQueue(ctx, a)
	if err != nil {
		return nil, err
	}
	dead, err := c.findQueue(ctx, at)
	if err != nil {
		return nil, err
	}
	if target, _, ok := dead.RedrivePolicy(); ok {
		ps.Add("queue "+dead.Name, target, "must have no RedrivePolicy of its own: each scan is a receive of every dead letter, and SQS would move it away")
	}
	for _, q := range []*api.Queue{main, dead} {
		if !q.Exists {
			ps.Add("queue "+q.Name, "missing", "must exist: it has never been subscribed to, or the Names differ")
		}
	}
	if err := ps.Err(); err != nil {
		return nil, fmt.Errorf("sqs: %w", err)
	}
	return driver.New(dlq.Open(dlq.Options{
		Main: main, DLQ: dead, Lease: cfg.Lease, Keys: c.cfg.StateKeys, SendTimeout: c.cfg.SendTimeout, NoProvisioning: c.cfg.NoProvisioning,
	})), nil
}

// DeadLetterQueues lists the DLQs of the account in its region by name: the queues that end in
// "-dlq" or "-dlq.fifo". SQS can only search by the beginning of a name, so this lists all queues
// (sqs:ListQueues). Origin, Group and ReplayTo come from the name. They are empty if the name does
// not show them, because it was cut, or because the queue belongs to another program. DLQs with
// other names (Config.Names) are not found.
func (c *client) DeadLetterQueues(ctx context.Context) ([]deadletter.Info, error) {
	there := make(map[string]bool)
	pages := sqs.NewListQueuesPaginator(c.api, &sqs.ListQueuesInput{MaxResults: aws.Int32(1000)})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, api.ErrorOf("listing the queues that end in", dlqSuffix, err)
		}
		for _, url := range page.QueueUrls {
			there[parseTopic(url).name] = true
		}
	}
	var found []deadletter.Info
	for name := range there {
		if !strings.HasSuffix(strings.TrimSuffix(name, api.FIFOSuffix), dlqSuffix) {
			continue
		}
		info := deadletter.Info{Broker: "sqs", DLQ: name}
		// A subscription creates a queue of suspects too. A DLQ without one belongs to another program.
		if queue, ok := queueOf(name); ok && there[queue] && there[c.cfg.Names.suspects(queue)] && c.cfg.Names.dlq(queue) == name {
			info.Origin, info.Group, info.ReplayTo = queue, queue, queue
		}
		found = append(found, info)
	}
	slices.SortFunc(found, func(x, y deadletter.Info) int { return strings.Compare(x.DLQ, y.DLQ) })
	return found, nil
}

// queueOf returns the queue that a DLQ's name belongs to. For a name that was cut, that queue does not exist.
func queueOf(name string) (queue string, ok bool) {
	stem := strings.TrimSuffix(name, api.FIFOSuffix)
	end := name[len(stem):]
	stem = strings.TrimSuffix(stem, dlqSuffix)
	return stem + end, stem != "" && api.SiblingName(stem+end, dlqSuffix) == name
}
