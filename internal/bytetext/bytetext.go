// Package bytetext writes bytes as a text that people can read, copy and give back: keys and headers may be any bytes.
package bytetext

import (
	"encoding/base64"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Prefix begins the text of bytes that a person could not see or type.
const Prefix = "base64:"

// Format returns bytes as they are if they are text that a person can see and type, otherwise in base64, after Prefix. Parse undoes
// it.
func Format(b []byte) string {
	if text := string(b); text != "" && !strings.HasPrefix(text, Prefix) && strings.IndexFunc(text, isHidden) < 0 {
		return text
	}
	return Prefix + base64.RawStdEncoding.EncodeToString(b)
}

func isHidden(r rune) bool { return r == utf8.RuneError || !unicode.IsPrint(r) }

// Parse returns the bytes of a text: what follows Prefix, in base64 with or without padding, or the text itself.
func Parse(text string) ([]byte, error) {
	encoded, ok := strings.CutPrefix(text, Prefix)
	if !ok {
		return []byte(text), nil
	}
	b, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(encoded, "="))
	if err != nil {
		return nil, fmt.Errorf("%q is no base64 after %s: %w", encoded, Prefix, err)
	}
	return b, nil
}
