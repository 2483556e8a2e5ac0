// Package table lays out rows of text in columns, so that the lines fit into a terminal.
//
// A table that is too wide loses, in this order: the middle of its last column, if that is long text and enough of it
// remains; the last column, which gets a line of its own below its row; the middle of the other long texts. If that is
// not enough, each row becomes a list of headings and values. Other texts, such as names, times and numbers, are never cut,
// because people copy and compare them.
package table

import (
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/text"
)

// Cell is one value.
type Cell struct {
	Text   string
	Number bool // aligned to the right
	Long   bool // its middle may be left out
	Colour text.Color
}

// Table is a table without borders. Its columns have two spaces between them.
type Table struct {
	Head  []string // may be empty
	Width int      // of the terminal; 0 for no limit
	Paint bool     // with colours
	Right []int    // indexes of further columns that are aligned to the right
	rows  [][]Cell
}

const (
	gap = "  "
	// minLast is the least room for the last column; with less it gets lines of its own.
	minLast = 60
	// minLong is the least room for any other long text.
	minLong = 12
)

// Add adds a row.
func (t *Table) Add(row []Cell) { t.rows = append(t.rows, row) }

// Len returns the number of rows.
func (t *Table) Len() int { return len(t.rows) }

// Lines returns the line of the headings, or nil, and the lines of each row.
func (t *Table) Lines() (head []string, rows [][]string) {
	widths, below, ok := t.fit()
	if !ok {
		return nil, t.lists()
	}
	n := len(widths)
	if len(t.Head) > 0 {
		cells := make([]Cell, n)
		for i := range cells {
			cells[i].Text = t.Head[i]
		}
		line := t.line(cells, widths)
		if t.Paint {
			line = text.Bold.Sprint(line)
		}
		head = []string{line}
	}
	for _, row := range t.rows {
		lines := []string{t.line(row[:min(n, len(row))], widths)}
		if below && len(row) > n && row[n].Text != "" {
			lines = append(lines, gap+t.painted(row[n], CutMiddle(row[n].Text, t.Width-len(gap))))
		}
		rows = append(rows, lines)
	}
	return head, rows
}

// String returns all lines, each with its end.
func (t *Table) String() string {
	head, rows := t.Lines()
	var b strings.Builder
	for _, lines := range append([][]string{head}, rows...) {
		for _, line := range lines {
			b.WriteString(line + "\n")
		}
	}
	return b.String()
}

// fit returns the widths of the columns. below reports whether the last column is not among them. ok is false if the
// columns do not fit.
func (t *Table) fit() (widths []int, below, ok bool) {
	long := make([]bool, t.columns())
	widths = make([]int, len(long))
	for i, h := range t.Head {
		widths[i] = width(h)
	}
	for _, row := range t.rows {
		for i, c := range row {
			widths[i] = max(widths[i], width(c.Text))
			long[i] = long[i] || c.Long
		}
	}
	if t.Width <= 0 || len(t.Head) == 0 || sum(widths) <= t.Width {
		return widths, false, true
	}
	last := len(widths) - 1
	if long[last] {
		room := t.Width - (sum(widths) - widths[last])
		if room >= minLast {
			widths[last] = room
			return widths, false, true
		}
		widths, below = widths[:last], true
	}
	for i := range widths {
		if over := sum(widths) - t.Width; over > 0 && long[i] {
			widths[i] = max(widths[i]-over, min(minLong, widths[i]), width(t.Head[i]))
		}
	}
	return widths, below, sum(widths) <= t.Width
}

// columns returns the number of columns.
func (t *Table) columns() int {
	n := len(t.Head)
	for _, row := range t.rows {
		n = max(n, len(row))
	}
	return n
}

// sum returns the width of a line.
func sum(widths []int) int {
	n := 0
	for _, w := range widths {
		n += w + len(gap)
	}
	return max(0, n-len(gap))
}

// line returns the line of some cells, without blanks at its end.
func (t *Table) line(row []Cell, widths []int) string {
	var b strings.Builder
	for i, c := range row {
		short := c.Text
		if width(short) > widths[i] {
			short = CutMiddle(short, widths[i])
		}
		blanks := strings.Repeat(" ", max(0, widths[i]-width(short)))
		if i > 0 {
			b.WriteString(gap)
		}
		if t.toTheRight(i) {
			b.WriteString(blanks + t.painted(c, short))
		} else {
			b.WriteString(t.painted(c, short) + blanks)
		}
	}
	return strings.TrimRight(b.String(), " ")
}

// toTheRight reports whether a column is aligned to the right: all its cells are numbers, or Right has it.
func (t *Table) toTheRight(column int) bool {
	if slices.Contains(t.Right, column) {
		return true
	}
	for _, row := range t.rows {
		if column >= len(row) || !row[column].Number {
			return false
		}
	}
	return len(t.rows) > 0
}

func (t *Table) painted(c Cell, short string) string {
	if !t.Paint || c.Colour == 0 {
		return short
	}
	return c.Colour.Sprint(short)
}

// lists returns each row as a list of headings and values, with an empty line between two rows.
func (t *Table) lists() (rows [][]string) {
	widest := 0
	for _, h := range t.Head {
		widest = max(widest, width(h))
	}
	for n, row := range t.rows {
		var lines []string
		if n > 0 {
			lines = append(lines, "")
		}
		for i, c := range row {
			if c.Text == "" {
				continue
			}
			short := c.Text
			if room := t.Width - widest - len(gap); c.Long && room >= minLong {
				short = CutMiddle(short, room)
			}
			heading := t.Head[i] + strings.Repeat(" ", widest-width(t.Head[i]))
			if t.Paint {
				heading = text.Bold.Sprint(heading)
			}
			lines = append(lines, heading+gap+t.painted(c, short))
		}
		rows = append(rows, lines)
	}
	return rows
}

func width(s string) int { return text.StringWidthWithoutEscSequences(s) }

// CutMiddle leaves out the middle of a text that is wider than maxWidth. It keeps more of the end: an error wraps its cause, and the
// topics of one company often begin alike.
func CutMiddle(s string, maxWidth int) string {
	if width(s) <= maxWidth {
		return s
	}
	if maxWidth <= 1 {
		return "…"
	}
	runes := []rune(s)
	room := maxWidth - 1
	head, used := 0, 0
	for head < len(runes) && used+runeWidth(runes[head]) <= maxWidth/3 {
		used += runeWidth(runes[head])
		head++
	}
	tail := len(runes)
	for tail > head && used+runeWidth(runes[tail-1]) <= room {
		used += runeWidth(runes[tail-1])
		tail--
	}
	return string(runes[:head]) + "…" + string(runes[tail:])
}

func runeWidth(r rune) int { return text.RuneWidth(r) }
