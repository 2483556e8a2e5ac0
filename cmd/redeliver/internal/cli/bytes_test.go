package cli_test

import (
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

// "dlq show" prints keys and headers of any bytes as a filter accepts them, in a table and in JSON.
func TestWhatShowPrintsSelectsTheMessage(t *testing.T) {
	t.Parallel()
	s := newTestKafka(t)
	keys := []string{"", "plain", "\xff\xff\xff\xff\xff\xff\xff\xfe", "\x00\x00\x00\x00\x00\x00\x00*", "a\nb", "base64:QQ", "base64:"}
	for i, key := range keys {
		rec := dead(i, 0, declined, kgo.RecordHeader{Key: "k\xff", Value: []byte("v\xff" + key)})
		rec.Key = []byte(key)
		s.put(rec)
	}
	onlyOne := func(position string, filter ...string) {
		t.Helper()
		found := s.run(append([]string{"dlq", "show", dlq, "-o", "json"}, filter...)...).objects(t)
		if len(found) != 1 || found[0]["position"] != position {
			t.Errorf("%q finds %v, want the message at %s", filter, found, position)
		}
	}
	for _, row := range s.run("dlq", "show", dlq, "-o", "json").objects(t) {
		position := row["position"].(string)
		onlyOne(position, "--key", "base64:"+row["key"].(string))
		header := row["headers"].([]any)[0].(map[string]any)
		onlyOne(position, "--header", header["name"].(string)+"=base64:"+header["value"].(string))
		table := s.run("dlq", "show", dlq, "--full", "--position", position).out
		for line := range strings.Lines(table) {
			if label, text, _ := strings.Cut(line, " "); label == "key" {
				onlyOne(position, "--key", strings.TrimSpace(text))
			}
			if name, value, ok := strings.Cut(strings.TrimSpace(line), " "); ok && strings.HasPrefix(name, "base64:") {
				onlyOne(position, "--header", name+"="+strings.TrimSpace(value))
			}
		}
	}
	s.run("dlq", "show", dlq, "--key", "base64:?").want(t, 2, "base64")
	s.run("dlq", "show", dlq, "--header", "a=base64:?").want(t, 2, "base64")
}
