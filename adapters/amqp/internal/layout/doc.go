// Package layout says which queues a subscription has, their names and their arguments.
//
// A failed message waits on a delay queue, one for each level of the policy. Subscribers consume the levels of up to a
// minute, and hold each message until it is due. On longer levels, and on those that nobody reads, the message expires,
// and RabbitMQ moves it to the retry queue, which is read beside the origin. All are quorum queues without a length limit.
// Those with a delivery limit dead-letter at least once, so no queue drops a message.
//
//	orders                 the origin, which also names the group
//	orders.retry.10s       a delay queue
//	orders.retry           due retries, short waits and replays
//	orders.retry.suspects  messages that may have killed their process
//	orders.retry.paused    the mark of a pause
//	orders.retry.place     notes about messages that keep their place, if the policy is ordered
//	orders.dlq             the DLQ
//
// The package asks no broker, so the same layout serves a start, a plan and the doctor.
package layout
