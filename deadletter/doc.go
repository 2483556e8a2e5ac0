// Package deadletter is what can be done inside a dead-letter queue: look
// ([Browse]), find the causes ([Groups]), send messages back to the group that
// failed them ([Run]), mend one ([Edit]), remove them ([Purge]), and carry them
// elsewhere ([Export], [Import]).
//
// It works over a [Queue], which an adapter opens: adapters/kafka, adapters/amqp,
// adapters/sqs, or the broker in memory of redelivertest. On adapters/pubsub the DLQ is
// a plain topic. The package imports no broker client.
//
// # What holds
//
//   - Nothing is taken out of the DLQ or marked before its copy is confirmed where
//     it was sent. A process that is killed at any instruction loses no message.
//     What it had sent and not yet settled, at most Replay.Window messages, is sent
//     again by whoever resumes: duplicates with the same id.
//   - A message goes back to the group that failed it and to no other. Where that
//     is, is derived from the queue's own configuration, never from a header. A
//     message whose headers name another group or origin is shown and refused.
//   - One runner at a time: all writing goes through a [Claim]. A second one is
//     refused with the name of the first ([HeldError]).
//   - A replay is a [Task] that is saved before its first message. Only what was
//     dead when it was made is touched, and what became of each message is recorded.
//
// All functions are safe for concurrent use with different queues, and with the
// same one as far as the claim allows. Bodies and headers that they hand out are
// the broker's bytes and must not be changed.
package deadletter
