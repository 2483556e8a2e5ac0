// Package contextkey has keys of contexts.
package contextkey

// State is the key of a message's state. The value is a redeliver.State or has a method State.
type State struct{}

// Receiver is a key of the context of Subscribe. If it has a value, a middleware.Receiver gets the messages.
type Receiver struct{}
