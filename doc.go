// Package redeliver is the vocabulary of a retry and dead-letter layer over
// Apache Kafka, RabbitMQ and Amazon SQS: what is known of a failed message
// ([State] and its headers), what to do about it ([Policy], [Policy.Decide]),
// how a handler answers ([Permanent], [RetryAfter], [Postpone]) and what
// happened ([Event]).
//
// The package does no I/O and starts no goroutine. Everything in it is safe for
// concurrent use, and what a policy decides is a function of the state, the
// error and the time alone: a duplicate of a message decides as the first copy
// did, and a simulation repeats itself.
//
// The parts that move messages are below: package middleware wraps a handler,
// package delayqueue says where a message waits, packages adapters/... speak to
// one broker each.
//
// A service needs [Policy] with its backoffs, the answers of a handler, and
// perhaps [FromContext] and a [Sink]. What an adapter of a broker needs is exported
// beside that, and of no use elsewhere: the headers and their parsing
// ([ParseHeaders], [State.Headers], [Header], [Finding], [HeaderNames]), the
// decision ([Policy.Decide], [Decision]), [ContextKey], the checks of a
// configuration ([Problems]) and of texts and times ([Cut], [ShortID],
// [RedactAddress], [CeilMilli]). An adapter of your own is written against package
// delayqueue, and proved with adapters/adaptertest.
package redeliver
