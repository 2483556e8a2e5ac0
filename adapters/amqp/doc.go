// Package amqp adds retries, delays and a dead-letter queue to RabbitMQ 3.10 and later,
// over rabbitmq/amqp091-go. It needs no plugin, only queues.
//
//	billing, err := amqp.Open(ctx, amqp.Config{URLs: []string{"amqp://guest:guest@localhost"}})
//	router.AddMiddleware(middleware.Retry())
//	router.AddConsumerHandler("charge", "orders", billing.Subscriber(), charge)
//	...
//	defer billing.Close(ctx) // after the router
//
// A service without Watermill calls [Consume] or [ConsumeBatch]. [mq.Client.Plan] lists what
// a start would use and create. docs/reference/rabbitmq.md has the details.
//
// # Topology
//
// The [Topology] maps a topic to a queue. For queue orders there are these quorum queues:
//
//	orders.retry.10s       a delay queue
//	orders.retry           due retries and replays
//	orders.retry.suspects  messages that may have killed their process
//	orders.retry.paused    the mark of a pause
//	orders.retry.place     notes about messages that keep their place, if the policy is ordered
//	orders.dlq             the DLQ
//
// The queue is also the group: its consumers compete. redeliver writes to its queues
// through the default exchange, so no other queue gets a copy.
//
// # Delivery guarantees
//
// Delivery is at least once. A message is acked only when it is handled, or when the
// broker has confirmed that a delay queue or the DLQ has it. After a kill, messages that
// were not acked come back with the same id: the header _watermill_message_uuid, the
// message id, or a hash of the message, which begins with "derived:".
//
// Messages begin in the order of the queue, [Config.MaxInFlight] at once. The orders
// OrderBlocking and OrderThroughRetries ([Config.Key]) need a single active consumer. A message that kills
// its process Policy.MaxCrashes times while it runs alone goes to the DLQ, crashed.
//
// # Delay limits
//
// A delay may be up to redeliver.MaxWait (366 days). Retries are never early, as far as
// the clocks of the hosts agree, and some milliseconds late. The broker passes on about
// 2,500 messages/s (make bench) of a level longer than a minute.
//
// # Header mapping
//
// Watermill's metadata are the headers, as in watermill-amqp. Properties, headers of
// every type, exchange and routing key are in [DeliveryFromContext]. Every attempt and
// the DLQ have them unchanged; but x-death and the like, which RabbitMQ itself wrote when
// it dead-lettered a message before, are there at the first attempt only. Handlers do not see redeliver's headers; they call
// redeliver.FromContext. An expiration is a deadline: a retry after it is dead-lettered,
// expired.
//
// # Not supported
//
// Exclusive, auto-delete and server-named queues; streams; transactions. Consumers with a
// queue for each process get no retries.
package amqp
