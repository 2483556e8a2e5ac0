package statekeys

import "testing"

func TestKeys(t *testing.T) {
	oldKey, newKey := []byte("the old key of 24 bytes."), []byte("the new key of 24 bytes.")
	signature := Keys{oldKey}.Sign(Waiting, "state", []byte("body"))
	for name, tt := range map[string]struct {
		keys                   Keys
		signature, state, body string
		ok                     bool
	}{
		"the same key":           {Keys{oldKey}, signature, "state", "body", true},
		"the key is the second":  {Keys{newKey, oldKey}, signature, "state", "body", true},
		"the key was removed":    {Keys{newKey}, signature, "state", "body", false},
		"another state":          {Keys{oldKey}, signature, "States", "body", false},
		"another body":           {Keys{oldKey}, signature, "state", "bodies", false},
		"bytes moved":            {Keys{oldKey}, signature, "tate", "bodys", false},
		"unsigned":               {Keys{oldKey}, "", "state", "body", false},
		"a reader without keys":  {nil, "", "state", "body", true},
		"a signature cut to two": {Keys{oldKey}, signature[:2], "state", "body", false},
	} {
		if got := tt.keys.Verify(tt.signature, Waiting, tt.state, []byte(tt.body)); got != tt.ok {
			t.Errorf("%s: verified is %v, want %v", name, got, tt.ok)
		}
	}
	if got := (Keys)(nil).Sign(Waiting, "state", nil); got != "" {
		t.Errorf("without keys the signature is %q, want none", got)
	}
}

// A state that is signed for one place counts in no other, but a DLQ has messages that the broker moved there from where they waited.
func TestASignatureNamesItsPlace(t *testing.T) {
	keys := Keys{[]byte("a key of sixteen bytes")}
	places := []Place{Waiting, DeadLetter, Note}
	for _, signedFor := range places {
		signature := keys.Sign(signedFor, "state", []byte("body"))
		for _, at := range places {
			want := at == signedFor || at == DeadLetter && signedFor == Waiting
			if got := keys.Verify(signature, at, "state", []byte("body")); got != want {
				t.Errorf("a state signed for %q counts as %q: %t, want %t", signedFor, at, got, want)
			}
		}
	}
}
