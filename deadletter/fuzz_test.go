package deadletter

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"testing"
)

// FuzzImport takes the lines of an export. A line that is accepted can be exported again unchanged.
func FuzzImport(f *testing.F) {
	f.Add([]byte(`{"dlq":"orders.billing.dlq","origin":"orders","group":"billing","id":"o-1","position":"0/7","time":"2026-01-31T12:00:00Z","key":null,"body":"eA==","headers":[{"name":"a","value":""},{"name":"a","value":null}],"state":[{"name":"redeliver-attempt","value":"4"}]}`))
	f.Add([]byte(`{"origin":"orders","group":"billing","id":"1","state":[{"name":"redeliver-group","value":"other"}]}` + "\n{"))
	f.Add([]byte(`{"origin":"orders","group":"billing","id":"1","state":[{"name":"redeliver-due","value":"never"}]}`))
	f.Add([]byte(`{"origin":"refunds","group":"billing","id":"1"}`))
	f.Add([]byte("null\n[]"))
	info := Info{DLQ: "orders.billing.dlq", Origin: "orders", Group: "billing"}
	f.Fuzz(func(t *testing.T, text []byte) {
		in := importer{info: info, dec: json.NewDecoder(bytes.NewReader(text))}
		batch, err := in.gather()
		if err == nil && len(batch) < DefaultWindow || errors.Is(err, io.EOF) && in.n != len(batch)+1 {
			t.Fatalf("%d objects became %d messages, %v", in.n, len(batch), err)
		}
		for _, m := range batch {
			if m.ID == "" || len(m.Findings) > 0 {
				t.Errorf("%+v was accepted", m)
			}
			written, err := json.Marshal(lineOf(m, info))
			if err != nil {
				t.Fatal(err)
			}
			var back line
			if err := json.Unmarshal(written, &back); err != nil {
				t.Fatal(err)
			}
			again, err := back.message(info)
			if err != nil {
				t.Fatalf("%s: %v", written, err)
			}
			if again.ID != m.ID || !bytes.Equal(again.Body, m.Body) || (again.Body == nil) != (m.Body == nil) || !slices.EqualFunc(again.Headers, m.Headers, sameHeader) || again.State != m.State {
				t.Errorf("%+v became %+v", m, again)
			}
		}
	})
}

func sameHeader(a, b Header) bool {
	return a.Name == b.Name && bytes.Equal(a.Value, b.Value) && (a.Value == nil) == (b.Value == nil)
}
