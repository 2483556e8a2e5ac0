package cli

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

// grid is a borderless table with two spaces between its columns.
type grid struct {
	w      table.Writer
	colour bool
}

// state is a word with its own colour: the status of a task, the reason of a dead letter, or a finding.
type state string

// warning is a text in red.
type warning string

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

func newGrid(colour bool, columns []string) *grid {
	enableColours()
	w := table.NewWriter()
	style := table.StyleDefault
	style.Options = table.OptionsNoBordersAndSeparators
	style.Box.PaddingLeft, style.Box.PaddingRight = "", "  "
	style.Format.Header = text.FormatDefault
	if colour {
		style.Color.Header = text.Colors{text.Bold}
	}
	w.SetStyle(style)
	w.SuppressTrailingSpaces()
	if len(columns) > 0 {
		header := make(table.Row, len(columns))
		for i, c := range columns {
			header[i] = c
		}
		w.AppendHeader(header)
	}
	return &grid{w, colour}
}

// add adds a row. It escapes control characters and aligns numbers right.
func (g *grid) add(cells []any) {
	row := make(table.Row, len(cells))
	for i, c := range cells {
		switch v := c.(type) {
		case int, int64, float64:
			row[i] = v
		case time.Time:
			row[i] = timeText(v)
		case warning:
			row[i] = visible(string(v))
			if g.colour {
				row[i] = text.FgRed.Sprint(row[i])
			}
		case state:
			row[i] = visible(string(v))
			if c, ok := colours[v]; ok && g.colour {
				row[i] = c.Sprint(string(v))
			}
		default:
			row[i] = visible(fmt.Sprint(v))
		}
	}
	g.w.AppendRow(row)
}

// alignRight aligns columns to the right. Columns are counted from 1.
func (g *grid) alignRight(columns ...int) {
	configs := make([]table.ColumnConfig, len(columns))
	for i, n := range columns {
		configs[i] = table.ColumnConfig{Number: n, Align: text.AlignRight, AlignHeader: text.AlignRight}
	}
	g.w.SetColumnConfigs(configs)
}

func (g *grid) text() string {
	if g.w.Length() == 0 {
		return ""
	}
	return g.w.Render() + "\n"
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

func (c *details) print(p *printer) error {
	g := newGrid(p.colour(p.OutTerminal), nil)
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
	return p.write(strings.Join(parts, "\n"))
}
