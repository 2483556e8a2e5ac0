// Package engine is the one loop that runs messages, for every broker: it reads a [driver.Source], holds what is not due, keeps
// the order of keys, bounds what runs, runs handlers, decides about failures and waits for what is under way at the end.
//
// # One message's way
//
//   - lane.admit: the source has read a record and says what it means (Source.Parse). It waits in the lane until it is due.
//   - lane.line: it takes the turn of its key, or stands behind the message that has it.
//   - lane.begin: it begins when it has a slot (slots.take), the gaters agree and no suspect runs.
//   - entry.serve: a worker calls the handler, or hands the Watermill message to the Router and waits for its ack.
//   - Delivery.Run: the attempt. A success ends it. A failure goes to Delivery.settleFailure, which asks the policy.
//   - move: the copy is written to where it waits or to the DLQ, again and again until the broker confirms it. No goroutine
//     waits for that.
//   - lane.finish: the source settles the message. The next one of its key begins.
//
// # Who owns what
//
// A lane has one goroutine, which alone touches its entries, its hold, its keys and its source. Others reach it through
// lane.report and lane.Post. A message's end is claimed once (Delivery.claim): by the handler's answer, by its timeout, or by
// the worker that saw its message acked. Slots and the guards of outages belong to the subscription, under one lock. Writes end
// in whatever goroutine the client calls Confirmed from.
//
// # Crashes
//
// A process that dies before the copy is confirmed leaves the message on its source. One that dies after that, and before the
// source is settled, leaves both: a duplicate with the same id.
package engine
