package bytetext

import (
	"bytes"
	"encoding/base64"
	"testing"
)

func FuzzBytes(f *testing.F) {
	for _, b := range []string{"", "order-1", "grüße", "a b", "\xff\x00", "\x00\x00\x00\x00\x00\x00\x00*", "base64:", "base64:QQ==", "\u202e", "\ufffd", "\n"} {
		f.Add([]byte(b))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		text := Format(b)
		if got, err := Parse(text); err != nil || !bytes.Equal(got, b) {
			t.Errorf("%q is written as %q and read as %q: %v", b, text, got, err)
		}
		if again := Format([]byte(text)); again == text && text != string(b) {
			t.Errorf("%q is the text of itself and of %q", text, b)
		}
		if got, err := Parse(Prefix + base64.StdEncoding.EncodeToString(b)); err != nil || !bytes.Equal(got, b) { // as JSON has it
			t.Errorf("with padding %q is read as %q: %v", b, got, err)
		}
	})
}

func TestAnInvalidTextIsRefused(t *testing.T) {
	if b, err := Parse("base64:?"); err == nil {
		t.Errorf("it is read as %q", b)
	}
}
