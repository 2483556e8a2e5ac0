package flagfile_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/redeliver/redeliver/cmd/redeliver/internal/flagfile"
)

// spec has a flag of each type.
func spec() flagfile.Spec {
	process := pflag.NewFlagSet("", pflag.ContinueOnError)
	process.String("health", "", "")
	return flagfile.Spec{
		Process: process, Command: "exec", Either: [][2]string{{"http", "exec"}}, Given: map[string]string{"int": "9", "secret": "given"},
		Section: func() *pflag.FlagSet {
			flags := pflag.NewFlagSet("", pflag.ContinueOnError)
			flags.StringArray("topic", nil, "")
			flags.String("http", "", "")
			flags.Bool("exec", false, "")
			flags.Bool("bool", false, "")
			flags.Int("int", 0, "")
			flags.Int32("int32", 0, "")
			flags.Float64("float64", 0, "")
			flags.Duration("duration", 0, "")
			flags.DurationSlice("levels", nil, "")
			flags.String("secret", "", "read it from this `file`")
			return flags
		},
		Hint: func(_ string, names []string) string { return " of " + fmt.Sprint(len(names)) },
	}
}

// values returns the flags of a section that were set.
func values(s *flagfile.Section) map[string]string {
	all := make(map[string]string)
	s.Flags.Visit(func(f *pflag.Flag) { all[f.Name] = f.Value.String() })
	return all
}

// A section has its own values, then those of defaults, then those that were given. One of two flags that exclude each
// other displaces what it would inherit of the other. A file is relative to the file of sections.
func TestRead(t *testing.T) {
	t.Parallel()
	f, problems := flagfile.Read([]byte(`# a comment
health: :8081
defaults: &all
  http: http://a
  bool: True
  duration: 90s
  levels: [1s, 1m]
subscriptions:
  - topic: [a, b]
    int: 0x10
    float64: 2
  - topic: c
    exec: [./charge, "two words"]
    secret: token
    duration: 0
`), "/etc/x", spec())
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	if got := f.Process.Flags.Lookup("health").Value.String(); got != ":8081" {
		t.Errorf("health is %q", got)
	}
	want := []map[string]string{
		{"topic": "[a,b]", "http": "http://a", "bool": "true", "duration": "1m30s", "levels": "[1s,1m0s]", "int": "16", "float64": "2", "secret": "given"},
		{"topic": "[c]", "exec": "true", "bool": "true", "duration": "0s", "levels": "[1s,1m0s]", "int": "9", "secret": "/etc/x/token"},
	}
	for i, s := range f.Sections {
		if got := values(s); !maps.Equal(got, want[i]) {
			t.Errorf("section %d has %v, want %v", i, got, want[i])
		}
	}
	if got := f.Sections[1].Command; !slices.Equal(got, []string{"./charge", "two words"}) {
		t.Errorf("the command is %q", got)
	}
	for flag, line := range map[string]int{"int": 10, "bool": 5, "secret": 9} {
		if got := f.Sections[0].LineOf(flag); got != line {
			t.Errorf("%s is at line %d, want %d", flag, got, line)
		}
	}
}

// Each problem has its line, once, and no value, which may be a secret.
func TestProblems(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                            "1: subscriptions is missing: the list of what to consume",
		"subscriptions: []":           "1: subscriptions must be a list with at least one entry, each beginning with \"- topic:\"",
		"a: b\nhealth: [\n":           "2: this is not YAML: did not find expected node content",
		"- topic":                     "1: the file must have keys with values",
		"subscriptions:\n- s3cret":    "2: a subscription must have keys with values",
		"subscriptions: [{}]\n---\n":  "1: the file has more than one document",
		"int: 5\nsubscriptions: [{}]": "1: unknown key \"int\": it belongs to a subscription, or under defaults",
		"subscriptions:\n- health: x": "2: unknown key \"health\": it belongs to the top of the file",
		"subscriptions:\n- toppic: x": "2: unknown key \"toppic\" of 10",
		"defaults:\n  int: s3cret\nsubscriptions:\n- {}\n- {}\n":                  "2: int must be a whole number",
		"subscriptions:\n- int: 1\n  bool: 1\n- int: 1\n  int: 2":                 "3: bool must be true or false\n5: int is given twice: line 4 has it, too",
		"subscriptions:\n- exec: ./charge":                                        "2: exec must be a list with the command and its arguments",
		"subscriptions:\n- &a {int: 1}\n- <<: *a":                                 "3: merge keys are not supported: write what subscriptions have in common under defaults",
		"subscriptions:\n- int32: 3000000000\n  int: 99999999999999999999":        "2: int32 must be a whole number below 2147483648\n3: int must be a whole number",
		"subscriptions:\n- duration: soon\n  secret: s3cret: s3cret\n  topic: []": "this is not YAML",
		"subscriptions:\n- duration: soon\n  topic: []\n  http: 5":                "2: duration must be a duration such as 90s or 2h\n3: topic must be text, or a list of texts\n4: http must be text",
	} {
		_, problems := flagfile.Read([]byte(text), "", spec())
		var got []string
		for _, p := range problems {
			got = append(got, fmt.Sprintf("%d: %s", p.Line, p.Text))
		}
		lines := strings.Split(want, "\n")
		if len(got) != len(lines) || strings.Contains(fmt.Sprint(got), "s3cret") {
			t.Errorf("%q: %q", text, got)
			continue
		}
		for i, line := range lines {
			if !strings.Contains(got[i], line) {
				t.Errorf("%q: %q, want %q", text, got[i], line)
			}
		}
	}
}

