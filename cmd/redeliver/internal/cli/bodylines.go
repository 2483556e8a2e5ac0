package cli

import (
	"bytes"
	"encoding/json"
	"strings"
	"unicode/utf8"

	"github.com/redeliver/redeliver/internal/linediff"
)

// maxDiffBody bounds the bodies that are compared by lines, in bytes.
const maxDiffBody = 1 << 20

// bodyLines are the lines in which two bodies differ. It is empty for equal bodies, and for those that are no text.
type bodyLines []linediff.Line

func compareBodies(before, after []byte) bodyLines {
	if bytes.Equal(before, after) || len(before)+len(after) > maxDiffBody || !utf8.Valid(before) || !utf8.Valid(after) {
		return nil
	}
	was, is := indentJSON(before), indentJSON(after)
	if was == "" || is == "" || was == is {
		was, is = string(before), string(after)
	}
	return linediff.Compare(was, is)
}

// indentJSON returns a JSON text with one value in each line, or "".
func indentJSON(body []byte) string {
	const maxDepth = 32 // a deeper one could take gigabytes
	depth := 0
	for _, c := range body {
		switch c {
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		}
		if depth > maxDepth {
			return ""
		}
	}
	var b bytes.Buffer
	if json.Indent(&b, body, "", "  ") != nil {
		return ""
	}
	return b.String()
}

func (l bodyLines) draw(c *details) {
	if len(l) > 0 {
		c.text("body", l.String())
	}
}

func (l bodyLines) String() string {
	var b strings.Builder
	for _, line := range l {
		sign := line.Sign
		if sign == "" {
			sign = " "
		}
		b.WriteString(strings.TrimRight(sign+" "+visible(line.Text), " ") + "\n")
	}
	return b.String()
}
