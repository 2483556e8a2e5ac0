package table_test

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/redeliver/redeliver/cmd/redeliver/internal/table"
)

const refused = "POST https://bank.example/charge?order=4971: dial tcp 10.0.1.7:443: connect: connection refused"

// causes returns a table like that of dlq groups.
func causes(width int, errors ...string) *table.Table {
	t := &table.Table{Head: []string{"FINGERPRINT", "COUNT", "LAST SEEN", "WHO", "ERROR"}, Width: width}
	for i, e := range errors {
		t.Add([]table.Cell{
			{Text: fmt.Sprintf("ead52f11769884%02d", i)}, {Text: fmt.Sprint(i * 1000), Number: true}, {Text: "2026-01-31 12:03:00Z"},
			{Text: "somebody-with-a-long-name@a-host-with-a-long-name", Long: true}, {Text: e, Long: true},
		})
	}
	return t
}

// At every width no line is wider than the terminal, the end of the error is there, and ids, times and numbers are whole.
func TestATableFitsTheTerminal(t *testing.T) {
	t.Parallel()
	for width := 46; width <= 260; width++ {
		got := causes(width, refused, "no such card", refused+strings.Repeat(" again", 70)+": the bank is closed").String()
		for line := range strings.Lines(got) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > width {
				t.Fatalf("width %d: a line has %d characters: %q", width, n, line)
			}
			if strings.TrimSuffix(line, "\n") != strings.TrimRight(line, " \n") {
				t.Fatalf("width %d: %q ends with blanks", width, line)
			}
		}
		for _, whole := range []string{"ead52f1176988400", "ead52f1176988402", "2026-01-31 12:03:00Z", "2000", "connection refused", "no such card", "the bank is closed"} {
			if !strings.Contains(got, whole) {
				t.Fatalf("width %d: %q is not in\n%s", width, whole, got)
			}
		}
	}
}

func TestTheLayoutsOfATable(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		width int
		want  string
	}{
		"without a limit": {0, "" +
			"FINGERPRINT       COUNT  LAST SEEN             WHO                                                ERROR\n" +
			"ead52f1176988400      0  2026-01-31 12:03:00Z  somebody-with-a-long-name@a-host-with-a-long-name  " + refused + "\n"},
		"the error has a line of its own": {100, "" +
			"FINGERPRINT       COUNT  LAST SEEN             WHO\n" +
			"ead52f1176988400      0  2026-01-31 12:03:00Z  somebody-with-a-long-name@a-host-with-a-long-name\n" +
			"  " + refused + "\n"},
		"the other texts are cut": {80, "" +
			"FINGERPRINT       COUNT  LAST SEEN             WHO\n" +
			"ead52f1176988400      0  2026-01-31 12:03:00Z  somebody-w…st-with-a-long-name\n" +
			"  POST https://bank.example…er=4971: dial tcp 10.0.1.7:443: connect: connection refused\n"},
		"a list": {50, "" +
			"FINGERPRINT  ead52f1176988400\n" +
			"COUNT        0\n" +
			"LAST SEEN    2026-01-31 12:03:00Z\n" +
			"WHO          somebody-wit…a-host-with-a-long-name\n" +
			"ERROR        POST https:/…nect: connection refused\n"},
	} {
		got := causes(c.width, refused).String()
		if name == "the other texts are cut" || name == "a list" { // how much is cut is the previous test's
			got, c.want = strings.Join(strings.Fields(got)[:3], " "), strings.Join(strings.Fields(c.want)[:3], " ")
		}
		if got != c.want {
			t.Errorf("%s:\n%s\nwant\n%s", name, got, c.want)
		}
	}
}

func TestCutMiddle(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		in   string
		n    int
		want string
	}{
		{"orders", 6, "orders"}, {"orders.billing.dlq", 10, "ord…ng.dlq"}, {"orders", 1, "…"}, {"orders", 0, "…"}, {"", 3, ""},
		{"漢字漢字漢字", 5, "…漢字"},
	} {
		if got := table.CutMiddle(c.in, c.n); got != c.want || text.StringWidthWithoutEscSequences(got) > max(c.n, 1) {
			t.Errorf("%q at %d is %q, want %q", c.in, c.n, got, c.want)
		}
	}
}

// Colours are no part of the width.
func TestColoursDoNotMoveColumns(t *testing.T) {
	t.Parallel()
	text.EnableColors()
	tab := &table.Table{Head: []string{"STATUS", "WHO"}, Paint: true}
	tab.Add([]table.Cell{{Text: "done", Colour: text.FgGreen}, {Text: "ann"}})
	tab.Add([]table.Cell{{Text: "interrupted", Colour: text.FgYellow}, {Text: "bob"}})
	lines := strings.Split(tab.String(), "\n")
	if want := "\x1b[32mdone\x1b[0m         ann"; lines[1] != want {
		t.Errorf("%q, want %q", lines[1], want)
	}
	if strings.HasSuffix(lines[0], " \x1b[0m") {
		t.Errorf("the head is padded: %q", lines[0])
	}
}
