// Package topology checks the queues of a subscription, creates those that are missing, and finds what is wrong with them.
//
// RabbitMQ reports little over AMQP. A [Declarer] finds out the rest by asking for things that the broker refuses:
//
//   - It declares an existing queue as it should be. RabbitMQ compares the arguments and answers with the first one that
//     differs, so a few declarations reveal them all.
//   - It declares and reads with impossible arguments. RabbitMQ checks the user's rights first, so the answer shows whether
//     they are there, and nothing is created or read.
//
// Policies, limits, counts and old levels come from the management API, if there is one. A [Survey] has both: what would
// refuse a start ([Broker.Verify]), what a plan notes, and what nobody could check. The doctor examines a running
// subscription ([Survey.Examine]).
package topology
