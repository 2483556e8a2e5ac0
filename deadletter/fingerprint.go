package deadletter

import (
	"fmt"
	"hash/fnv"

	"github.com/redeliver/redeliver"
)

// Fingerprint names the cause of a dead letter: messages with the same type of
// error, the same text but for its numbers, ids and quotations, the same handler,
// reason and origin have the same. 16 hex digits.
func Fingerprint(m *Message) string {
	h := fnv.New64a()
	for _, part := range [...]string{m.State.ErrorType, Normalise(m.State.Error), m.Handler, string(m.State.Reason), m.State.Origin} {
		_, _ = h.Write([]byte(part)) // a hash never fails
		_, _ = h.Write([]byte{0})
	}
	return fmt.Sprintf("%016x", h.Sum64())
}

// Normalise is [redeliver.Normalise].
func Normalise(text string) string { return redeliver.Normalise(text) }
