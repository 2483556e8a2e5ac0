package adaptertest

import (
	"fmt"
	"maps"
	"os"
	"reflect"
	"regexp"
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
//	| `OrderFirstAttempts`: messages of one key run in order | yes | no: a queue has no keys ([docs](https://...)) |
//
// A cell begins with yes or no, in small letters. A no has a reason and a link to
// the broker's documentation.
func CheckTable(t *testing.T, markdownFile, column string, f Features) {
	t.Helper()
	text, err := os.ReadFile(markdownFile)
	if err != nil {
		t.Fatal(err)
	}
	for _, problem := range tableProblems(string(text), column, f) {
		t.Errorf("%s: %s", markdownFile, problem)
	}
}

// tableProblems returns the problems of the table.
func tableProblems(text, column string, f Features) (problems []string) {
	say := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	_, table, _ := strings.Cut("\n"+text, "\n| "+firstColumn+" |")
	head, rest, _ := strings.Cut(table, "\n")
	at := slices.Index(cellsOf(head), column)
	if at < 0 {
		say("no table with the first column %q and another column %q", firstColumn, column)
		return problems
	}
	_, rest, _ = strings.Cut(rest, "\n") // the line below the headings
	missing := make(map[string]bool)
	for field := range reflect.TypeFor[Features]().Fields() {
		missing[field.Name] = field.Name != "Refuse" // Refuse is no guarantee
	}
	for line := range strings.Lines(rest) {
		first, more, ok := strings.Cut(strings.TrimPrefix(line, "| "), " |")
		if !ok {
			break // the end of the table
		}
		name, _, _ := strings.Cut(strings.TrimPrefix(first, "`"), "`")
		if isMissing, known := missing[name]; !isMissing {
			say("the row %q names no field of Features, or there are two rows: %t", first, known)
			continue
		}
		missing[name] = false
		cells := cellsOf(more)
		if at >= len(cells) {
			say("%s has no cell for %s", name, column)
			continue
		}
		word := leadingWord.FindString(cells[at])
		switch claims := f.has(name); {
		case word != "yes" && word != "no":
			say("%s: the cell for %s begins with neither yes nor no: %q", name, column, cells[at])
		case claims != (word == "yes"):
			say("%s: the harness of %s claims %t, the table says %s", name, column, claims, word)
		case !claims && !strings.Contains(cells[at], "](https://"):
			say("%s: the no of %s has no link to its documentation: %q", name, column, cells[at])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(missing)) {
		if missing[name] {
			say("%s has no row", name)
		}
	}
	return problems
}

var leadingWord = regexp.MustCompile(`^[a-z]*`)

// cellsOf returns the cells of a row behind the first.
func cellsOf(row string) []string {
	cells := strings.Split(strings.TrimSuffix(strings.TrimSpace(row), "|"), "|")
	for i := range cells {
		cells[i] = strings.TrimSpace(cells[i])
	}
	return cells
}
