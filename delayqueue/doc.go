// Package delayqueue decides where a failed message waits: the ladder of levels, the
// hold for waits that are too short for a level, what a message that comes back
// means ([Arrive]), and the seam between the middle floors and the brokers: a
// [Subscription] with its [Scheduler] and [DeadLetters], and the [Delivery] that
// rides in a message's context. An [Attempt] is one run of a handler, whatever
// form the handler takes messages in: middleware.Retry runs attempts of Watermill
// messages, and [Work] those of the broker's own.
//
// # The ladder
//
// A message that must wait is put on the delay topic of the largest level that
// fits into the wait. When the level is over and time remains it hops to a
// shorter level: 95 s on the levels 5s 30s 1m are 1m + 30s + 5s. The due time is
// absolute and travels with the message, so hops do not add up lateness. What
// is left below the smallest level is spent in a [Hold], a bounded place in
// memory, while the source stays unacked.
package delayqueue
