// Package kafkashare adds retries, delays and a dead-letter queue to share groups of Apache Kafka
// (KIP-932), over twmb/franz-go. It is experimental: its interface and its behaviour may change.
//
//	billing, err := kafkashare.Open(ctx, kafkashare.Config{Brokers: brokers, Group: "billing"})
//	router.AddMiddleware(middleware.Retry())
//	router.AddConsumerHandler("charge", "orders", billing.Subscriber(), charge)
//	...
//	defer billing.Close(ctx) // after the router
//
// A share group hands out single records under a lock, so it may have more members than the topic
// has partitions. It keeps no order. docs/explanation/share-groups.md says when to use it, and what
// it can lose.
//
// # Topology
//
// For topic orders and group billing, with the names of adapters/kafka:
//
//	orders.billing.retry.10s    one delay topic for each level
//	orders.billing.retry        short waits and replays
//	orders.billing.dlq          the DLQ
//	orders.billing.control      the mark of a pause
//
// The share group billing reads orders. The consumer group billing-retry reads the levels and the
// retry topic, in the same processes. At its third delivery a message is copied to
// orders.billing.retry before any handler runs, because deliveries are not counted there. Settled
// records of levels and the retry topic are deleted every 30 s. The command and the console work on
// the DLQ as on any DLQ of Kafka.
//
// # Delivery guarantees
//
// Delivery is at least once. A record is accepted when it is handled, or when all in-sync replicas
// have its copy. The broker drops a record at its delivery limit, 10, without an error. That happens
// only if eight deliveries in a row end without a confirmed copy. The last delivery is reported
// (ChangeLastDelivery), and so is a record that is given back after it (MessagesLost).
//
// # Delay limits
//
// A delay may be up to redeliver.MaxWait (366 days). Retries are never early by the clock of the
// host that wrote the due time.
//
// # Header mapping
//
// As in adapters/kafka: Watermill's metadata are the record's headers, and [RecordFromContext] has
// the record as it was. Handlers do not see redeliver's headers; they call redeliver.FromContext.
//
// # Not supported
//
//   - Order of keys, OrderBlocking and OrderThroughRetries
//   - Crash counting: a message that kills its process comes back
//   - Commands about waiting messages: only adapters/kafka reads them
//   - Other topic names
//
// A message that runs for long holds up the other messages of its member's last poll.
//
// The command pauses a group, and so does Pause of a client of adapters/kafka for the same group.
// Polled messages wait in memory meanwhile.
package kafkashare
