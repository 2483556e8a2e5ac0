package sqs

import (
	"strings"

	"github.com/redeliver/redeliver/internal/statekeys"
)

// keyMAC is the last field of a signed state.
const keyMAC = "mac"

// stateKeys sign the state in StateAttribute.
type stateKeys statekeys.Keys

// macSize is the length of ,"mac":"..." in a signed state.
var macSize = len(macField("")) + statekeys.Size

func macField(signature string) string { return `,"` + keyMAC + `":"` + signature + `"` }

// size returns the length that a signature adds to a state.
func (k stateKeys) size() int {
	if len(k) == 0 {
		return 0
	}
	return macSize
}

// sign adds the field mac to a packed state.
func (k stateKeys) sign(packed, body string) string {
	if len(k) == 0 {
		return packed
	}
	fields := strings.TrimSuffix(packed, "}")
	return fields + macField(statekeys.Keys(k).Sign(fields, []byte(body))) + "}"
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
	signature, ok := strings.CutPrefix(strings.TrimSuffix(mac, `"`), strings.TrimSuffix(macField(""), `"`))
	return ok && statekeys.Keys(k).Verify(signature, fields, []byte(body))
}
