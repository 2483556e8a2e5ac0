// Package errortext compares the texts of errors.
package errortext

import "strings"

// Placeholders for the parts of an error's text that differ from message to message.
const (
	anyText   = "<text>"
	anyUUID   = "<uuid>"
	anyHex    = "<hex>"
	anyNumber = "<n>"
)

// Normalise replaces quotations, UUIDs, hexadecimal and other numbers in an error's text by placeholders, so that
// failures with one cause have one text. It reads a text once, because a DLQ may have a million texts.
func Normalise(text string) string {
	var b strings.Builder
	b.Grow(len(text))
	for i := 0; i < len(text); {
		if n := quotationLength(text, i); n > 0 {
			b.WriteString(anyText)
			i += n
			continue
		}
		if !isAlnum(text[i]) {
			b.WriteByte(text[i])
			i++
			continue
		}
		n, replacement := replaceWord(text[i:])
		b.WriteString(replacement)
		i += n
	}
	return b.String()
}

// maxQuoted bounds a quotation, in bytes. A quote whose end is farther away begins no quotation.
const maxQuoted = 512

// quotationLength returns the length of the quotation that begins at i, with its quotes, or 0 if there is none. An
// apostrophe within a word begins none, and a backslash escapes.
func quotationLength(text string, i int) int {
	q := text[i]
	if q != '"' && q != '\'' && q != '`' || q == '\'' && i > 0 && isAlnum(text[i-1]) {
		return 0
	}
	for j := i + 1; j < len(text) && j-i <= maxQuoted; j++ {
		switch {
		case text[j] == '\\':
			j++
		case text[j] == '\n':
			return 0
		case text[j] == q && !(q == '\'' && j+1 < len(text) && isAlnum(text[j+1])):
			return j + 1 - i
		}
	}
	return 0
}

// replaceWord returns the length of the word at the start of text, and its replacement.
func replaceWord(text string) (n int, replacement string) {
	if startsWithUUID(text) {
		return 36, anyUUID
	}
	for n < len(text) && isAlnum(text[n]) {
		n++
	}
	w := text[:n]
	digits, hexes := 0, 0
	for i := range len(w) {
		if isDigit(w[i]) {
			digits++
		}
		if isHexDigit(w[i]) {
			hexes++
		}
	}
	switch {
	case digits == 0:
		return n, w
	case digits == n:
		// 10.0.0.1:5432 and 1,000.5 are one number each.
		for n+1 < len(text) && (text[n] == '.' || text[n] == ',' || text[n] == ':') && isDigit(text[n+1]) {
			n++
			for n < len(text) && isDigit(text[n]) {
				n++
			}
		}
		return n, anyNumber
	case hexes == n && n >= 6, n > 2 && w[0] == '0' && (w[1] == 'x' || w[1] == 'X') && hexes == n-1:
		return n, anyHex
	default:
		return n, numbered(w)
	}
}

// numbered returns a word such as "order123" or "5s" with its digits replaced.
func numbered(w string) string {
	var b strings.Builder
	for i := 0; i < len(w); {
		if !isDigit(w[i]) {
			b.WriteByte(w[i])
			i++
			continue
		}
		for i < len(w) && isDigit(w[i]) {
			i++
		}
		b.WriteString(anyNumber)
	}
	return b.String()
}

func startsWithUUID(text string) bool {
	if len(text) < 36 || len(text) > 36 && isAlnum(text[36]) {
		return false
	}
	for i := range 36 {
		if dash := i == 8 || i == 13 || i == 18 || i == 23; dash != (text[i] == '-') || !dash && !isHexDigit(text[i]) {
			return false
		}
	}
	return true
}

func isDigit(c byte) bool    { return c >= '0' && c <= '9' }
func isHexDigit(c byte) bool { return isDigit(c) || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F' }
func isAlnum(c byte) bool {
	return isDigit(c) || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= 0x80
}
