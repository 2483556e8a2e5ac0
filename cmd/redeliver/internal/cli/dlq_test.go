package cli_test

import (
	"encoding/base64"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.yaml.in/yaml/v3"
)

func TestTables(t *testing.T) {
	t.Parallel()
	s := newTestKafka(t)
	s.fill()
	s.topics("somebody.dlq")
	for name, args := range map[string]string{
		"list":      "dlq list",
		"groups":    "dlq groups orders.billing.dlq",
		"filtered":  "dlq groups --topic orders --group billing --header tenant=acme",
		"show":      "dlq show orders.billing.dlq",
		"full":      "dlq show orders.billing.dlq --id order-0001 --full",
		"dryreplay": "dlq replay orders.billing.dlq --error-text DECLINED --dry-run",
		"drypurge":  "dlq purge orders.billing.dlq --reason permanent --dry-run",
		"dryedit":   "dlq edit orders.billing.dlq --position 0/0 --set tenant=bolt --set currency=EUR --dry-run",
		"tasks":     "dlq tasks orders.billing.dlq",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			call{}.run(t, append(strings.Fields(args), "--broker", s.url)...).want(t, 0).golden(t, name+".txt")
		})
	}
}

// The documented fields of docs/reference/command.md exist under these names.
func TestSchema(t *testing.T) {
	t.Parallel()
	s := newTestKafka(t)
	s.fill()
	s.topics("payments")
	keys := func(v map[string]any) []string {
		names := make([]string, 0, len(v))
		for name := range v {
			names = append(names, name)
		}
		slices.Sort(names)
		return names
	}
	for args, want := range map[string]string{
		"dlq list":                      "broker dlq exact group keeps messages oldest origin",
		"dlq groups orders.billing.dlq": "attempts count error error_type example fingerprint first_seen keys last_seen reason",
		"dlq show orders.billing.dlq": "attempts body body_text dlq error error_type filler fingerprint first_error first_failed group headers id key key_text last_failed origin position " +
			"reason replays source time",
		"dlq replay orders.billing.dlq --dry-run":                         "dlq dry_run matched replay replay_to scanned",
		"dlq purge orders.billing.dlq --all --dry-run":                    "dlq dry_run matched purge scanned",
		"dlq edit orders.billing.dlq --position 0/0 --set a=b --dry-run":  "body_after body_before dlq dry_run headers id position replay_to",
		"dlq replay orders.billing.dlq --id order-0005 --note test --yes": "counts created dlq ended filter id kind max_replays note replay_to status updated who window",
		"dlq tasks orders.billing.dlq":                                    "counts created dlq ended filter id kind max_replays note replay_to status updated who window",
		"plan --topic payments --group billing":                           "broker delays group longest_wait origin places",
		"dlq import orders.billing.dlq --dry-run":                         "dlq dry_run import",
	} {
		t.Run(args, func(t *testing.T) {
			if strings.HasPrefix(args, "dlq tasks") { // if there is one
				s.run("dlq", "replay", dlq, "--id", "order-0004", "--note", "test", "--yes").want(t, 0)
			}
			text := s.run(append(strings.Fields(args), "--output", "jsonl")...).want(t, 0).out
			var v map[string]any
			if err := json.Unmarshal([]byte(text[:strings.IndexByte(text, '\n')]), &v); err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(keys(v), " "); got != want {
				t.Errorf("fields\n%s\nwant\n%s", got, want)
			}
		})
	}
}

