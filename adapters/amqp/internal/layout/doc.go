// Package layout says which queues a subscription has, their names and their arguments.
//
// A failed message waits on a delay queue, one for each level of the policy, until its TTL ends or a subscriber fetches
// it. Then RabbitMQ moves it to the retry queue, which is read beside the origin. All are quorum queues that dead-letter at
// least once and drop nothing: they have no length limit, and delivery limits that no message reaches.
//
//	orders                 the origin, which also names the group
//	orders.retry.10s       a delay queue; orders.retry.10s.1 ... are its shards
//	orders.retry           the way back
//	orders.retry.suspects  messages that may have killed their process
//	orders.retry.paused    the mark of a pause
//	orders.retry.place     crash counts, if the policy is ordered
//	orders.dlq             the DLQ
//
// The package asks no broker, so the same layout serves a start, a plan and the doctor.
package layout
