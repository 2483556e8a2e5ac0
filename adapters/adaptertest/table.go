package adaptertest

import (
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// firstColumn is the heading of the guarantee table's first column.
const firstColumn = "Guarantee"

// CheckTable compares a column of the guarantee table in a Markdown file with the
// features of that broker's harness. The table is the one whose first heading is
// "Guarantee". It has a row for each field of [Features] except Refuse, which
// begins with the field's name as code, and a column for each broker:
//
//	| Guarantee | Kafka | RabbitMQ |
//	| --- | --- | --- |
//	| `KeyOrder`: messages of one key run in order | yes | no: a queue has no keys ([docs](https://...)) |
//
// A cell begins with yes or no, in small letters. A no has a reason and a link to
// the broker's documentation.
func CheckTable(t *testing.T, markdownFile, column string, f Features) {
	t.Helper()
	text, err := os.ReadFile(markdownFile)
	if err != nil {
		t.Fatal(err)
	}
	for _, problem := range checkTable(string(text), column, f) {
		t.Errorf("%s: %s", markdownFile, problem)
	}
}

// checkTable returns the problems of the table.
func checkTable(text, column string, f Features) (problems []string) {
	say := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	head, rows := table(text)
	at := slices.Index(head, column)
	if at < 0 {
		say("no table of which the first column is %q and another %q", firstColumn, column)
		return problems
	}
	seen := make(map[string]bool)
	for _, row := range rows {
		name, _, ok := strings.Cut(strings.TrimPrefix(row[0], "`"), "`")
		if !ok || !slices.Contains(names(), name) {
			say("the row %q begins with no field of Features as code", row[0])
			continue
		}
		if seen[name] {
			say("%s has two rows", name)
		}
		seen[name] = true
		if at >= len(row) {
			say("%s has no cell for %s", name, column)
			continue
		}
		cell := row[at]
		word := strings.FieldsFunc(cell+" ", func(r rune) bool { return r < 'a' || r > 'z' })
		switch claims := f.has(name); {
		case len(word) == 0 || word[0] != "yes" && word[0] != "no" || !strings.HasPrefix(cell, word[0]):
			say("%s: the cell for %s begins with neither yes nor no: %q", name, column, cell)
		case claims != (word[0] == "yes"):
			say("%s: the harness of %s claims %t, the table says %s", name, column, claims, word[0])
		case !claims && !strings.Contains(cell, "](https://"):
			say("%s: the no of %s has no link to its documentation: %q", name, column, cell)
		}
	}
	for _, name := range names() {
		if !seen[name] {
			say("%s has no row", name)
		}
	}
	return problems
}

// names returns the features in the table. Refuse concerns only the harness.
func names() []string {
	var all []string
	for field := range reflect.TypeFor[Features]().Fields() {
		if field.Name != "Refuse" {
			all = append(all, field.Name)
		}
	}
	return all
}

// table returns the cells of the guarantee table. It ends with the first line that is not a row.
func table(text string) (head []string, rows [][]string) {
	for line := range strings.Lines(text) {
		cells := cellsOf(line)
		switch {
		case head == nil:
			if len(cells) > 0 && cells[0] == firstColumn {
				head = cells
			}
		case cells == nil:
			return head, rows
		case strings.Trim(cells[0], "-: ") == "":
			// the line below the headings
		default:
			rows = append(rows, cells)
		}
	}
	return head, rows
}

// cellsOf returns a row's cells, or nil for a line that is not a row.
func cellsOf(line string) []string {
	line = strings.TrimSpace(line)
	inner, ok := strings.CutPrefix(line, "|")
	if !ok {
		return nil
	}
	cells := strings.Split(strings.TrimSuffix(inner, "|"), "|")
	for i := range cells {
		cells[i] = strings.TrimSpace(cells[i])
	}
	return cells
}
