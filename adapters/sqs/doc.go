// Package sqs adds retries, delays and a dead-letter queue to Amazon SQS, standard and
// FIFO, over aws-sdk-go-v2.
//
//	billing, err := sqs.Open(ctx, sqs.Config{}) // region and credentials as every AWS program has them
//	router.AddMiddleware(middleware.Retry())
//	router.AddConsumerHandler("charge", "orders", billing.Subscriber(), charge)
//	...
//	defer billing.Close(ctx) // after the router
//
// A service without Watermill calls [Consume] or [ConsumeBatch]. [mq.Client.Plan] lists what
// a start would use and create. docs/reference/sqs.md has the details and the rights.
//
// # Topology
//
// A topic is a queue: its name, URL or ARN. The queue is also the group. For queue orders
// (orders.fifo):
//
//	orders           first deliveries and retries
//	orders-suspects  messages that may have killed their process (orders-suspects.fifo)
//	orders-dlq       the DLQ (orders-dlq.fifo)
//	orders-place     of orders.fifo only: the attempts of messages that wait in their place
//
// # Delivery guarantees
//
// Delivery is at least once. A message is deleted only when it is handled, or when SQS has
// confirmed its waiting copy or its dead letter. After a kill, messages that were not deleted come
// back after [Config.VisibilityTimeout] with the same id: the attribute _watermill_message_uuid, or
// the MessageId of the first delivery.
//
// A standard queue has no order. In a FIFO queue a failed message holds up the later ones
// of its group. A message that runs alone and kills its process Policy.MaxCrashes times goes to the
// DLQ, crashed.
//
// On a FIFO queue a note in another queue has attempts, errors and due time, because a rewritten message would lose its
// place.
//
// # Delay limits
//
// A standard queue allows delays of up to redeliver.MaxWait (366 days), as copies with DelaySeconds
// of at most 900 s. On a FIFO queue the message stays hidden, at most 12 hours after its receive.
//
// # Header mapping
//
// Watermill's metadata are message attributes of type String, as in watermill-aws. The attribute
// _redeliver_encoded has values that SQS refuses, see [DefaultMarshaler]. Attributes of other types
// are in [MessageFromContext]. redeliver's state is one attribute, see [StateAttribute], and
// [Config.StateKeys] signs it. Handlers do not see it; they call redeliver.FromContext.
//
// # Not supported
//
// Delayed publishes to FIFO queues. Order across a crash of a suspect. Large payloads in
// S3. A policy for each message group.
package sqs
