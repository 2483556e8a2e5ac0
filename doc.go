// Package redeliver has the types of a retry and dead-letter layer over Apache Kafka, RabbitMQ and Amazon SQS: the state of a failed
// message ([State]), the rules for its retries ([Policy]), the answers of a handler ([Permanent], [RetryAfter], [Postpone]) and the
// events ([Event]).
//
// A service uses a [Policy] with a backoff, the answers of a handler, and perhaps
// [FromContext] and a [Sink]:
//
//	policy := redeliver.Policy{MaxRetries: 5, Backoff: redeliver.Exponential()}
//
// The packages adapters/... connect to one broker each. Package middleware wraps Watermill
// handlers. Package deadletter works on dead-letter queues.
//
// The package does no I/O and starts no goroutine. Everything in it is safe for concurrent use. A decision depends only
// on the state, the error and the time, so a duplicate gets the same decision as the first copy, and a simulation is
// repeatable.
//
// The other exported names are for adapters: the decision ([Policy.Decide], [Decision]) and helpers for texts
// ([RedactAddress]). Package driver reads and writes the headers of a state.
package redeliver
