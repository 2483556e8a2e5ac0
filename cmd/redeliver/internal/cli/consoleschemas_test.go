package cli_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/twmb/avro"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/redeliver/redeliver"
)

// newRegistry serves the schemas 1 (Avro, which refers to another), 2 (Protobuf, which imports another file and has nested
// types) and 3 (JSON) to a user with the password.
func newRegistry(t *testing.T) string {
	t.Helper()
	type object = map[string]any
	field := func(name string, number int32, of string) *descriptorpb.FieldDescriptorProto {
		f := &descriptorpb.FieldDescriptorProto{Name: &name, Number: &number, Label: descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum(), Type: descriptorpb.FieldDescriptorProto_TYPE_INT64.Enum()}
		if of != "" {
			f.Type, f.TypeName = descriptorpb.FieldDescriptorProto_TYPE_MESSAGE.Enum(), &of
		}
		return f
	}
	file := func(name string, imports []string, types ...*descriptorpb.DescriptorProto) string {
		raw, err := proto.Marshal(&descriptorpb.FileDescriptorProto{Name: &name, Package: new("shop"), Syntax: new("proto3"), Dependency: imports, MessageType: types})
		if err != nil {
			t.Fatal(err)
		}
		return base64.StdEncoding.EncodeToString(raw)
	}
	money := file("money.proto", nil, &descriptorpb.DescriptorProto{Name: new("Money"), Field: []*descriptorpb.FieldDescriptorProto{field("cents", 1, "")}})
	order := file("order.proto", []string{"money.proto", "google/protobuf/timestamp.proto"},
		&descriptorpb.DescriptorProto{Name: new("Order"), Field: []*descriptorpb.FieldDescriptorProto{field("sum", 1, ".shop.Money"), field("at", 2, ".google.protobuf.Timestamp")}},
		&descriptorpb.DescriptorProto{Name: new("Other"), NestedType: []*descriptorpb.DescriptorProto{{Name: new("Inner"), Field: []*descriptorpb.FieldDescriptorProto{field("n", 1, "")}}}})
	refers := func(name string) []object { return []object{{"name": name, "subject": name, "version": 1}} }
	answers := map[string]object{
		"/schemas/ids/1":                              {"schema": `{"type":"record","name":"shop.Order","fields":[{"name":"sum","type":"shop.Money"},{"name":"id","type":"long"}]}`, "references": refers("shop.Money")},
		"/subjects/shop.Money/versions/1":             {"schema": `{"type":"record","name":"shop.Money","fields":[{"name":"cents","type":"long"}]}`},
		"/schemas/ids/2":                              {"schemaType": "PROTOBUF", "schema": "syntax"},
		"/schemas/ids/2 serialized":                   {"schemaType": "PROTOBUF", "schema": order, "references": refers("money.proto")},
		"/subjects/money.proto/versions/1 serialized": {"schemaType": "PROTOBUF", "schema": money},
		"/schemas/ids/3":                              {"schemaType": "JSON", "schema": "{}"},
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, ok := answers[strings.TrimSpace(r.URL.Path+" "+r.URL.Query().Get("format"))]
		if _, given, _ := r.BasicAuth(); !ok || given != password {
			http.NotFound(w, r)
			return
		}
		_ = json.NewEncoder(w).Encode(answer)
	}))
	t.Cleanup(server.Close)
	return strings.Replace(server.URL, "http://", "http://ann:"+password+"@", 1)
}

// Bodies in the wire format of a schema registry are shown as JSON. Other binary bodies are not.
func TestConsoleDecodesBodies(t *testing.T) {
	t.Parallel()
	k := newTestKafka(t)
	root := avro.MustParse(`{"type":"record","name":"shop.Order","fields":[{"name":"sum","type":{"type":"record","name":"shop.Money","fields":[{"name":"cents","type":"long"}]}},{"name":"id","type":"long"}]}`)
	order, err := root.Encode(map[string]any{"sum": map[string]any{"cents": 110}, "id": int64(9007199254740993)})
	if err != nil {
		t.Fatal(err)
	}
	bodies := []string{
		"\x00\x00\x00\x00\x01" + string(order),
		"\x00\x00\x00\x00\x02\x00" + "\x0a\x02\x08\x6e" + "\x12\x02\x08\x3c", // the first type: sum.cents = 110, at.seconds = 60
		"\x00\x00\x00\x00\x02\x04\x02\x00" + "\x08\x07",                      // two indexes, 1 and 0: Other.Inner
		"\x00\x00\x00\x00\x03" + `{"id":5}`,
		"\x00\x00\x00\x00\x07rest",
		"\x00\x00\x00\x00\x01",
		"\x00\x00\x00\x00\x02\x02\x0a",
		"\xff\x00\x00\x00\x01",
	}
	for i, body := range bodies {
		rec := dead(i, 0, redeliver.State{})
		rec.Value = []byte(body)
		k.put(rec)
	}
	s := serve(t, map[string]string{"REDELIVER_SCHEMA_REGISTRY": newRegistry(t)}, "--broker", k.url)
	for i, want := range []string{
		"Avro, schema 1, shop.Order|&#34;cents&#34;: 110|&#34;id&#34;: 9007199254740993",
		"Protobuf, schema 2, shop.Order|&#34;cents&#34;: &#34;110&#34;|1970-01-01T00:01:00Z",
		"Protobuf, schema 2, shop.Other.Inner|&#34;n&#34;: &#34;7&#34;",
		"JSON, schema 3|&#34;id&#34;: 5",
		"schema 7: the registry answers 404",
		"not decoded: Avro, schema 1: ",
		"the schema has no type 5",
		"5 B, binary",
	} {
		_, _, page := s.ask(nil, fmt.Sprintf("message?dlq=%s&at=0/%d", dlq, i))
		for text := range strings.SplitSeq(want, "|") {
			if !strings.Contains(page, text) {
				t.Errorf("the page of body %d lacks %q:\n%s", i, text, page)
			}
		}
		if strings.Contains(page, password) {
			t.Errorf("the page of body %d has the password of the registry", i)
		}
	}
	s.end()
}
