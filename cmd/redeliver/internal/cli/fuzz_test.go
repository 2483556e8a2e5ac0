package cli

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

// Every text on a command line is parsed, or refused with the name of its flag.
func FuzzFlags(f *testing.F) {
	for _, text := range []string{"10m-15m", "1h-2h:0.5", "0-1s:NaN", "-1s--1s", "2h", "2026-01-31", "2026-01-31T12:00:00+14:00", "127.0.0.1", "10.0.0.0/8", "0.0.0.0/0", "::/0", "fe80::1%eth0", "per-key", "1-2:"} {
		f.Add(text)
	}
	now := time.Date(2026, 3, 14, 15, 9, 26, 0, time.UTC)
	f.Fuzz(func(t *testing.T, text string) {
		if o, err := parseOutage(text); err == nil && !strings.Contains(text, "-") {
			t.Errorf("%q is the outage %+v", text, o)
		}
		if at, err := moment("after", text, now); err == nil && text != "" && (at.IsZero() && !strings.HasPrefix(text, "0001-01-01") || at.Location() != time.UTC) {
			t.Errorf("%q is %s", text, at)
		}
		if prefix, err := readPrefix(text); err == nil && (!prefix.IsValid() || prefix.Bits() == 0) {
			t.Errorf("%q is %s, which is everybody", text, prefix)
		}
		if order, err := parseOrder(text); err == nil && text != "" && order.String() == "" {
			t.Errorf("%q is an order without a name", text)
		}
	})
}

// No error about a file of users quotes a password.
func FuzzUsers(f *testing.F) {
	f.Add("ann:operator:XsecretX\n# a line\n\nbob:viewer:b:c\r\n")
	f.Add("ann:XsecretX")
	f.Add("ann:XsecretX:operator")
	f.Add("XsecretX")
	f.Fuzz(func(t *testing.T, text string) {
		users, err := readUsers(text, "users")
		if err != nil && strings.Contains(err.Error(), "XsecretX") {
			t.Error(err)
		}
		if err == nil && len(users) == 0 {
			t.Errorf("%q has no users", text)
		}
	})
}

// Errors about a file of profiles quote none of its content.
func FuzzProfiles(f *testing.F) {
	f.Add("production:\n  broker: kafka://h:9092\n  group: billing\n  password-file: /run/x\n")
	f.Add("production:\n  broker: kafka://u:XsecretX@h\n  grup: billing\n")
	f.Add("production: XsecretX\n")
	f.Add("a: &a\n  broker: x\nb: *a\n")
	f.Add("- XsecretX: `")
	f.Fuzz(func(t *testing.T, text string) {
		path := filepath.Join(t.TempDir(), "config.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		c := &connection{config: path}
		if _, _, err := c.profiles(func(string) string { return "" }); err != nil && strings.Contains(err.Error(), "XsecretX") && strings.Contains(text, ": XsecretX") && strings.Count(text, "XsecretX") == 1 && !strings.Contains(text, "XsecretX:") {
			t.Errorf("%q: %v", text, err)
		}
	})
}

// The YAML output means the same as the JSON.
func FuzzYAML(f *testing.F) {
	for _, text := range []string{`{"a":[1,-2.5e3,true,null,"x\ny","\u001b[31m","yes","0x1f","1:30"],"b":{}}`, `"\ud800"`, `[[],[[]],{}]`, `1e400`, `{"":""}`, `"\u2028"`, `[100000000000000000000, 1e400]`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if !json.Valid(text) {
			return
		}
		var want any
		dec := json.NewDecoder(bytes.NewReader(text))
		dec.UseNumber()
		if err := dec.Decode(&want); err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(want) // like our output: no name occurs twice in an object
		if err != nil {
			t.Fatal(err)
		}
		written, err := toYAML(text)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		for _, r := range written {
			if r == '\x1b' || r == '\u202e' {
				t.Errorf("%s is written with %q", text, r)
			}
		}
		var got any
		if err := yaml.Unmarshal([]byte(written), &got); err != nil {
			t.Fatalf("%s is written as %q, which cannot be read: %v", text, written, err)
		}
		if n, ok := want.(json.Number); ok { // the whole number, without a YAML tag
			want, got = n.String(), strings.TrimSuffix(written, "\n")
		}
		switch want.(type) {
		case map[string]any, []any:
		default:
			if !reflect.DeepEqual(got, want) {
				t.Errorf("%s is written as %q and read as %#v", text, written, got)
			}
		}
	})
}