// Bytes are printed exactly, and large numbers are not rounded.
func TestShowIsExact(t *testing.T) {
	t.Parallel()
	s := newTestKafka(t)
	raw := dead(1, 0, declined)
	raw.Value, raw.Key = []byte("\x00\xff\x1b[2J"), nil
	raw.Headers = append([]kgo.RecordHeader{{Key: "n", Value: nil}, {Key: "bin", Value: []byte{0xfe}}}, raw.Headers...)
	traced := declined
	traced.Trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	s.put(raw, dead(2, 0, traced))
	got := s.run("dlq", "show", dlq, "-o", "json").want(t, 0).objects(t)
	if len(got) != 2 {
		t.Fatalf("%d messages", len(got))
	}
	body, err := base64.StdEncoding.DecodeString(got[0]["body"].(string))
	if err != nil || string(body) != string(raw.Value) || got[0]["body_text"] != nil || got[0]["key"] != nil {
		t.Errorf("body %q, text %v, key %v, %v", body, got[0]["body_text"], got[0]["key"], err)
	}
	headers := got[0]["headers"].([]any)
	if h := headers[0].(map[string]any); h["name"] != "n" || h["value"] != nil {
		t.Errorf("a null header is %v", h)
	}
	if h := headers[1].(map[string]any); h["value"] != "/g==" || h["text"] != nil {
		t.Errorf("a binary header is %v", h)
	}
	if id := got[1]["trace_id"]; id != "0af7651916cd43dd8448eb211c80319c" || got[0]["trace_id"] != nil {
		t.Errorf("traces %v and %v", got[0]["trace_id"], id)
	}
	if got := s.run("dlq", "show", dlq, "--position", "0/1", "--full").want(t, 0).out; !strings.Contains(got, "trace") || !strings.Contains(got, "0af7651916cd43dd8448eb211c80319c\n") {
		t.Errorf("--full has no trace:\n%s", got)
	}
	if text := got[1]["body_text"].(string); !strings.Contains(text, "12345678901234567890") {
		t.Errorf("%q", text)
	}
	if got := s.run("dlq", "show", dlq, "--position", "0/0", "--raw").want(t, 0); got.out != string(raw.Value) {
		t.Errorf("--raw wrote %q", got.out)
	}
	s.run("dlq", "show", dlq, "--raw").want(t, 2, "more than one")
	s.run("dlq", "show", dlq, "--raw", "--id", "nosuch").want(t, 1)
	s.with(call{terminal: true}, "dlq", "show", dlq, "--position", "0/0", "--raw").want(t, 2, "terminal")
}

// The four formats have the same content.
func TestFormatsAgree(t *testing.T) {
	t.Parallel()
	s := newTestKafka(t)
	s.fill()
	hostile := dead(6, 0, declined, kgo.RecordHeader{Key: "odd", Value: []byte("yes: no\n- \x1b[31m\u009b \x7f 0x10 ~ \u202e\u2066\u200b\ufeff\u00a0\U000e0001\U0001f600")})
	hostile.Value = []byte("null")
	s.put(hostile)
	for _, args := range []string{"dlq list", "dlq groups orders.billing.dlq", "dlq show orders.billing.dlq", "dlq show orders.billing.dlq --id nosuch"} {
		array := s.run(append(strings.Fields(args), "-o", "json")...).want(t, 0)
		lines := s.run(append(strings.Fields(args), "-o", "jsonl")...).want(t, 0)
		text := s.run(append(strings.Fields(args), "-o", "yaml")...).want(t, 0)
		var fromArray, fromLines, fromYAML []any
		if err := json.Unmarshal([]byte(array.out), &fromArray); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(lines.out) {
			var v any
			if err := json.Unmarshal([]byte(line), &v); err != nil {
				t.Fatal(err)
			}
			fromLines = append(fromLines, v)
		}
		if err := yaml.Unmarshal([]byte(text.out), &fromYAML); err != nil {
			t.Fatalf("%v in\n%s", err, text.out)
		}
		again, err := json.Marshal(fromYAML)
		if err != nil {
			t.Fatal(err)
		}
		fromYAML = nil
		if err := json.Unmarshal(again, &fromYAML); err != nil {
			t.Fatal(err)
		}
		if len(fromArray) != len(fromLines) || len(fromArray) > 0 && !reflect.DeepEqual(fromArray, fromLines) {
			t.Errorf("%s: json and jsonl differ:\n%s\n%s", args, array.out, lines.out)
		}
		if len(fromArray) != len(fromYAML) || len(fromArray) > 0 && !reflect.DeepEqual(fromArray, fromYAML) {
			t.Errorf("%s: json and yaml differ:\n%s\n%s", args, array.out, text.out)
		}
		for _, e := range []ending{array, lines, text} {
			harmless(t, e.out)
		}
	}
}

// harmless fails if the text has a character that a terminal would interpret or not show. U+202E reverses the text
// after it.
func harmless(t *testing.T, text string) {
	t.Helper()
	for _, r := range text {
		if r != '\n' && r != '\t' && !unicode.IsPrint(r) {
			t.Errorf("%U is in\n%q", r, text)
			return
		}
	}
}

