package amqp

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/internal/wirename"
)

// ErrNoManagement means that only the management API can answer, and Config.ManagementURL is not
// set.
var ErrNoManagement = errors.New("AMQP cannot list queues, and Config.ManagementURL is not set")

// DeadLetterQueues lists the DLQs of the virtual host by name: the queues that end in ".dlq". It
// needs the management API; without it, it returns an error that is ErrNoManagement. Origin, Group
// and Back come from the name. They are empty if the name does not show them, because it was too
// long and was cut, or because the queue belongs to another program. DLQs with other names
// (Config.Names) are not found.
func (c *Client) DeadLetterQueues(ctx context.Context) ([]deadletter.Info, error) {
	m := newManagement(&c.cfg)
	if m == nil {
		return nil, fmt.Errorf("amqp: listing the DLQs: %w", ErrNoManagement)
	}
	defer m.close()
	there, err := m.queues(ctx, "("+regexp.QuoteMeta(wirename.DLQSuffix)+"|"+regexp.QuoteMeta(wirename.RetrySuffix)+")$")
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
		if queue, ok := queueOf(name); ok && c.cfg.Names.dlq(queue) == name {
			if _, ours := there[c.cfg.Names.retry(queue)]; ours {
				info.Origin, info.Group, info.ReplayTo = queue, queue, c.cfg.Names.retry(queue)
			}
		}
		found = append(found, info)
	}
	slices.SortFunc(found, func(x, y deadletter.Info) int { return strings.Compare(x.DLQ, y.DLQ) })
	return found, nil
}

// hashed matches the end of a queue's name that was cut, see base.
var hashed = regexp.MustCompile("-[0-9a-f]{16}$")

// queueOf returns the queue that a DLQ's name belongs to.
func queueOf(dlq string) (queue string, ok bool) {
	queue = strings.TrimSuffix(dlq, wirename.DLQSuffix)
	const room = 4 // for the rest of a character at the cut
	cut := len(queue) > maxQueue-maxSuffix-room && hashed.MatchString(queue)
	return queue, queue != "" && !cut && base(queue) == queue
}
