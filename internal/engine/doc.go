// Package engine runs the messages of every broker. It reads a [driver.Source], keeps messages until they are due, keeps the
// order of keys and bounds how many messages run. It runs handlers and decides about failures. At the end it waits for the
// messages in flight.
//
// # The steps of a message
//
//   - lane.admit: the source has read a record and parses it (Source.Parse). The message waits in the lane until it is due.
//   - lane.enqueue: it becomes the owner of its key (lane.takeKey), or waits behind the message that owns the key.
//   - lane.begin: it begins when it has a slot (slots.acquire), the gaters permit it and no suspect runs (Turn).
//   - entry.serve: a worker calls the handler, or hands the Watermill message to the Router and waits for its ack.
//   - Delivery.Run: the attempt. A success ends it. A failure goes to Delivery.settleFailure, which asks the policy.
//   - move: a copy is written to a level or to the DLQ, again and again until the broker confirms it (Store.Write).
//   - lane.finish: the source settles the message. The next one of its key becomes ready.
//
// # Who owns what
//
// A lane has one goroutine. It alone uses the lane's queues, keys and source. Other goroutines use lane.report and lane.Post. A
// message's end is claimed once (Delivery.claim): by the handler's answer, by its timeout, or by the worker that saw its
// Watermill message acked. The slots and the guard belong to the subscription, under one lock. A write ends in the goroutine in
// which the client calls Confirmed.
//
// # Crashes
//
// A process that dies before the copy is written leaves the message on its source. One that dies later, before the broker
// knows that the source is settled, leaves both: a duplicate with the same id.
package engine
