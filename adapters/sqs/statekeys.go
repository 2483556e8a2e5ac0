package sqs

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strings"

	"github.com/redeliver/redeliver"
)

// minStateKey is the shortest key of Config.StateKeys: half of what SHA-256 gives.
const minStateKey = 16

// keyMAC is the last field of a signed state.
const keyMAC = "mac"

// stateKeys sign the state in StateAttribute: the first one signs, each of them
// verifies. Without keys nothing is signed and everything verifies.
type stateKeys [][]byte

// macSize is the length of ,"mac":"..." in a signed state.
var macSize = len(`,"`+keyMAC+`":""`) + base64.StdEncoding.EncodedLen(sha256.Size)

// size is how much longer a signed state is than an unsigned one.
func (k stateKeys) size() int {
	if len(k) == 0 {
		return 0
	}
	return macSize
}

// sign adds the field mac to a packed state: the HMAC-SHA256 of the state, which
// names its origin, and of the digest of the body it belongs to.
func (k stateKeys) sign(packed, body string) string {
	if len(k) == 0 {
		return packed
	}
	fields := strings.TrimSuffix(packed, "}")
	return fields + macField(k[0], fields, body) + "}"
}

// verify reports whether a state was signed with one of the keys for a message with
// this body.
func (k stateKeys) verify(signed, body string) bool {
	if len(k) == 0 {
		return true
	}
	rest, ok := strings.CutSuffix(signed, "}")
	if !ok || len(rest) < macSize {
		return false
	}
	fields, mac := rest[:len(rest)-macSize], rest[len(rest)-macSize:]
	for _, key := range k {
		if hmac.Equal([]byte(mac), []byte(macField(key, fields, body))) {
			return true
		}
	}
	return false
}

func macField(key []byte, fields, body string) string {
	digest := sha256.Sum256([]byte(body))
	h := hmac.New(sha256.New, key)
	h.Write(digest[:])
	h.Write([]byte(fields))
	return `,"` + keyMAC + `":"` + base64.StdEncoding.EncodeToString(h.Sum(nil)) + `"`
}

// validate adds the problems of the keys. The keys themselves are in no error.
func (k stateKeys) validate(ps *redeliver.Problems) {
	for i, key := range k {
		if len(key) < minStateKey {
			ps.Add(fmt.Sprintf("StateKeys[%d]", i), fmt.Sprintf("%d bytes", len(key)), fmt.Sprintf("must have at least %d random bytes", minStateKey))
		}
	}
}
