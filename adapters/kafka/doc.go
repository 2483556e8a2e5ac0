// Package kafka adds retries, delays and a dead-letter queue to Apache Kafka, over
// IBM/sarama.
//
//	billing, err := kafka.Open(ctx, kafka.Config{Brokers: brokers, Group: "billing"})
//	router.AddMiddleware(middleware.Retry())
//	router.AddConsumerHandler("charge", "orders", billing.Subscriber(), charge)
//	...
//	defer billing.Close(ctx) // after the router
//
// A service without Watermill calls [Consume] or [ConsumeBatch], or wraps the handler
// of its own consumer group with [Wrap]. [mq.Client.Plan] lists what a start would use and
// create. docs/reference/kafka.md has the details.
//
// # Topology
//
// For topic orders and group billing:
//
//	orders.billing.retry.10s    one delay topic for each level
//	orders.billing.retry        short waits and replays
//	orders.billing.dlq          the DLQ
//	orders.billing.control      commands to the group, see [mq.Operations.Waiting] and [mq.Operations.Pause]
//
// The members of the group read the delay topics beside orders, so a retry reaches only
// the group that failed. There is no relay process: a retry is one write and one read.
// [Open] refuses existing topics that cannot hold the policy.
//
// # Delivery guarantees
//
// Delivery is at least once. An offset is committed only when all records below it are
// handled, or are confirmed by all in-sync replicas on a delay topic or the DLQ. The
// metadata of the commit says which records above the offset are settled, up to 65,536
// records and 3,000 bytes. A partition begins no record that is further ahead of its
// lowest unsettled one. After a kill, a rebalance or a deploy, records are delivered again
// only if they were not settled at the last commit. Commits are at most 200 ms apart; with [Wrap],
// the service's own interval applies. The records keep their id: the header
// _watermill_message_uuid, or topic/partition/offset@timestamp (Unix milliseconds).
//
// Records of one key run one after another on their first delivery. Later records of a
// key overtake a failed one, unless Policy.Order says otherwise. A record that kills its
// process Policy.MaxCrashes times while it runs alone goes to the DLQ, crashed.
//
// # Delay limits
//
// A delay may be up to redeliver.MaxWait (366 days). Retries are never early by the clock
// of the host that wrote the due time, and a few milliseconds late while slots are free
// ([Config.MaxRetriesInFlight]).
//
// # Header mapping
//
// Watermill's metadata are the record's headers, as in watermill-kafka. Key, duplicate
// headers, null values and the timestamp are in [RecordFromContext]. Every attempt and
// the DLQ have them unchanged. Handlers do not see redeliver's headers; they call
// redeliver.FromContext.
//
// # Not supported
//
// Share groups (see adapters/kafkashare), and OrderThroughRetries with [Wrap] or in a cooperative
// group. Consumers without a group get no retries, because no group could get the message
// back.
package kafka
