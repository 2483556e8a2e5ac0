// Package sidecar makes any program the handler of a topic or queue: an HTTP server, or a command that runs once per
// message. The program gets the same attempts, delays, DLQ and guarantees as any handler. Its authors should read
// docs/reference/sidecar.md.
package sidecar

import (
	"context"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/limits"
)

// Message is a message of any broker, as a program receives it.
type Message struct {
	State     redeliver.State // redeliver's state of it; State.Attempt() is the current attempt
	Key       []byte          // of a Kafka record; nil for none
	Body      []byte
	Null      bool      // a Kafka record without a value
	Timestamp time.Time // of the broker or the producer; zero if unknown
	Headers   []Header  // the user's own, in their original order
	// Properties are the broker's data of the message besides its headers, such as partition and offset, exchange and
	// routing key, or message group. We define their names, as parts of an HTTP field's name: Routing-Key.
	Properties []Header
	// ContentType is the content type of the message. Empty for none.
	ContentType string
	// Extend is the URL that extends the attempt. Empty for none.
	Extend string
}

// Header is a header of a message. Name and Value may be any bytes, and a name may occur more than once.
type Header struct{ Name, Value string }

// Handler is a program that handles messages, one at a time. Handle must be safe for concurrent use, and must return
// soon after ctx has ended. Its error has the same meaning as that of any handler: nil means done, and for others the
// policy decides. An [UnreachedError] means that the program has not received the message.
type Handler interface {
	Handle(ctx context.Context, m *Message) error
}

// Batcher is a program that handles many messages at once. It calls answer with i for the message all[i], from any
// goroutine. The first answer to a message counts, and takes effect immediately. When HandleBatch returns, messages
// without an answer are done if it returned nil, and otherwise have failed with its error.
type Batcher interface {
	HandleBatch(ctx context.Context, all []*Message, answer func(i int, err error)) error
}

// UnreachedError reports why a program has not received its message: nothing listens, or it cannot be started. It does not
// count as an attempt.
type UnreachedError struct{ Err error }

func (e *UnreachedError) Error() string { return e.Err.Error() }
func (e *UnreachedError) Unwrap() error { return e.Err }

// stamp formats a time for programs. It is empty for none, and for a time that RFC 3339 cannot express.
func stamp(t time.Time) string { return string(limits.AppendTime(nil, t)) }
