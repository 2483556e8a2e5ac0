// Package contextkey has the key of a message's state in its context.
package contextkey

// State is the key. The value is a redeliver.State or has a method State.
type State struct{}
