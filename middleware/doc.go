// Package middleware wraps Watermill handlers. [Retry] counts attempts, and sends failed messages to a level or to the DLQ. [Dedup]
// acks messages that were handled before. [PublishInside] makes the publishing of produced messages a part of the attempt. The order
// is:
//
//	router.AddMiddleware(
//		middleware.Retry(), // outermost: sees every failure
//		dedup,              // of middleware.Dedup: marks successes
//		middleware.PublishInside(pub, "invoices"), // a refused publish is a failed attempt
//	)
//
// [Batch] turns a function over many messages into a handler.
//
// Put Watermill's own middlewares inside Retry. You do not need its Recoverer, Timeout, Retry, PoisonQueue and DelayOnError.
package middleware