// The JSON Schema accepts exactly what Read accepts, for each flag and kind of value.
func TestTheSchemaIsWhatTheFileAccepts(t *testing.T) {
	t.Parallel()
	schema := flagfile.Schema("x", spec())
	samples := []string{
		`"text"`, `""`, `"90s"`, `"1h30m"`, `".5s"`, `"-1s"`, `"1s,1m"`, `"1s,"`, `"0"`, `"5"`, `"1 s"`, `0`, `5`, `-3`, `2.5`, `3000000000`, `true`, `null`,
		`[]`, `["a"]`, `["10s","1m"]`, `["10s",""]`, `[1]`, `[null]`, `{}`, `{"a":"b"}`, `[["a"]]`,
	}
	documents := []string{`{}`, `{"subscriptions":[]}`, `{"subscriptions":{}}`, `{"subscriptions":[[]]}`, `{"subscriptions":[{}]}`, `{"subscriptions":[{}],"defaults":[]}`, `{"subscriptions":[{}],"defaults":{}}`, `[]`}
	keys := []string{"health", "unknown"}
	spec().Section().VisitAll(func(f *pflag.Flag) { keys = append(keys, f.Name) })
	for _, key := range keys {
		for _, v := range samples {
			documents = append(documents, fmt.Sprintf(`{%q:%s,"subscriptions":[{}]}`, key, v), fmt.Sprintf(`{"subscriptions":[{%q:%s}]}`, key, v), fmt.Sprintf(`{"defaults":{%q:%s},"subscriptions":[{}]}`, key, v))
		}
	}
	accepted := 0
	for _, text := range documents {
		var value any
		if err := json.Unmarshal([]byte(text), &value); err != nil {
			t.Fatal(err)
		}
		_, problems := flagfile.Read([]byte(text), "", spec())
		if fits := fitsSchema(t, schema, schema, value); fits != (len(problems) == 0) {
			t.Errorf("%s: the schema says %t, and the file has %v", text, fits, problems)
		} else if fits {
			accepted++
		}
	}
	if accepted < 50 {
		t.Errorf("only %d of %d documents are accepted", accepted, len(documents))
	}
}

// fitsSchema reports whether a value fits a schema. It knows the keywords that Schema uses, and no others.
func fitsSchema(t *testing.T, root, schema map[string]any, value any) bool {
	t.Helper()
	if ref, ok := schema["$ref"].(string); ok {
		return fitsSchema(t, root, root["$defs"].(map[string]any)[strings.TrimPrefix(ref, "#/$defs/")].(map[string]any), value)
	}
	for keyword, rule := range schema {
		fits := true
		switch keyword {
		case "$schema", "$defs", "title", "description", "items", "properties":
		case "type":
			fits = slices.Contains(typesOf(value), rule.(string))
		case "const":
			fits = reflect.DeepEqual(value, float64(rule.(int)))
		case "minimum":
			n, ok := value.(float64)
			fits = !ok || n >= float64(rule.(int))
		case "maximum":
			n, ok := value.(float64)
			fits = !ok || n <= float64(rule.(int))
		case "pattern":
			text, ok := value.(string)
			fits = !ok || matches(rule.(string), text)
		case "minItems":
			list, ok := value.([]any)
			fits = !ok || len(list) >= rule.(int)
		case "required":
			object, ok := value.(map[string]any)
			for _, key := range rule.([]any) {
				fits = fits && (!ok || object[key.(string)] != nil)
			}
		case "additionalProperties":
			object, ok := value.(map[string]any)
			for key := range object {
				fits = fits && (!ok || schema["properties"].(map[string]any)[key] != nil)
			}
		case "anyOf":
			fits = slices.ContainsFunc(rule.([]any), func(one any) bool { return fitsSchema(t, root, one.(map[string]any), value) })
		default:
			t.Fatalf("the test does not know %s", keyword)
		}
		if !fits {
			return false
		}
	}
	if list, ok := value.([]any); ok && schema["items"] != nil {
		for _, item := range list {
			if !fitsSchema(t, root, schema["items"].(map[string]any), item) {
				return false
			}
		}
	}
	if object, ok := value.(map[string]any); ok && schema["properties"] != nil {
		for key, inner := range object {
			if of, ok := schema["properties"].(map[string]any)[key].(map[string]any); ok && !fitsSchema(t, root, of, inner) {
				return false
			}
		}
	}
	return true
}

func typesOf(value any) []string {
	switch v := value.(type) {
	case string:
		return []string{"string"}
	case bool:
		return []string{"boolean"}
	case []any:
		return []string{"array"}
	case map[string]any:
		return []string{"object"}
	case float64:
		if v == float64(int64(v)) {
			return []string{"number", "integer"}
		}
		return []string{"number"}
	default:
		return []string{"null"}
	}
}

// The pattern of durations is what Go parses.
func TestThePatternOfDurations(t *testing.T) {
	t.Parallel()
	schema := flagfile.Schema("x", spec())
	pattern := schema["$defs"].(map[string]any)["subscription"].(map[string]any)["properties"].(map[string]any)["duration"].(map[string]any)["anyOf"].([]any)[0].(map[string]any)["pattern"].(string)
	for _, text := range []string{"0", "1s", "1.5h", "1.h", ".5s", "+1s", "-1m", "1h2m3s4ms5us6µs7ns", "", "1", "s", "1s ", "1d", ".s", "1,5s", "00", "0s", "--1s"} {
		_, err := time.ParseDuration(text)
		if got := matches(pattern, text); got != (err == nil) {
			t.Errorf("%q matches: %t; %v", text, got, err)
		}
	}
}

func matches(pattern, text string) bool { return regexp.MustCompile(pattern).MatchString(text) }
