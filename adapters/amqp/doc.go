// Package amqp is retries, delays and a dead-letter queue on RabbitMQ, with
// nothing but queues: no plugin. For Watermill: a [Subscriber] and a [Publisher]
// over rabbitmq/amqp091-go, and the queues on which failed messages wait. [Open]
// connects, [Client.Plan] tells beforehand what will be used and created. Without
// Watermill: [Consume] calls a handler of amqp091-go's deliveries. A consumer without
// a group, with a queue for each process, is not retried: there is no group that could
// get the message back.
//
//	billing, err := amqp.Open(ctx, amqp.Config{URLs: []string{"amqp://guest:guest@localhost"}})
//	router.AddMiddleware(middleware.Retry())
//	router.AddConsumerHandler("charge", "orders", billing.Subscriber(), charge)
//	...
//	defer billing.Close(ctx) // after the router
//
// RabbitMQ 3.10 and later, with its feature flags enabled (stream_queue, for
// at-least-once dead-lettering).
//
// # Vocabulary
//
// The origin is the queue, and so is the group: who reads one queue competes. A
// topic is what Watermill calls one; the [Topology] says which queue it means. A
// level is a delay queue. An id is the header _watermill_message_uuid, or the
// message id, or, where there is neither, a hash of the message, which begins
// with "derived:"; equal messages without an id share it. It stays the same
// through all attempts and the DLQ.
//
// # Topology
//
// For queue orders:
//
//	orders.retry.10s       one delay queue for each level; orders.retry.10s.1 ... its shards
//	orders.retry           where retries come back, read beside orders
//	orders.retry.suspects  messages that may have killed their process
//	orders.retry.place     where messages keep their places: what stands for such a one
//	orders.dlq             the DLQ
//
// All are quorum queues, declared before the first message is read. The delay
// queues of levels up to a minute are read beside orders; what was read is kept
// here, unacked, until it is due, up to [Config.RetryPrefetch] messages and about
// [Config.RetryBytes] of each; what came back to such a queue goes by orders.retry
// when it is due.
// Every delay queue has a TTL (x-message-ttl: the level, and 10 s more where it is
// read) and dead-letters at least once (x-dead-letter-strategy) to orders.retry
// through the default exchange, so no other queue gets a copy: that is how the
// longer levels come back, and what nobody has read in time. Retries do not wait
// behind the backlog of orders and are not subject to its limits. Levels that a
// policy no longer has empty themselves; delete their queues when they are empty.
//
// A queue that the topology creates is a quorum queue and dead-letters to the DLQ
// on the broker's own delivery limit; one that exists is used as it is, unless it would lose
// messages: a quorum queue without a dead-letter exchange whose delivery limit is below 10,
// or below 1,000 where messages keep their places, is refused. What a policy of the broker
// says of that is known only with [Config.ManagementURL]. A queue
// of ours that exists with other arguments is refused.
//
// # Delivery guarantees
//
// At least once. A message is acked only when it is handled, or when the broker
// has confirmed that a delay queue or the DLQ has it, and did not return it. A
// process may be killed at any instruction: what was not acked comes back, with
// the same id. Acks are gathered; one that waits behind a slower message is sent
// by itself within 10 ms. A subscriber that closes sends its last acks at a pace at
// which the queue takes them: that may be some hundred milliseconds.
//
// Order: messages of one queue begin in the order of the queue, [Config.MaxInFlight]
// at once; RabbitMQ knows no keys. With MaxInFlight 1 and one consumer they run
// one after another; a failed one is overtaken.
//
// # Messages that keep their places
//
// With Policy.Order Blocking the messages of a queue run one after another, over all
// processes, and one that fails waits where it is, with all behind it. With PerKey
// that is so for each key, which [Config.Key] names; every other key flows. The queue
// must have a single active consumer (x-single-active-consumer): the broker delivers
// to one channel, and when that ends, to another one's, in order again. redeliver
// declares its queues so; one that exists without is refused. Other processes stand
// by. To share the work of keys, bind several queues to a consistent-hash exchange.
//
// What waits is unacked, in the process that has the queue. There it holds a place in
// Prefetch (1,000 by default where keys wait), and no slot of MaxInFlight. A key with
// more messages than Prefetch behind a failing one holds up all keys. Waits of PerKey
// may be half of [Config.ConsumerTimeout], what a handler asks for beyond that is
// unschedulable; Blocking cuts its to 10 ms to 30 s, and they must be less than
// ConsumerTimeout in all. When something has lain here unrun for half of
// ConsumerTimeout nothing more begins, and when no handler runs the channel ends:
// all comes back in order, to whoever is next, and what has failed goes on as it was.
//
// Attempts are counted in the memory of the process. They survive lost connections and
// closed subscribers; in another process they begin anew.
//
// What is handled is acked some milliseconds later, so that a crash may repeat the
// last messages, before it goes on in order. A message loses its place when it is
// nacked without an error, when its handler does not return within a second of the end
// of its Timeout, and in the DLQ: it waits and comes back as in other orders, and so
// do delayed publishes.
//
// Every process of a queue needs the same Prefetch, over deployments too. Where one
// with a smaller Prefetch takes over from one with a larger, and ends before it has
// got all that came back, a quorum queue (of 3.10 to 4.0 at least) delivers what it had
// behind the rest of that. A classic queue does not. Lower Prefetch when the queue is
// empty. Nobody else may read the queue or hand back of it, the management UI neither.
//
// A suspect (see below) keeps its place and runs alone there. A marker in the queue
// orders.retry.place stands for it and counts how often it was alone when its process
// died. Each such run takes some round trips more.
//
// # Crashes
//
// RabbitMQ counts how often a message comes back, for crashes as for lost connections
// and for subscribers that close, and also for messages that were prefetched and did not
// run. A message that has come back five times is written to orders.retry, where it is
// counted from the beginning and runs a second later; on a classic queue, which does not
// count, that is so when it comes back at all. So the broker's limit of deliveries, 20 on
// a quorum queue of RabbitMQ 4, takes no message away.
//
// A message that has been written anew twice and has come back five times again
// is a suspect: it may have killed its process, 15 times by now. It is moved to the queue
// of suspects and runs when nothing else of its client does. One that was alone when its process died Policy.MaxCrashes
// times goes to the DLQ, crashed; its neighbours are never charged: the next message
// begins when the broker has the suspect's ack. Connections of a suspect
// that were lost while the process lived do not count, as long as the message
// comes back to the same process. While a suspect waits for its turn, the client
// begins nothing else, at most for as long as its longest handler runs.
//
// What comes back for what its neighbours did comes back less often the fewer messages
// lie here unrun. So Prefetch is at most twice MaxInFlight.
//
// # Pauses
//
// When a failed message can be written nowhere, or the policy holds back all but probes
// (Policy.Outage, Policy.DeadLetterRate), for 10 s, what has not begun goes back to the
// broker, once. Until the end of it each queue sends one message at a time. On RabbitMQ
// before 4.3 a pause counts as one delivery, for each message that was in hand.
//
// What is in hand in such a time comes back each ConsumerTimeout. A quorum queue with a
// delivery limit of 20 and no dead-letter exchange would drop it after some nine hours in
// which nothing can be written, by a user who lost the right to, say. While the broker is in
// alarm nothing is fetched again that has come back. Give such a queue a dead-letter exchange.
//
// # Delay limits
//
// Any delay up to redeliver.MaxWait (366 days). Never early by the clock of the
// host that wrote the due time, as far as the clocks of the hosts agree: a level
// that is read waits by the clock of its reader. Late by some milliseconds. The broker hands on
// about 2,500 messages/s of one level that is longer than a minute: above that
// they come late, and [Config.Shards] helps. Jitter is spent here, unacked, up to
// [Config.RetryPrefetch] messages. What waits on a level that no running
// subscriber has (of an older policy) is up to 10 s late, and so is what waits
// behind a RetryPrefetch, or RetryBytes, of messages with more jitter. A subscriber that closes
// gives back at once what waits there. Of one whose host is gone without a word it
// comes back when the broker misses its heartbeats, and is late until then.
//
// # Header mapping
//
// Watermill's metadata are the headers, its UUID the header
// _watermill_message_uuid, as in watermill-amqp. What metadata cannot hold is in
// the delivery itself, see [DeliveryFromContext]: properties, headers of every
// type, exchange and routing key. All of it is the same on every attempt and in
// the DLQ; redeliver's own headers stand beside it, and the handler never sees
// them: it asks redeliver.FromContext. What must not be republished as it is
// stands in headers of ours on the way and is put back for the handler: exchange
// and routing key, expiration, user-id, CC and BCC, a delivery mode that is not
// persistent. The broker's own headers (x-death, x-first-death-*, x-last-death-*,
// x-delivery-count) are shown at the first attempt and not carried on.
//
// An expiration is a deadline: a retry that would pass it is not waited for, the
// message goes to the DLQ, expired. It counts from the message's timestamp, or,
// without one, from when it was first read.
//
// Headers must fit into a frame (128 KiB by default) with 4 KiB to spare for what
// the broker adds; ours are shortened for that. A message whose own headers leave
// no room goes to the DLQ, unschedulable: with as many of our headers as fit, and
// where none does, with CC as cc and a redeliver- header of its own as Redeliver-.
//
// Not kept is what the client does not tell: the order of headers, the second of
// two with one name, an empty property or a priority of 0 where there was one,
// cluster-id.
//
// # Failure modes
//
//   - A delay queue or the DLQ does not take a message: the write is tried again
//     with backoff up to 10 s; meanwhile the source stays unacked, the handler
//     does not run again, and no new handler is started (the event intake paused).
//     Where that is a suspect, no subscription of the client begins anything until it
//     is written: it would be charged for what another message does meanwhile.
//   - The broker refuses one message, because it is larger than its max_message_size: it
//     is tried once more, alone on a channel, because the answer ends the channel of all.
//     What a level refuses goes to the DLQ, unschedulable. What the DLQ refuses goes there
//     in parts: dead letters with all headers, a part of the body, and
//     redeliver-truncated. They are not replayed: join their bodies.
//   - The broker is in alarm (memory, disk) and blocks publishers: the same; the
//     events blocked and unblocked say so. Acks go on, on a connection of their own.
//   - The connection is lost, or says nothing for three heartbeats: a new one, with
//     backoff up to 5 s. What was in hand comes back; the contexts of running
//     handlers are cancelled.
//   - A queue is deleted under us: a second later it is declared anew, if it is ours
//     or the topology declares it; what it held is gone. Nobody else must declare it
//     at once: RabbitMQ 3.10 would not tell its readers, and would not send them
//     the first messages.
//   - A queue cannot be reached, as its node is down, or elects no leader in time: its
//     declaration is tried three times more, within seconds, and fails then with what
//     the broker says; its reader tries until it can. It does not count as deleted,
//     although RabbitMQ answers "not found".
//   - A handler never returns: its attempt ends with the policy's Timeout.
//   - A message lies here unrun for half of [Config.ConsumerTimeout], because handlers
//     are slow: it is handed back. A handler that runs longer than the broker's consumer_timeout loses
//     its channel, and its message comes back.
//   - A delivery cannot be decoded: it goes to the DLQ as it is, undecodable.
//   - A delivery's headers are such that the client would end the connection over
//     them (more than 8,192 in a table, tables more than 32 deep, larger than a
//     frame with what the broker adds): the client does not get to see them. It goes
//     to the DLQ, undecodable, properties and body as they are, and the headers as
//     bytes in [HeaderRaw] where there is room.
//   - The user may not do what is needed: that is refused at the start, in one
//     problem for each right; see [Client.Plan] for how it is found out.
//   - The management API does not answer when a queue is subscribed to: that goes
//     on, and the event "not checked" says so.
//
// # Not supported
//
// Exclusive and auto-delete queues, and queues that the broker names: their retries
// would outlive them. Streams. Transactions. Queues of a broker
// that does not say that it is RabbitMQ: the type and the rights are not checked
// there. An ack of several messages at once by a handler of [Consume].
package amqp
