package cli

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode/utf16"
)

// The formats of --output. In all formats but the table, a list is an array (in jsonl one object per line), and
// anything else is one object. docs/reference/command.md lists the fields.
const (
	formatTable = "table"
	formatJSON  = "json"
	formatJSONL = "jsonl"
	formatYAML  = "yaml"
)

// The modes of --color.
const (
	colorAuto   = "auto"
	colorAlways = "always"
	colorNever  = "never"
)

var (
	formats    = []string{formatTable, formatJSON, formatJSONL, formatYAML}
	colorModes = []string{colorAuto, colorAlways, colorNever}
)

func (p *printer) checkFormat() error {
	if p.output == "" { // the verb has neither flag
		return nil
	}
	return cmp.Or(mustBeOneOf("output", p.output, formats), mustBeOneOf("color", p.color, colorModes))
}

// printer prints data to Out, in the format of --output, and everything else to Err.
type printer struct {
	Streams

	output string // format of --output
	color  string // mode of --color
}

// sayf prints a message that is not data.
func (p *printer) sayf(format string, args ...any) {
	fmt.Fprintln(p.Err, visibleLines(fmt.Sprintf(format, args...)))
}

// write writes data.
func (p *printer) write(text string) error {
	if _, err := io.WriteString(p.Out, text); err != nil {
		return fmt.Errorf("writing to stdout: %w", err)
	}
	return nil
}

// colour reports whether to print colours.
func (p *printer) colour(terminal bool) bool {
	return p.color == colorAlways || p.color != colorNever && terminal && p.Env("NO_COLOR") == "" && p.Env("TERM") != "dumb"
}

// width returns the width of the terminal, or 0 if the stream is none.
func (p *printer) width(terminal bool) int {
	if !terminal || p.Screen == nil {
		return 0
	}
	width, _ := p.Screen.Size()
	return width
}

// printOne prints a single object; draw draws its table.
func (p *printer) printOne(v any, draw func(*details)) error {
	if p.output == formatTable {
		c := &details{}
		draw(c)
		return c.print(p)
	}
	text, err := p.encode(v)
	if err != nil {
		return err
	}
	return p.write(text)
}

// rows prints a list row by row, because a DLQ may have a million messages.
type rows struct {
	p     *printer
	table *grid // nil in other formats
	n     int
}

// list starts a list with these columns.
func (p *printer) list(columns ...string) *rows {
	r := &rows{p: p}
	if p.output == formatTable {
		r.table = newGrid(p.colour(p.OutTerminal), columns)
		r.table.t.Width = p.width(p.OutTerminal)
	}
	return r
}

// add prints a row: the cells in a table, v in other formats.
func (r *rows) add(v any, cells ...any) error {
	r.n++
	if r.table != nil {
		r.table.add(cells)
		return nil
	}
	item := v
	if r.p.output == formatYAML {
		item = []any{v} // an array is encoded as its items, one after another
	}
	text, err := r.p.encode(item)
	if err != nil {
		return err
	}
	if r.p.output == formatJSON {
		before := ",\n"
		if r.n == 1 {
			before = "[\n"
		}
		text = before + indent(strings.TrimSuffix(text, "\n"))
	}
	return r.p.write(text)
}

// end prints what follows the last row.
func (r *rows) end() error {
	switch {
	case r.table != nil:
		return r.p.write(r.table.text())
	case r.p.output == formatJSON && r.n > 0:
		return r.p.write("\n]\n")
	case r.p.output != formatJSONL && r.n == 0:
		return r.p.write("[]\n")
	default:
		return nil
	}
}

func indent(text string) string { return "  " + strings.ReplaceAll(text, "\n", "\n  ") }

// encode encodes a value in the chosen format, followed by a newline.
func (p *printer) encode(v any) (string, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if p.output == formatJSON {
		enc.SetIndent("", "  ")
	}
	if err := enc.Encode(v); err != nil {
		return "", fmt.Errorf("writing %T as JSON: %w", v, err)
	}
	if p.output == formatYAML {
		text, err := toYAML(b.Bytes())
		return escapeHidden(text), err
	}
	return escapeHidden(b.String()), nil
}

// escapeHidden escapes characters that JSON and YAML allow but a terminal interprets or hides: DEL and non-ASCII
// controls, direction marks, and invisible characters. They occur only in strings, in YAML only in double-quoted ones,
// so the meaning does not change. A character above U+FFFF is escaped as in JSON; the YAML writer has escaped it
// already.
func escapeHidden(text string) string {
	bad := func(r rune) bool { return r != '\n' && hidden(r) }
	if strings.IndexFunc(text, bad) < 0 {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		if bad(r) {
			for _, unit := range utf16.Encode([]rune{r}) {
				fmt.Fprintf(&b, `\u%04x`, unit)
			}
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// escapedLines is a writer that applies escapeHidden to each line.
type escapedLines struct {
	w    io.Writer
	rest []byte // of an incomplete line
}

// Write implements [io.Writer].
func (h *escapedLines) Write(p []byte) (int, error) {
	h.rest = append(h.rest, p...)
	end := bytes.LastIndexByte(h.rest, '\n') + 1
	if end > 0 {
		lines := escapeHidden(string(h.rest[:end]))
		h.rest = append(h.rest[:0], h.rest[end:]...) // also after an error: a later Write must not write what failed
		if _, err := io.WriteString(h.w, lines); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}
