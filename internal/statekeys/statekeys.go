// Package statekeys signs the state that redeliver keeps beside a message, for queues to which others may write.
package statekeys

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"

	"github.com/redeliver/redeliver/internal/check"
)

// minKey is the length of the shortest key: half of the output of SHA-256.
const minKey = 16

// Size is the length of a signature.
var Size = base64.StdEncoding.EncodedLen(sha256.Size)

// Keys sign states: the first one signs, each of them verifies. Without keys nothing is signed and everything verifies.
type Keys [][]byte

// Place is the kind of place for which a state is signed. Otherwise anyone who may read one place, such as a DLQ, could write its states to
// another one.
type Place string

// The places.
const (
	Waiting    Place = "waiting" // the queues from which a message comes back: levels, the retry queue, suspects
	DeadLetter Place = "dead letter"
	Note       Place = "note" // beside an ordered queue
)

// Sign returns the HMAC-SHA256 of a place, a state and its body's digest. The state names its origin. Different states must have
// different texts. Without keys Sign returns an empty string.
func (k Keys) Sign(at Place, state string, body []byte) string {
	if len(k) == 0 {
		return ""
	}
	return sign(k[0], at, state, body)
}

// Verify reports whether one of the keys has signed a state for a message with this body in a place. A DLQ may also have what was
// signed for waiting, because the broker moves such messages there.
func (k Keys) Verify(signature string, at Place, state string, body []byte) bool {
	for _, key := range k {
		if hmac.Equal([]byte(signature), []byte(sign(key, at, state, body))) {
			return true
		}
	}
	return len(k) == 0 || at == DeadLetter && k.Verify(signature, Waiting, state, body)
}

func sign(key []byte, at Place, state string, body []byte) string {
	digest := sha256.Sum256(body)
	h := hmac.New(sha256.New, key)
	h.Write(digest[:])
	h.Write([]byte(at + "\x00")) // no place has this byte
	h.Write([]byte(state))
	return base64.StdEncoding.EncodeToString(h.Sum(nil))
}

// Check adds the problems of the keys of Config.StateKeys. No error contains a key.
func (k Keys) Check(ps *check.Problems) {
	for i, key := range k {
		if len(key) < minKey {
			ps.Add(fmt.Sprintf("StateKeys[%d]", i), fmt.Sprintf("%d bytes", len(key)), fmt.Sprintf("must have at least %d random bytes", minKey))
		}
	}
}
