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
package redeliver
