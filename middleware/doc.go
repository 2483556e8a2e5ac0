// Package middleware wraps Watermill handlers. [Retry] counts attempts, and sends failed messages to a level or to the DLQ. [Dedup]
// acks messages that were handled before. [PublishInside] publishes the messages that a handler produces within the attempt. Use them
// in this order:
//
//	router.AddMiddleware(
//		middleware.Retry(), // outermost: gets every failure
//		dedup,              // of middleware.Dedup: marks successes
//		middleware.PublishInside(pub, "invoices"), // a refused publish is a failed attempt
//	)
//
// [Batch] turns a function over many messages into a handler.
//
// Put Watermill's own middlewares inside Retry. You do not need its Recoverer, Timeout, Retry, PoisonQueue and DelayOnError.
package middleware
