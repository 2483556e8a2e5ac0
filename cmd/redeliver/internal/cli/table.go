package cli

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/redeliver/redeliver/cmd/redeliver/internal/table"
)

// grid is a table of values.
type grid struct{ t *table.Table }

// state is a word with its own colour: the status of a task, the reason of a dead letter, or a finding.
type state string

// warning is a text in red.
type warning string

// longText is a text whose middle may be left out, such as an error. In a terminal it is cut to what fits.
type longText string

// maxLongText bounds a longText where the width is not limited, in characters.
const maxLongText = 160

var colours = map[state]text.Color{
	"done": text.FgGreen, "removed": text.FgGreen, "yes": text.FgGreen,
	"running": text.FgCyan, "active": text.FgCyan,
	"paused": text.FgYellow, "stopped": text.FgYellow, "interrupted": text.FgYellow, "skipped": text.FgYellow, "mismatch": text.FgYellow,
	"exhausted": text.FgYellow, "timeout": text.FgYellow, "expired": text.FgYellow, "invalidated": text.FgYellow, "rejected": text.FgYellow,
	"permanent": text.FgRed, "panic": text.FgRed, "crashed": text.FgRed, "undecodable": text.FgRed, "unschedulable": text.FgRed,
	"failed": text.FgRed, "refused": text.FgRed, "no": text.FgRed,
}

// enableColours makes the library write the colours that a table asks for. Otherwise it would check the environment,
// which the method colour has already done. The setting is global, so it is set once.
var enableColours = sync.OnceFunc(text.EnableColors)

// newGrid returns a grid of any width; fitted grids are lists.
func newGrid(colour bool, columns []string) *grid {
	enableColours()
	return &grid{&table.Table{Head: columns, Paint: colour}}
}

// add adds a row. It escapes control characters and aligns numbers right.
func (g *grid) add(cells []any) {
	row := make([]table.Cell, len(cells))
	for i, c := range cells {
		one := table.Cell{}
		switch v := c.(type) {
		case int, int64, float64:
			one.Text, one.Number = fmt.Sprint(v), true
		case time.Time:
			one.Text = timeText(v)
		case warning:
			one.Text, one.Colour = visible(string(v)), text.FgRed
		case longText:
			one.Text, one.Long = visible(string(v)), true
			if g.t.Width == 0 {
				one.Text = table.CutMiddle(one.Text, maxLongText)
			}
		case state:
			one.Text, one.Colour = visible(string(v)), colours[v]
		default:
			one.Text = visible(fmt.Sprint(v))
		}
		row[i] = one
	}
	g.t.Add(row)
}

// alignRight aligns columns to the right. Columns are counted from 1.
func (g *grid) alignRight(columns ...int) {
	for _, n := range columns {
		g.t.Right = append(g.t.Right, n-1)
	}
}

func (g *grid) text() string {
	if g.t.Len() == 0 {
		return ""
	}
	return g.t.String()
}

// timeText formats a time. It uses UTC, because times are compared with the logs of many hosts.
func timeText(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format("2006-01-02 15:04:05Z")
}

// details are one object for display: labels with values, followed by texts with headings.
type details struct {
	lines []any // pairs of a label and a value
	texts []string
}

// line adds a value unless it is empty.
func (c *details) line(label string, value any) {
	if t, ok := value.(time.Time); ok && t.IsZero() || value == "" || value == state("") || value == nil {
		return
	}
	c.lines = append(c.lines, label, value)
}

// text adds lines under a heading. They must be escaped already.
func (c *details) text(heading, text string) {
	c.texts = append(c.texts, heading+"\n"+indent(strings.TrimSuffix(text, "\n"))+"\n")
}

// table adds a table under a heading.
func (c *details) table(heading string, g *grid) {
	if text := g.text(); text != "" {
		c.text(heading, text)
	}
}

func (c *details) print(p *printer) error { return p.write(c.render(p.colour(p.OutTerminal))) }

// String returns the text without colours.
func (c *details) String() string { return c.render(false) }

func (c *details) render(colour bool) string {
	g := newGrid(colour, nil)
	for i := 0; i < len(c.lines); i += 2 {
		value := c.lines[i+1]
		if t, ok := value.(time.Time); ok {
			value = timeText(t)
		}
		if _, ok := value.(state); !ok {
			value = fmt.Sprint(value) // aligns numbers left
		}
		g.add([]any{c.lines[i], value})
	}
	parts := c.texts
	if len(c.lines) > 0 {
		parts = append([]string{g.text()}, parts...)
	}
	return strings.Join(parts, "\n")
}
