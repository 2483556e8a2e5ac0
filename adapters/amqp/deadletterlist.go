package amqp

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/redeliver/redeliver/deadletter"
)

const (
	dlqSuffix   = ".dlq"
	retrySuffix = ".retry"
)

// ErrNoManagement is an answer that only the management API has, where
// Config.ManagementURL does not say where that is.
var ErrNoManagement = errors.New("AMQP cannot list queues, and Config.ManagementURL is not set")

// DeadLetterQueues lists the DLQs that the virtual host has, by name: the queues that
// end in ".dlq". It asks the management API; without one it returns an error that is
// [ErrNoManagement]. Origin, Group and Back are read from the name, and empty where that
// says nothing: it was too long and is cut, or the queue is somebody else's. Those that
// Config.Names calls otherwise are not found.
func (c *Client) DeadLetterQueues(ctx context.Context) ([]deadletter.Info, error) {
	m := newManagement(&c.cfg)
	if m == nil {
		return nil, fmt.Errorf("amqp: listing the DLQs: %w", ErrNoManagement)
	}
	defer m.close()
	there, err := m.queues(ctx, "("+regexp.QuoteMeta(dlqSuffix)+"|"+regexp.QuoteMeta(retrySuffix)+")$")
	if err != nil {
		return nil, err
	}
	var found []deadletter.Info
	for name := range there {
		if !strings.HasSuffix(name, dlqSuffix) {
			continue
		}
		info := deadletter.Info{Broker: "rabbitmq", DLQ: name}
		// What has no way back never had a subscription.
		if queue, ok := queueOf(name); ok && c.cfg.Names.dlq(queue) == name {
			if _, ours := there[c.cfg.Names.retry(queue)]; ours {
				info.Origin, info.Group, info.Back = queue, queue, c.cfg.Names.retry(queue)
			}
		}
		found = append(found, info)
	}
	slices.SortFunc(found, func(x, y deadletter.Info) int { return strings.Compare(x.DLQ, y.DLQ) })
	return found, nil
}

// hashed ends the name of a queue that was cut: see base.
var hashed = regexp.MustCompile("-[0-9a-f]{16}$")

// queueOf reads the queue back from the name of its DLQ.
func queueOf(dlq string) (queue string, ok bool) {
	queue = strings.TrimSuffix(dlq, dlqSuffix)
	const room = 4 // for the rest of a character that was not to be cut in two
	cut := len(queue) > maxQueue-maxSuffix-room && hashed.MatchString(queue)
	return queue, queue != "" && !cut && base(queue) == queue
}
