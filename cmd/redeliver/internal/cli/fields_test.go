package cli

import (
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/redeliver/redeliver/deadletter"
)

// The table of output fields in docs/reference/command.md has exactly the fields of the types that the verbs print.
func TestTheDocumentedFieldsExist(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../../docs/reference/command.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "| verb | fields |")
	printed := map[string]any{
		"`run`": handlingRow{}, "`publish`": publishedRow{}, "`dlq list`": queueRow{}, "`dlq check`": checkRow{}, "`dlq groups`": groupRow{}, "`dlq show`": messageRow{}, "`dlq replay`": forecastRow{},
		"`dlq edit": diffRow{}, "`dlq import": importRow{}, "tasks ": taskRow{}, "`--results`": resultRow{}, "`plan`": planRow{}, "`doctor`": doctorRow{},
		"`console`": consoleRow{}, "`ready`": readyRow{}, "`top`": topRow{}, "`init`": initRow{}, "`version`": versionRow{},
	}
	for verb, row := range printed {
		i := strings.Index(table, "\n| "+verb)
		if i < 0 {
			t.Errorf("%s has no row", verb)
			continue
		}
		line, _, _ := strings.Cut(table[i+1:], "\n")
		cells := strings.Split(line, " | ")
		var documented []string
		for _, m := range regexp.MustCompile("`([a-z_]+)`").FindAllStringSubmatch(cells[1], -1) {
			documented = append(documented, m[1])
		}
		own, nested := fieldsOf(reflect.TypeOf(row))
		for _, name := range own {
			if !slices.Contains(documented, name) && verb != "`dlq check`" { // its row refers to that of list
				t.Errorf("%s: the page lacks %s", verb, name)
			}
		}
		for _, name := range nested { // another row may describe it
			if !strings.Contains(table, "`"+name+"`") {
				t.Errorf("%s: the page lacks the inner field %s", verb, name)
			}
		}
		known := slices.Concat(own, nested, []string{"forever", "list"}) // a value, and a verb
		for _, name := range documented {
			if !slices.Contains(known, name) {
				t.Errorf("%s: no field has the name %s", verb, name)
			}
		}
	}
}

// fieldsOf returns the JSON names of the fields of a type, and of the types in them. It stays in this package, apart
// from the types that command.md describes.
func fieldsOf(of reflect.Type) (own, nested []string) {
	for f := range of.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name != "" && name != "-" {
			own = append(own, name)
		}
		inner := f.Type
		for inner.Kind() == reflect.Pointer || inner.Kind() == reflect.Slice {
			inner = inner.Elem()
		}
		described := inner.PkgPath() == of.PkgPath() || inner == reflect.TypeFor[deadletter.Counts]() || inner == reflect.TypeFor[deadletter.Cause]()
		switch {
		case inner.Kind() != reflect.Struct || !described && !f.Anonymous:
		case f.Anonymous:
			more, deeper := fieldsOf(inner)
			own, nested = append(own, more...), append(nested, deeper...)
		default:
			more, deeper := fieldsOf(inner)
			nested = slices.Concat(nested, more, deeper)
		}
	}
	return own, nested
}
