package cli

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// visible escapes characters that a terminal would interpret or would not show. Any text from a broker may be hostile:
// a header could clear the screen or overwrite its own label.
func visible(text string) string {
	if strings.IndexFunc(text, hidden) < 0 {
		return text
	}
	var b strings.Builder
	for i := 0; i < len(text); {
		r, n := utf8.DecodeRuneInString(text[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, text[i])
		case unicode.IsPrint(r):
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\r':
			b.WriteString(`\r`)
		case r == '\t':
			b.WriteString(`\t`)
		case r < 0x80:
			fmt.Fprintf(&b, `\x%02x`, r)
		default: // direction marks, zero-width characters, non-ASCII controls
			fmt.Fprintf(&b, `\u{%x}`, r)
		}
		i += n
	}
	return b.String()
}

// hidden reports whether a character is invisible or invalid UTF-8.
func hidden(r rune) bool { return r == utf8.RuneError || !unicode.IsPrint(r) }

// visibleLines escapes text as visible does, but keeps line ends and tabs.
func visibleLines(text string) string {
	var b strings.Builder
	for i, line := range strings.Split(text, "\n") {
		if i > 0 {
			b.WriteByte('\n')
		}
		for j, part := range strings.Split(line, "\t") {
			if j > 0 {
				b.WriteByte('\t')
			}
			b.WriteString(visible(part))
		}
	}
	return b.String()
}
