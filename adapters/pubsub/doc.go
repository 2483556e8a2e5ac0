// Package pubsub is retries, delays and a dead-letter queue on any Pub/Sub of
// Watermill, with nothing but its message.Publisher and message.Subscriber: Redis
// Streams, NATS, SQL, and whatever else has the two. It imports no client.
//
//	billing, err := pubsub.Open(pubsub.Config{
//		Publisher: pub, Subscriber: sub, Group: "billing", // sub reads as a member of that group
//		Confirms:   true,             // Publish returns nil when the broker has the message
//		MaxUnacked: 10 * time.Minute, // so long sub leaves an unacked message here
//	})
//	router.AddMiddleware(middleware.Retry())
//	router.AddConsumerHandler("charge", "orders", billing.Subscriber(), charge)
//	...
//	defer billing.Close(ctx) // after the router, before pub and sub
//
// For Kafka, RabbitMQ and SQS there are adapters that know their broker, hold what
// Watermill's message cannot, wait by the broker's own means and are faster. What
// Watermill's own Pub/Subs can hold under this one, and how to set them up, is in
// docs/reference/watermill-pubsubs.md. [Check] tries a configuration. A consumer without a
// group, of which every process gets every message, is not retried.
//
// # Vocabulary
//
// The origin is the topic, the group is [Config.Group]: the one that the user's
// subscriber reads as, by whatever its broker calls that. A lane is one Subscribe
// of the user's subscriber: it delivers a message, and the next one when that is
// acked. An id is the message's UUID; a message without one has a hash of its
// content, which begins with "derived:". It stays the same through all attempts
// and the DLQ.
//
// # Topology
//
// For topic orders and group billing:
//
//	orders                     first deliveries, read by MaxInFlight lanes
//	orders.billing.retry       what comes back to the group, and replays, read by as many
//	orders.billing.retry.1     the delay topics, up to .8, read by one lane each
//	orders.billing.dlq         the DLQ
//
// The delay topics have numbers and not the names of levels, because topics
// cannot be listed here: whatever levels a policy has, all eight are read, and
// each message carries the time at which it goes on. So nothing of an older
// policy is stranded. A policy may have at most eight levels.
//
// Where the user's subscriber is a message.SubscribeInitializer it makes our
// topics, the DLQ too, before anything is read; else they come to be when they are
// written to, or are there ([Config.NoProvisioning]).
//
// # Delivery guarantees
//
// At least once, as far as the Pub/Sub keeps what [Config] says of it. A message is
// acked only when it was handled, or when Publish has returned nil for the place
// where it goes on. A process may be killed at any instruction: what it had not
// acked comes back as the subscriber brings it back, with the same id.
//
// No message may be unacked for longer than [Config.MaxUnacked]: the subscriber
// would give it to another process, and both would go on with it, time and again.
// So no level is longer than a third of that, and Open refuses a policy whose
// attempts (Timeout, immediate tries, and a SendTimeout) may take longer. What is
// not bounded is a Publish that fails for so long: such a message may be there
// twice when the broker is back.
//
// Order: none. While a lane's handler runs, what its subscriber has read ahead for
// that lane waits: a slow handler can hold up some others, until its Timeout at
// the latest. A retry never waits for a first delivery: they have lanes of their own.
//
// # Delay limits
//
// Any delay up to redeliver.MaxWait (366 days). A message waits on the delay topic
// of the largest level that fits, as one that is read and not acked, and hops to
// the next: a wait of many levels is as many writes. A delay topic is read in
// order, so that what waits there costs one message in memory. Never early by the
// clock of the host that wrote the due time. Late by the time that the lane takes
// for what was due before: more than two thousand messages a second on a local Redis; and, where a rest is
// shorter than the smallest level, by that level at most. A Pub/Sub without order
// may make a message as late as its level is long. A head of another policy, with
// a longer wait, moves aside at once.
//
// # Header mapping
//
// A message is its UUID, its payload and its metadata, which are the same on every
// attempt and in the DLQ. Redeliver's state is one entry of the metadata,
// redeliver, a JSON object in ASCII: see [StateKey]. The handler never sees it: it
// asks redeliver.FromContext. It is believed only on our topics; on the origin an
// entry of that name is the user's own, travels on inside ours, and the event
// HeadersIgnored tells.
//
// What the broker has beside that (a key, a timestamp, properties) is in the
// context of the first delivery, where the subscriber puts it there, and in none
// after it.
//
// # Failure modes
//
//   - Publish fails or panics: it is tried again with backoff up to 10 s; the source
//     stays unacked, the handler does not run again, and no new handler is started
//     (the event intake paused).
//   - Publish does not return within SendTimeout: the same, but redeliver waits for that
//     call and does not publish the message again until it has returned. A Publish that
//     never returns holds up its subscription: give the publisher a timeout of its own.
//   - An error of Publish that [Config.Refused] knows concerns one message, which
//     goes to the DLQ, unschedulable.
//   - The subscriber closes a channel by itself, as some do at bytes that they
//     cannot read: it is subscribed to again, with backoff; the events
//     disconnected and consuming say so. Bytes that its own marshaler refuses
//     never come here: have it take everything, and refuse in [Config.Decode].
//   - A Subscribe of the user's subscriber, or the making of topics, panics: that is its
//     error. It hangs: Close does not wait for it, and what it brings in the end is given
//     back.
//   - The state of a message that waits is damaged: what can be right of it is believed,
//     and what was lost is the level: never early. The event HeadersIgnored tells.
//   - A handler never returns: its attempt ends with the policy's Timeout.
//   - The process closes: what was not begun is nacked. A lane waits up to two
//     seconds for its subscriber to have told the broker of the last ack, which
//     it does within the context that ends then.
//   - The subscriber takes a message back (its context ends): the attempt is not
//     counted, and the message comes back.
//
// # Dead letters
//
// The DLQ is a plain topic. A Subscriber cannot look at a message without taking it, so
// package deadletter, the command and the console do not work on it. Read it with a
// Subscriber of your own; [StateKey] has the state. To replay a dead letter, publish it
// unchanged to the topic that comes back to the group (orders.billing.retry above).
//
// # Not supported
//
// Crashes are not counted: a Watermill subscriber does not say how often it has
// delivered a message, so one that kills its process comes back until it is mended.
// Keys and order. Plan. What the Pub/Sub keeps for ever (acked entries of a Redis
// stream, say) is its user's to delete.
package pubsub
