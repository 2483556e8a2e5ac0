// Package sqs is retries, delays and a dead-letter queue on Amazon SQS, standard
// and FIFO, with nothing but queues. For Watermill: a [Subscriber] and a
// [Publisher] over aws-sdk-go-v2. [Open] reads the configuration, [Client.Plan]
// tells beforehand what will be used and created.
//
//	billing, err := sqs.Open(ctx, sqs.Config{}) // region and credentials as every AWS program has them
//	router.AddMiddleware(middleware.Retry())
//	router.AddConsumerHandler("charge", "orders", billing.Subscriber(), charge)
//	...
//	defer billing.Close(ctx) // after the router
//
// The actions it needs are sqs:GetQueueUrl, GetQueueAttributes, ReceiveMessage,
// DeleteMessage, ChangeMessageVisibility and SendMessage, and CreateQueue where
// queues are to be created.
//
// # Vocabulary
//
// The origin is the queue, and so is the group: who reads one queue competes. A
// topic is a queue, by its name, its URL or its ARN; in states and events it is
// always the name. A message is in hand while this process hides it from others
// by its visibility timeout. An id is the attribute _watermill_message_uuid, or
// the MessageId of the first delivery. It stays the same through all attempts and
// the DLQ.
//
// # Topology
//
// For queue orders (and orders.fifo):
//
//	orders           first deliveries and retries
//	orders-suspects  messages that may have killed their process (orders-suspects.fifo)
//	orders-dlq       the DLQ (orders-dlq.fifo)
//
// What is missing is created before the first message is read, unless
// [Config.NoProvisioning] is set: ours keep messages for 14 days, take messages as
// large as the origin does and are encrypted with its key; a queue that did not
// exist gets [Config.QueueAttributes] and a RedrivePolicy to our DLQ after 1,000
// receives, so that SQS's own limit never comes first. A queue that exists is
// used as it is. Ours are looked for, and created, in the client's own account,
// also beside a queue of another one. A RedrivePolicy of the origin's own goes on
// working: [Plan] says how, and what would cut retries short is refused.
//
// # Delivery guarantees
//
// At least once. A message is deleted only when it is handled, or when SQS has
// confirmed, for this one entry of its batch, that it has the copy that waits or
// the dead letter. A process may be killed at any instruction: what was not
// deleted comes back after [Config.VisibilityTimeout], with the same id. Settled
// messages are deleted ten at a time, at most 20 ms later; what a killed process
// has settled in that time runs again. A receipt that is no longer valid says
// that a message is deleted, and is no error.
//
// What is in hand is kept hidden before half of its time is over: what runs, what
// waits, and what lies here unrun. A message that cannot be kept is lost to this
// process: its context ends, nothing is counted, and it comes back. One that comes
// again to a process that still has it is kept with the new receipt.
//
// Order: none on standard queues. On FIFO queues messages of one group run one
// after another, in order, and a failed message holds up the later ones of its
// group until it has succeeded or is in the DLQ; other groups go on. The next one
// begins when its predecessor is settled, before SQS has deleted that: a process
// that dies in between runs both again, in order. A suspect leaves the order of
// its group. SQS gives nothing of a group while a message of it is in hand, and does
// not tell a receive that waits already when that is over: as long as groups are in
// hand, receives of a FIFO queue wait only where nothing came for a while, and one
// looks whenever a group is free.
//
// What a FIFO queue cannot keep: its messages cannot be written anew without
// leaving their place, so that attempts, errors, first failure and due time are in
// the memory of the process that failed a message. In another process the attempts
// begin anew. The same holds for a message on a standard queue that leaves no room
// for our state.
//
// # Crashes
//
// SQS counts receives: for a crash as for a shutdown, an outage or an answer that got
// lost, and also for messages that have not run. So a receive is no attempt, and the
// count charges nobody. A message that has come back five times is written to its
// queue anew, where it is counted from the beginning and runs a second later. When a
// message has come back five times again after two of these copies, it is a suspect: it
// may have killed its process, 15 times by now. So SQS's own maxReceiveCount takes
// nothing away while redeliver can write; where that is less than six, the copy is made
// at the last receive that it allows.
//
// A message of a FIFO queue, or one that leaves no room for our state, is not written
// anew. It is a suspect when it has come back 15 times. On a FIFO queue only the first
// message of a group that is in hand can be one: nothing behind it has run. Messages
// behind it that come back as often as the queue's maxReceiveCount allows are moved by
// SQS, unrun; queues that redeliver creates allow 1,000.
//
// A suspect is moved to the queue of suspects and runs when nothing else of its client
// does. One that was alone when its process died Policy.MaxCrashes times goes to the
// DLQ, crashed. A suspect that a closing subscriber cuts short is written there anew and
// is not charged. While a suspect waits for its turn or runs, the client begins and
// receives nothing else; it waits for at most as long as the longest handler runs.
//
// The process that writes to the queue of suspects looks there at once. Others look a
// second after they had a suspect, and wait twice as long after each look that finds
// none, up to a minute; up to five minutes where only another process can have it.
//
// # Delay limits
//
// Standard queues: any delay up to redeliver.MaxWait (366 days). A copy waits with
// DelaySeconds, at most 900; a longer wait is several copies, one after another.
// SQS counts whole seconds: the last part of one is held in hand. Never early by
// the clock of the host that wrote the due time, late by some milliseconds.
//
// FIFO queues, and messages that leave no room for our state: the message waits
// in hand, hidden for the whole wait at once and for the visibility timeout behind
// it, so that a process that dies meanwhile does not make it early. SQS hides a
// message for 12 hours since it was received: a policy whose waits are longer in
// all is refused at the start for a FIFO queue, and a message whose time would
// come later, or after the queue's retention, goes to the DLQ, unschedulable.
// Up to 10,000 messages (MaxInFlight and MaxRetriesInFlight, where that is more) of
// up to 128 MiB, attributes included, are in hand of one subscription; then nothing
// more is received.
//
// # Header mapping
//
// Watermill's metadata are message attributes of type String, its UUID is the
// attribute _watermill_message_uuid, as in watermill-aws. What SQS does not take
// (an empty value, another name, a tenth entry, a payload that is no text) stands
// in the attribute _redeliver_encoded, see [DefaultMarshaler]. Attributes of other
// types are in the message itself, see [MessageFromContext]. All of it is the same
// on every attempt and in the DLQ: body, attributes of every type, message group,
// X-Ray's trace header. A copy in a FIFO queue has a deduplication id of its own,
// so that no copy is swallowed; the handler sees the message's own.
//
// Redeliver's state is one attribute, redeliver, see [StateAttribute]; the handler
// never sees it: it asks redeliver.FromContext. It is believed only where its group
// and origin are the queue that it is read from: a dead letter that is sent back
// to its queue as it is keeps its history. Of another one the handler sees the
// attribute, it travels on inside ours, and the event HeadersIgnored tells. So
// does the last attribute by name of a message that has ten.
//
// SentTimestamp is that of the first delivery, also in the state of a dead letter.
// Not kept on copies: the sender's id, the sequence number, the times and the
// count of receives.
//
// # Failure modes
//
//   - SQS does not take a copy or a dead letter (500, throttling, expired
//     credentials, no connection): the write is tried again with backoff up to
//     10 s; meanwhile the source is kept hidden, the handler does not run again,
//     and no new handler is started (the event intake paused).
//   - One entry of a batch fails: it alone is tried again.
//   - An answer is lost: the copy may be there twice, with the same id. A dead
//     letter in a FIFO queue is not: its deduplication id says that it is the same.
//   - A receive fails: the next one, with backoff up to 5 s; the events
//     disconnected and consuming say so.
//   - A queue is deleted under us: it is created anew; what it held is gone.
//   - A handler never returns: its attempt ends with the policy's Timeout.
//   - The process closes: what was not begun is given back at once, what waits in
//     hand for when it is due, and what the last receives bring, too. Those are
//     waited for while messages come (2 s at most) and on FIFO queues (5 s, see
//     [Config.WaitTime]). On a standard queue where none came for a while the long
//     receive is cut short, so that an idle subscriber closes at once. SQS does not
//     see that: a message that is sent within the rest of such a receive may be given
//     to it, and then nobody sees it for 10 s. That counts as a receive and is no
//     attempt. A receive that outlasts [Config.DrainTimeout] is cut in any case, and
//     on a FIFO queue the group of what it was given stands still for the visibility
//     timeout.
//   - A message cannot be decoded: it goes to the DLQ as it is, undecodable.
//   - Body and attributes leave no room for our state: it is shortened, then left
//     out; in the DLQ such a message is as it came.
//
// # Not supported
//
// Delayed publishes to FIFO queues. Order across a crash of a suspect. Large
// payloads in S3. SNS envelopes are bodies like others. A policy per message
// group.
package sqs
