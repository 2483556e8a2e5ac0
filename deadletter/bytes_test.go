package deadletter_test

import (
	"encoding/json"
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/internal/adaptertest"
)

// anyBytes returns nil, no bytes, text or bytes that are not UTF-8.
func anyBytes(t *rapid.T, label string) []byte {
	return rapid.OneOf(rapid.Just([]byte(nil)), rapid.SliceOfN(rapid.Byte(), 0, 8), rapid.Map(rapid.StringN(0, 8, -1), func(s string) []byte { return []byte(s) })).Draw(t, label)
}

// A file has all bytes of a message: keys and bodies with their nulls, and headers and properties with any names.
func TestAFileHasAnyBytes(t *testing.T) {
	info := deadletter.Info{Broker: "kafka", DLQ: "orders.billing.dlq", Origin: "orders", Group: "billing"}
	rapid.Check(t, func(t *rapid.T) {
		headers := func(what string) (all []deadletter.Header) {
			for range rapid.IntRange(0, 4).Draw(t, what) {
				all = append(all, deadletter.Header{Name: string(anyBytes(t, "name")), Value: anyBytes(t, "value")})
			}
			return all
		}
		m := &deadletter.Message{
			ID: "orders/0/1", Key: anyBytes(t, "key"), Body: anyBytes(t, "body"), Headers: headers("headers"), Properties: headers("properties"),
			Writer: deadletter.WriterRedeliver, State: redeliver.State{ID: "orders/0/1", Group: "billing", Origin: "orders", Attempts: 1, Error: "e"},
		}
		got, err := adaptertest.ThroughFile(t.Context(), info, m)
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range [][2]any{
			{got.Key, m.Key}, {got.Body, m.Body}, {append([]deadletter.Header{}, got.Headers...), append([]deadletter.Header{}, m.Headers...)}, {got.Properties, m.Properties}, {got.State, m.State},
		} {
			if !reflect.DeepEqual(part[0], part[1]) {
				t.Fatalf("%#v came back as %#v", part[1], part[0])
			}
		}
	})
}

// A task keeps its filter also when a key or a header is no text. Otherwise it would go on with other messages after a pause.
func TestATaskKeepsAnyFilter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := deadletter.Filter{Key: anyBytes(t, "key")}
		if rapid.Bool().Draw(t, "with headers") {
			f.Headers = map[string]string{string(anyBytes(t, "name")): string(anyBytes(t, "value")), "a": string(anyBytes(t, "a"))}
		}
		text, err := json.Marshal(deadletter.Task{Filter: f})
		if err != nil {
			t.Fatal(err)
		}
		var got deadletter.Task
		if err := json.Unmarshal(text, &got); err != nil || !reflect.DeepEqual(got.Filter, f) {
			t.Fatalf("%#v came back as %#v: %v", f, got.Filter, err)
		}
	})
}