// All text from the broker is untrusted. Every table escapes what a terminal would interpret.
func TestHostileTextIsEscaped(t *testing.T) {
	t.Parallel()
	s := newTestKafka(t)
	const hostile = "\x1b[2J\x1b]0;owned\x07\r\u009b31m\u202e\u200b\x00"
	st := declined
	st.Error, st.ErrorType, st.FirstError = "boom "+hostile, "type "+hostile, "first "+hostile
	rec := dead(1, 0, st, kgo.RecordHeader{Key: "name " + hostile, Value: []byte("value " + hostile + "\xff")})
	rec.Key, rec.Value = []byte("key "+hostile), []byte("body "+hostile+"\nsecond line")
	s.put(rec)
	for _, args := range []string{
		"dlq list", "dlq groups " + dlq, "dlq show " + dlq, "dlq show " + dlq + " -o json", "dlq show " + dlq + " -o jsonl", "dlq show " + dlq + " -o yaml", "dlq show " + dlq + " --full", "dlq check " + dlq, "dlq export " + dlq,
		"dlq edit " + dlq + " --position 0/0 --dry-run --set a=b", "dlq groups nosuch\x1b[2J", "dlq show " + dlq + " --after x\x1b[2J",
	} {
		got := s.run(strings.Split(args, " ")...)
		harmless(t, got.out)
		harmless(t, got.err)
	}
	if got := s.run("dlq", "show", dlq, "--full").out; !strings.Contains(got, `\x1b[2J`) || !strings.Contains(got, "base64:") || !strings.Contains(got, "second line") {
		t.Errorf("not shown at all:\n%s", got)
	}
}

func TestCheckEndsWith3AboveItsLimits(t *testing.T) {
	t.Parallel()
	s := newTestKafka(t)
	s.run("dlq", "check").want(t, 0)
	s.fill()
	got := s.run("dlq", "check", "-o", "json").want(t, 3, "1 of 1 DLQs").objects(t)
	if f := got[0]["findings"].([]any); len(f) != 1 || f[0].(map[string]any)["kind"] != "messages" {
		t.Errorf("%v", f)
	}
	s.run("dlq", "check", dlq, "--max", "5").want(t, 0)
	got = s.run("dlq", "check", dlq, "--max", "5", "--max-age", "1h", "-o", "json").want(t, 3).objects(t)
	if f := got[0]["findings"].([]any); len(f) != 1 || f[0].(map[string]any)["kind"] != "old" {
		t.Errorf("%v", f)
	}
	s.run("dlq", "check", "nosuch.billing.dlq").want(t, 1, "no DLQ nosuch.billing.dlq", "--topic and --group\n")
	s.run("dlq", "groups", "orders.biling.dlq").want(t, 1, "Did you mean "+dlq+"?")
	s.topics("somebody.dlq")
	s.run("dlq", "check", "--max", "5").want(t, 3)
	s.run("dlq", "groups", "somebody.dlq").want(t, 2, "--topic and --group")
}

// A DLQ that another framework fills is named with its topic and its group.
func TestDLQOfAnotherFramework(t *testing.T) {
	t.Parallel()
	s := newTestKafka(t)
	s.topics("orders.DLT")
	s.put(&kgo.Record{Topic: "orders.DLT", Key: []byte("k"), Value: []byte("v"), Timestamp: day, Headers: []kgo.RecordHeader{
		{Key: "kafka_dlt-exception-fqcn", Value: []byte("com.shop.NoSuchCardException")}, {Key: "kafka_dlt-exception-message", Value: []byte("no such card")},
		{Key: "kafka_dlt-original-topic", Value: []byte("orders")}, {Key: "kafka_dlt-original-consumer-group", Value: []byte("billing")},
	}})
	got := s.run("dlq", "show", "orders.DLT", "--topic", "orders", "--group", "billing", "-o", "json").want(t, 0).objects(t)
	if len(got) != 1 || got[0]["filler"] != "spring-kafka" || got[0]["error"] != "no such card" {
		t.Errorf("%v", got)
	}
	s.run("dlq", "replay", "orders.DLT", "--topic", "orders", "--group", "billing", "--note", "test", "--yes").want(t, 0)
	if n := s.written(back); n != 1 {
		t.Errorf("%d messages on the retry topic", n)
	}
}
