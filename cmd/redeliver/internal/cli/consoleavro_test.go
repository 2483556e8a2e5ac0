package cli

import (
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/avro"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/types/descriptorpb"
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

// A field of two bytes becomes its name in JSON.
func TestLongNamesInProtobufAreRefused(t *testing.T) {
	t.Parallel()
	short, long := strings.Repeat("x", maxNameSize), strings.Repeat("x", maxNameSize+1)
	field := `field {name:%q json_name:%q number:1 type:TYPE_INT32 label:LABEL_REPEATED}`
	enum := `enum_type {name:"E" value {name:%q number:0}}`
	for name, c := range map[string]struct {
		schema string
		fine   bool
	}{
		"short names":             {`message_type {name:"M" ` + fmt.Sprintf(field, short, short) + `}`, true},
		"a field":                 {`message_type {name:"M" ` + fmt.Sprintf(field, long, "x") + `}`, false},
		"a field's name in JSON":  {`message_type {name:"M" ` + fmt.Sprintf(field, "x", long) + `}`, false},
		"a field of a nested one": {`message_type {name:"M" nested_type {name:"N" ` + fmt.Sprintf(field, long, "x") + `}}`, false},
		"a value":                 {fmt.Sprintf(enum, long), false},
		"a value of a nested one": {`message_type {name:"M" ` + fmt.Sprintf(enum, long) + `}`, false},
	} {
		var d descriptorpb.FileDescriptorProto
		if err := prototext.Unmarshal([]byte(`name:"main.proto" syntax:"proto3" `+c.schema), &d); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		file, err := protodesc.NewFile(&d, nil)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := checkNames(file.Messages(), file.Enums()); (err == nil) != c.fine {
			t.Errorf("%s: %v", name, err)
		}
	}
}
