// Package sidecar makes any program the handler of a topic or queue: one that listens
// on HTTP, or one that is run for each message. Such a program
// has what every handler has: attempts, delays, a DLQ, and the promises. docs/reference/sidecar.md is
// for its authors.
package sidecar

import (
	"context"
	"time"

	"github.com/redeliver/redeliver"
)

// Message is a message as a program gets it, whatever its broker.
type Message struct {
	State     redeliver.State // what redeliver knows of it; State.Attempt() is the attempt that runs
	Key       []byte          // of a record of Kafka; nil for none
	Body      []byte
	Null      bool      // a record of Kafka that has no value at all
	Timestamp time.Time // of the broker or the producer; zero where nobody says
	Headers   []Header  // the user's own, in the order in which they stand
	// Properties are what the broker knows of the message beside its headers:
	// partition and offset, exchange and routing key, message group. Their names are
	// ours, each as a part of a field of HTTP: Routing-Key.
	Properties []Header
	// ContentType is the content type that the message gives; empty for none.
	ContentType string
}

// Header is a header of a message. Both texts may be any bytes, and a name may come
// twice.
type Header struct{ Name, Value string }

// Handler is a program that handles messages, one at a time. Handle is called by many
// goroutines at once, and must return soon after ctx has ended. Its answer is an error
// value, as a drop-in's handler gives it: nil is done, and about everything else the
// policy decides. An [UnreachedError] says that the program has not seen the message.
type Handler interface {
	Handle(ctx context.Context, m *Message) error
}

// Batcher is a program that handles many messages at once. It gives each its answer by its place in all, from
// any goroutine; the first counts, and takes effect at once. When HandleBatch returns, messages without an
// answer are done if it returned nil, and have failed with its error otherwise.
type Batcher interface {
	HandleBatch(ctx context.Context, all []*Message, answer func(i int, err error)) error
}

// UnreachedError is why a program has not seen its message: nobody listens, it cannot
// be started, or who answers seems to be somebody else. That is no attempt.
type UnreachedError struct{ Err error }

func (e *UnreachedError) Error() string { return e.Err.Error() }
func (e *UnreachedError) Unwrap() error { return e.Err }

// stamp is a time in the form that programs get.
func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02T15:04:05.000Z")
}
