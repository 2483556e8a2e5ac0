package brokerstate

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/redeliver/redeliver/integration/brokers"
)

// messagesOfQueues asks the queues themselves for their messages: ready, unacked, or being dead-lettered. The counts of
// the management API are up to five seconds old for a quorum queue. Before RabbitMQ 4.3 the query is a fun, since then
// the name of one.
const messagesOfQueues = `[begin
	{ok, {_, N}, _} = try ra:leader_query(amqqueue:get_pid(Q), fun rabbit_fifo:query_messages_total/1)
		catch error:function_clause -> ra:leader_query(amqqueue:get_pid(Q), {rabbit_fifo, query_messages_total, []}) end,
	{element(4, amqqueue:get_name(Q)), N}
end || Q <- rabbit_amqqueue:list()].`

var messagesOfQueue = regexp.MustCompile(`\{<<"([^"]+)">>,\s*(\d+)\}`)

// RabbitMQ counts the messages in a queue and in all queues whose names begin with its name, except the DLQ. There are
// at least two others.
func RabbitMQ(ctx context.Context, broker *brokers.Rabbit, queue string) (unsettled int64, detail string, err error) {
	out, err := broker.Eval(ctx, messagesOfQueues)
	if err != nil {
		return 0, "", err
	}
	queues := messagesOfQueue.FindAllStringSubmatch(out, -1)
	if len(queues) < 3 {
		return 0, "", fmt.Errorf("these are not the queues: %s", out)
	}
	var full strings.Builder
	for _, q := range queues {
		n, err := strconv.ParseInt(q[2], 10, 64)
		if err != nil {
			return 0, "", err
		}
		if name, ok := strings.CutPrefix(q[1], queue); ok && name != ".dlq" && n > 0 {
			unsettled += n
			fmt.Fprintf(&full, " %d in %s", n, q[1])
		}
	}
	return unsettled, full.String(), nil
}
