package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode/utf16"
)

// The formats of --output. In all but the table a list is an array (in jsonl one
// object in a line), and everything else one object; docs/reference/command.md has the fields.
const (
	formatTable = "table"
	formatJSON  = "json"
	formatJSONL = "jsonl"
	formatYAML  = "yaml"
)

func checkFormat(format string) error {
	if format == "" { // a verb without the flag
		return nil
	}
	return mustBeOneOf("output", format, []string{formatTable, formatJSON, formatJSONL, formatYAML})
}

// printer prints what the verbs return: data to Out, in the format of --output, and
// everything else to Err.
type printer struct {
	Streams

	output string // --output
}

// sayf reports something that is not data.
func (p *printer) sayf(format string, args ...any) {
	fmt.Fprintln(p.Err, visibleLines(fmt.Sprintf(format, args...)))
}

// write prints data.
func (p *printer) write(text string) error {
	if _, err := io.WriteString(p.Out, text); err != nil {
		return fmt.Errorf("writing to stdout: %w", err)
	}
	return nil
}

// colour reports whether a terminal may be given colours.
func (p *printer) colour(terminal bool) bool {
	return terminal && p.Env("NO_COLOR") == "" && p.Env("TERM") != "dumb"
}

// one prints a single object; draw is its table.
func (p *printer) one(v any, draw func(*card)) error {
	if p.output == formatTable {
		c := &card{}
		draw(c)
		return c.print(p)
	}
	text, err := p.encode(v)
	if err != nil {
		return err
	}
	return p.write(text)
}

// rows prints a list, row by row: a DLQ may have a million.
type rows struct {
	p     *printer
	table *grid // nil in other formats
	n     int
}

// list begins one with these columns.
func (p *printer) list(columns ...string) *rows {
	r := &rows{p: p}
	if p.output == formatTable {
		r.table = newGrid(p.colour(p.OutTerminal), columns)
	}
	return r
}

// add prints a row: v in the other formats, the cells in a table.
func (r *rows) add(v any, cells ...any) error {
	r.n++
	if r.table != nil {
		r.table.add(cells)
		return nil
	}
	item := v
	if r.p.output == formatYAML {
		item = []any{v} // an array is its items one after another
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

// encode is a value in the format that was asked for, with a line's end.
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
		return harmless(text), err
	}
	return harmless(b.String()), nil
}

// harmless escapes characters that JSON and YAML allow, and that a terminal obeys or hides: DEL and the controls
// beyond ASCII, marks of direction, characters without a shape. They are in strings alone, in YAML in those
// with double quotes, so it means the same. A character beyond U+FFFF is written as JSON has it; the writer of
// YAML has escaped it already.
func harmless(text string) string {
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

// harmlessLines is harmless for JSON Lines that somebody else writes.
type harmlessLines struct {
	w    io.Writer
	rest []byte // of a line without its end
}

// Write implements [io.Writer].
func (h *harmlessLines) Write(p []byte) (int, error) {
	h.rest = append(h.rest, p...)
	end := bytes.LastIndexByte(h.rest, '\n') + 1
	if end > 0 {
		if _, err := io.WriteString(h.w, harmless(string(h.rest[:end]))); err != nil {
			return 0, err
		}
		h.rest = append(h.rest[:0], h.rest[end:]...)
	}
	return len(p), nil
}
