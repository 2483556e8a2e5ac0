package sqs

import (
	"context"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/redeliver/redeliver/deadletter"
)

const dlqSuffix = "-dlq"

// DeadLetterQueues lists the DLQs of the account in its region by name: the queues that end in
// "-dlq" or "-dlq.fifo". SQS can only search by the beginning of a name, so this lists all queues
// (sqs:ListQueues). Origin, Group and ReplayTo come from the name. They are empty if the name does
// not show them, because it was cut, or because the queue belongs to another program. DLQs with
// other names (Config.Names) are not found.
func (c *Client) DeadLetterQueues(ctx context.Context) ([]deadletter.Info, error) {
	there := make(map[string]bool)
	pages := sqs.NewListQueuesPaginator(c.api, &sqs.ListQueuesInput{MaxResults: aws.Int32(1000)})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, errorOf("listing the queues that end in", dlqSuffix, err)
		}
		for _, url := range page.QueueUrls {
			there[parseTopic(url).name] = true
		}
	}
	var found []deadletter.Info
	for name := range there {
		if !strings.HasSuffix(strings.TrimSuffix(name, fifoSuffix), dlqSuffix) {
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
func queueOf(dlq string) (queue string, ok bool) {
	stem, end := dlq, ""
	if isFIFO(dlq) {
		stem, end = strings.TrimSuffix(dlq, fifoSuffix), fifoSuffix
	}
	stem = strings.TrimSuffix(stem, dlqSuffix)
	return stem + end, stem != "" && siblingName(stem+end, dlqSuffix) == dlq
}
