// Package wire is the form of messages on SQS: the user's part, and redeliver's state.
//
// SQS gives a message a body and ten attributes. redeliver's state is one of them ([StateAttribute]), a JSON object. If
// the message has ten of its own, the tenth travels inside the state. A copy must not be larger than its queue allows,
// so [Record.WaitingCopy] and [Record.DeadCopy] leave out fields of the state until the copy fits.
//
// On a standard queue, retries wait in the queue that producers send to. With [Keys] only states that redeliver has signed
// are believed.
package wire
