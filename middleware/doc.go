// Package middleware goes around a Watermill handler. [Retry] counts attempts,
// sends failed messages to where they wait, and to the DLQ when their retries
// run out; [PublishInside] makes the publishing of produced messages a part of
// the attempt; [Dedup] acks what was handled before. They read in running order:
//
//	router.AddMiddleware(
//		middleware.Retry(),                      // outermost: sees every failure
//		middleware.Dedup(middleware.DedupConfig{}), // marks what has succeeded
//		middleware.PublishInside(pub, "invoices"), // a refused publish is a failed attempt
//	)
//
// [Batch] makes a handler of a function for many messages at once.
//
// The middlewares of Watermill itself that still make sense stand inside Retry.
// Recoverer, Timeout, Retry, PoisonQueue and DelayOnError are not needed.
package middleware
