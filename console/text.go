package console

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/redeliver/redeliver/internal/limits"
)

// Limits of what is shown; the whole body can be downloaded.
const (
	maxText   = 64 << 10 // bytes of a body
	maxHex    = 2 << 10
	maxLine   = 300 // bytes of a text in a table
	maxIndent = 256 << 10
	// maxErrorText is the maximum number of bytes of an error in a table: a few lines.
	maxErrorText = 180
)

// escapeInvisible makes text visible. It escapes control characters, invisible characters such as zero width and
// right-to-left override, and invalid UTF-8. It keeps line ends and tabs.
func escapeInvisible(s string) string {
	if !strings.ContainsFunc(s, isInvisible) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case isInvisible(r) && r <= 0xffff:
			fmt.Fprintf(&b, `\u%04x`, r)
		case isInvisible(r):
			fmt.Fprintf(&b, `\U%08x`, r)
		default:
			b.WriteRune(r)
		}
		i += n
	}
	return b.String()
}

// isInvisible reports whether a rune is invisible. A carriage return counts as invisible, because it would hide the
// text before it.
func isInvisible(r rune) bool {
	switch r {
	case '\n', '\t':
		return false
	case utf8.RuneError: // invalid UTF-8, or U+FFFD, which may be escaped
		return true
	default:
		return unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || unicode.Is(unicode.Zl, r) || unicode.Is(unicode.Zp, r) || unicode.Is(unicode.Co, r)
	}
}

// truncate returns at most n bytes of a text, with an ellipsis if the text is longer.
func truncate(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "…"
}

// middle returns a text of some lines for an error: it keeps the end, which has the cause.
func middle(v string) string { return escapeInvisible(limits.CutMiddle(v, maxErrorText)) }

// tableText returns a short text for a table, with invisible characters escaped.
func tableText(v any) string {
	switch v := v.(type) {
	case []byte:
		return escapeInvisible(truncate(string(v), maxLine))
	case string:
		return escapeInvisible(truncate(v, maxLine))
	default:
		return escapeInvisible(truncate(fmt.Sprint(v), maxLine))
	}
}

// payloadView is the display form of some bytes.
type payloadView struct {
	Null   bool
	Size   int
	Kind   string // "JSON", "text" or "binary"
	Text   string // the text with invisible characters escaped; empty for binary
	Pretty string // indented JSON with unmodified numbers
	Hex    string // in the format of hexdump -C
	// Escaped reports whether invisible characters were escaped, TextCut and HexCut whether the text was too long to
	// show whole.
	Escaped, TextCut, HexCut bool
}

func newPayload(body []byte) *payloadView {
	p := &payloadView{Null: body == nil, Size: len(body), Kind: "binary"}
	if text := string(body); utf8.Valid(body) && !bytes.ContainsRune(body, 0) {
		p.Kind = "text"
		shown := truncate(text, maxText)
		p.TextCut = shown != text
		p.Text = escapeInvisible(shown)
		p.Escaped = p.Text != shown
		var indented bytes.Buffer
		if len(body) > 0 && mayIndent(body) && json.Indent(&indented, body, "", "  ") == nil {
			p.Kind = "JSON"
			p.Pretty = escapeInvisible(truncate(indented.String(), maxText))
			p.TextCut = p.TextCut || indented.Len() > maxText
		}
	}
	shown := body[:min(len(body), maxHex)]
	p.HexCut = len(shown) < len(body)
	p.Hex = hex.Dump(shown)
	return p
}

// mayIndent reports whether JSON may be indented. The indentation of a deeply nested message could take gigabytes.
func mayIndent(body []byte) bool {
	if len(body) > maxIndent {
		return false
	}
	cost, depth, text := len(body), 0, false
	for i := 0; i < len(body); i++ {
		switch c := body[i]; {
		case text && c == '\\':
			i++
		case c == '"':
			text = !text
		case text:
		case c == '{' || c == '[':
			depth++
			cost += 2*depth + 1
		case c == '}' || c == ']':
			depth--
			cost += 2*max(depth, 0) + 1
		case c == ',':
			cost += 2*max(depth, 0) + 1
		}
	}
	return cost <= 4*maxIndent
}

// formatNumber formats a number with separated thousands.
func formatNumber(n int64) string {
	s := strconv.FormatInt(n, 10)
	sign := ""
	if n < 0 {
		sign, s = "-", s[1:]
	}
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return sign + s
}

// formatSize formats a number of bytes.
func formatSize(n int) string {
	switch {
	case n < 1<<10:
		return formatNumber(int64(n)) + " B"
	case n < 1<<20:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	default:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	}
}

// formatDuration formats a duration in one unit.
func formatDuration(d time.Duration) string {
	d = d.Abs()
	switch {
	case d < time.Second:
		return "less than a second"
	case d < 2*time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h", int(d.Hours()))
	default:
		return fmt.Sprintf("%d days", int(d.Hours()/24))
	}
}

// formatAgo formats the time since t.
func formatAgo(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	d := time.Since(t)
	if d < 0 && d > -time.Second {
		d = 0
	}
	if d < 0 {
		return "in " + formatDuration(d)
	}
	return formatDuration(d) + " ago"
}
