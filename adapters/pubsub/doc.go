// Package pubsub adds retries, delays and a dead-letter queue to any Watermill
// message.Publisher and message.Subscriber, such as Redis Streams. It imports no client.
//
//	billing, err := pubsub.Open(ctx, pubsub.Config{
//		Publisher: pub, Subscriber: sub, Group: "billing", // sub reads as a member of that group
//		Confirms:   true,             // Publish returns nil when the broker has the message
//		MaxUnacked: 10 * time.Minute, // how long sub leaves an unacked message with its consumer
//	})
//	router.AddMiddleware(middleware.Retry())
//	router.AddConsumerHandler("charge", "orders", billing.Subscriber(), charge)
//	...
//	defer billing.Close(ctx) // after the router, before pub and sub
//
// Use adapters/kafka, adapters/amqp and adapters/sqs for their brokers.
// docs/reference/watermill-pubsubs.md says what a Pub/Sub must do, and how to set up
// Watermill's own. [Check] tests a configuration.
//
// # Topology
//
// For topic orders and group billing:
//
//	orders                     first deliveries, read by MaxInFlight lanes
//	orders.billing.retry       short waits and replays, read by as many lanes
//	orders.billing.retry.1     the delay topics, up to .8, read by one lane each
//	orders.billing.dlq         the DLQ, a plain topic
//
// A lane is one Subscribe of the user's subscriber. A Pub/Sub cannot list topics, so the
// delay topics have numbers, and all eight are read under every policy.
//
// # Delivery guarantees
//
// Delivery is at least once, as far as the Pub/Sub keeps what [Config] says. A message is
// acked only when it is handled, or when Publish has returned nil for its next place. No
// message is unacked for longer than [Config.MaxUnacked], except while Publish fails, and in
// a pause ([redeliver.Pause], Policy.Outage), in which each lane holds one message. There is
// no order. The id is the message's UUID, or a hash that begins with "derived:".
//
// # Delay limits
//
// A delay may be up to redeliver.MaxWait (366 days), in hops over at most eight levels,
// none longer than a third of MaxUnacked. Retries are never early. They are late by at most
// the smallest level, plus the time that the lane needs for earlier messages.
//
// # Header mapping
//
// UUID, payload and metadata are unchanged on every attempt and in the DLQ. redeliver's
// state is one metadata entry, see [StateKey]. Handlers do not see it; they call
// redeliver.FromContext.
//
// # Not supported
//
// Crash detection, because a Watermill subscriber reports no delivery count. Keys and
// order. Plan. Package deadletter. Consumers without a group get no retries.
package pubsub
