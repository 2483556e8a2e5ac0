package cli

import (
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/avro"
)

// A body of 60 KB once became 3 GB, because the items of its arrays have no bytes.
func TestSchemasThatMakeTooMuchOfABodyAreRefused(t *testing.T) {
	t.Parallel()
	nulls := func(n int) string {
		var fields []string
		for i := range n {
			fields = append(fields, fmt.Sprintf(`{"name":"f%d","type":"null"}`, i))
		}
		return strings.Join(fields, ",")
	}
	item := func(fields string) string { return `{"type":"record","name":"Item","fields":[` + fields + `]}` }
	array := func(items string) string { return `{"type":"array","items":` + items + `}` }
	for name, c := range map[string]struct {
		schema string
		fine   bool
	}{
		"orders":                    {item(`{"name":"items","type":` + array(`{"type":"record","name":"Line","fields":[{"name":"sku","type":"string"},{"name":"n","type":"int"}]}`) + `}`), true},
		"optional fields":           {array(item(`{"name":"one","type":["null","string"]},{"name":"other","type":["null","long"]}`)), true},
		"a list":                    {item(`{"name":"next","type":["null","Item"]},{"name":"n","type":"double"}`), true},
		"an enumeration":            {array(`{"type":"enum","name":"Color","symbols":["RED","BLUE"]}`), true},
		"a record without bytes":    {item(nulls(3)), true},
		"a map":                     {`{"type":"map","values":"null"}`, true}, // its keys have bytes
		"nulls":                     {array(array(`"null"`)), false},
		"empty records":             {array(item("")), false},
		"records of nulls":          {array(item(nulls(5))), false},
		"empty fixed values":        {array(`{"type":"fixed","name":"F","size":0}`), false},
		"a byte and many nulls":     {array(item(`{"name":"n","type":"int"},` + nulls(1000))), false},
		"a list of many nulls":      {item(`{"name":"next","type":["null","Item"]},` + nulls(1000)), false},
		"a map of many nulls":       {`{"type":"map","values":` + item(nulls(1000)) + `}`, false},
		"a long name":               {array(item(`{"name":"` + strings.Repeat("x", 5000) + `","type":"int"}`)), false},
		"a long value":              {array(`{"type":"enum","name":"Color","symbols":["` + strings.Repeat("X", 5000) + `"]}`), false},
		"a union with a bad record": {array(`["null","string",` + item(nulls(1000)) + `]`), false},
		"a name for nulls":          {item(`{"name":"a","type":{"type":"record","name":"B","fields":[` + nulls(3) + `]}},{"name":"b","type":` + array(`"B"`) + `}`), false},
	} {
		schema, err := avro.Parse(c.schema)
		if err != nil {
			if !c.fine {
				continue // the library refuses it
			}
			t.Fatalf("%s: %v", name, err)
		}
		if err := checkAvro(schema); (err == nil) != c.fine {
			t.Errorf("%s: %v", name, err)
		}
	}
}
