// Package deadletter works inside a dead-letter queue: it shows messages ([Browse]),
// groups them by cause ([Groups]), sends them back to the group that failed them
// ([Replay]), edits ([Edit]) and deletes them ([Purge]), and moves them ([Export], [Import]).
//
// It works over a [Queue], which an adapter opens: adapters/kafka, adapters/amqp,
// adapters/sqs, or the broker in memory of redelivertest. On adapters/pubsub the DLQ is
// a plain topic. The package imports no broker client.
//
// # Guarantees
//
//   - No message is removed from the DLQ or marked before its copy is confirmed at
//     its destination. A process that is killed at any instruction loses no message.
//     Messages that it had sent and not yet settled, at most ReplayOptions.Window, are sent
//     again by Resume: duplicates with the same id.
//   - A message goes back to the group that failed it and to no other. The
//     destination comes from the queue's own configuration, never from a header. A
//     message whose headers name another group or origin is shown and refused.
//   - One runner writes at a time: it has the [Claim]. A second runner is refused with
//     the name of the first one's user ([HeldError]).
//   - A replay is a [Task] that is saved before its first message. It touches only
//     messages that were in the DLQ when it was created, and records the outcome of
//     each.
//
// All functions are safe for concurrent use. Bodies and headers of messages are the
// broker's bytes and must not be changed.
package deadletter
