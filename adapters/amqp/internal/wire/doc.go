// Package wire is the form of messages on RabbitMQ: the user's part, redeliver's headers, and the broker's.
//
// A copy that waits, or that is in the DLQ, is the user's message with redeliver's headers. But some properties and headers
// have an effect when they are published again: an expiration would end the wait early, CC would send the message
// elsewhere too, and the user of another connection would close the channel. A copy keeps those under names of
// redeliver's ([HeaderExpiration] and so on), and [RestoreOriginal] puts them back when the copy comes. redeliver
// reads what the broker adds, such as x-death, and never publishes it.
//
// Three things make this harder than it sounds:
//
//   - The headers of a message must fit into one frame, and larger ones end the connection of every reader.
//     So [Record.WaitingCopy] and [Record.DeadCopy] drop headers of redeliver's until all fit.
//   - The Go client ends its connection over headers that it cannot read, and the message comes again, forever. A
//     [HeaderFilter] in front of the client replaces such headers, so that the message goes to the DLQ.
//   - Anyone who may write to the default exchange can forge redeliver's headers. With keys, [Sign] and [StripUnsigned]
//     make sure that only redeliver's own are believed.
package wire
