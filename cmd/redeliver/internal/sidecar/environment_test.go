package sidecar

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// A child receives the message, its environment and its arguments unchanged, and none of our secrets.
func TestExecSees(t *testing.T) {
	t.Setenv("REDELIVER_PASSWORD", "secret")
	t.Setenv("REDELIVER_HEADER_TENANT", "of somebody else")
	t.Setenv("LD_PRELOAD", "")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "of the command, too") // documented in docs/reference/sidecar.md
	path := filepath.Join(t.TempDir(), "seen")
	e, _ := startExec(t, "echo", path, "$(id)", "a b", ";", "*")
	m := newMessage()
	m.Headers = append(m.Headers,
		Header{"LD_PRELOAD", "/tmp/evil.so"}, Header{"PATH", "/tmp"}, Header{"BASH_FUNC_x%%", "() { :; }"}, Header{"tenant", "second"}, Header{"Tenant", "last"},
		Header{"large", strings.Repeat("x", maxEnvironment)}, Header{"a=b", "c"},
	)
	if err := e.Handle(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	var got seen
	if err == nil {
		err = json.Unmarshal(text, &got)
	}
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got.Args, []string{path, "$(id)", "a b", ";", "*"}) || !bytes.Equal(got.Body, m.Body) {
		t.Errorf("arguments %q, body %q", got.Args, got.Body)
	}
	env := make(map[string]string)
	for _, e := range got.Env {
		name, value, _ := strings.Cut(e, "=")
		if _, twice := env[name]; twice {
			t.Errorf("%s is there twice", name)
		}
		env[name] = value
	}
	for name, want := range map[string]string{
		"REDELIVER_ID": "orders/0/17", "REDELIVER_ATTEMPT": "2", "REDELIVER_ORIGIN": "orders", "REDELIVER_GROUP": "billing", "REDELIVER_KEY": "o-1\n",
		"REDELIVER_TIMESTAMP": "2026-01-31T12:00:00.000Z", "REDELIVER_FIRST_FAILED": "2026-01-31T12:00:00.000Z", "REDELIVER_REPLAYS": "2", "REDELIVER_ERROR": "ö\ndeclined", "REDELIVER_FIRST_ERROR": "timed out",
		"REDELIVER_CONTENT_TYPE": octets, "REDELIVER_PROPERTY_ROUTING_KEY": "a b", "REDELIVER_PROPERTY_PARTITION": "0",
		"REDELIVER_HEADER_TENANT": "last", "REDELIVER_HEADER_LD_PRELOAD": "/tmp/evil.so", "REDELIVER_HEADER_PATH": "/tmp",
		"REDELIVER_HEADER_BASH_FUNC_X__": "() { :; }", "REDELIVER_HEADER_A_B": "c", "REDELIVER_HEADER_A__X_EVIL__1": "x",
		"REDELIVER_HEADER_CRLF": "x\r\nX-Evil: 1\r\n\r\nbody", "REDELIVER_HEADER_": "nameless", "REDELIVER_HEADER_TWO": "2",
		"AWS_SECRET_ACCESS_KEY": "of the command, too",
		"LD_PRELOAD":            "", "PATH": os.Getenv("PATH"), asChild: "echo",
	} {
		if env[name] != want {
			t.Errorf("%s is %q, want %q", name, env[name], want)
		}
	}
	for _, name := range []string{"REDELIVER_PASSWORD", "REDELIVER_HEADER_NUL", "REDELIVER_HEADER_LARGE", "BASH_FUNC_x%%"} {
		if value, ok := env[name]; ok {
			t.Errorf("%s is %q", name, value)
		}
	}
	var third jsonMessage
	if err := json.Unmarshal(got.Third, &third); err != nil {
		t.Fatalf("%v: %.200s", err, got.Third)
	}
	var rest []string
	for _, h := range third.Headers {
		rest = append(rest, h.Name+"="+*h.Text)
	}
	if want := []string{"tenant=acme", "nul=a\x00b", "two=1", "tenant=second", "large=" + strings.Repeat("x", maxEnvironment)}; !slices.Equal(rest, want) {
		t.Errorf("descriptor 3 has %.300q, want %.300q", rest, want)
	}
	if third.Key != nil || third.KeyText != nil || third.ID != "" || third.Properties != nil {
		t.Errorf("%+v", third)
	}
}

// All fields that do not fit into an environment are on descriptor 3.
func TestEnvironmentIsBounded(t *testing.T) {
	m := newMessage()
	m.State.ID, m.Key, m.Properties = "a\x00b", []byte{0, 255}, []Header{{"Routing-Key", "a\x00"}}
	m.Headers = nil
	for i := range 5000 {
		m.Headers = append(m.Headers, Header{"h" + strconv.Itoa(i), "value"})
	}
	env, rest := environment(m)
	size := 0
	for _, e := range env {
		size += len(e) + 1
	}
	var over jsonMessage
	if err := json.Unmarshal(rest, &over); err != nil {
		t.Fatal(err)
	}
	headers := 0
	for _, e := range env {
		if strings.HasPrefix(e, "REDELIVER_HEADER_") {
			headers++
		}
	}
	if size > maxEnvironment || headers < 500 || headers+len(over.Headers) != 5000 || over.ID != "a\x00b" || !bytes.Equal(over.Key, []byte{0, 255}) || len(over.Properties) != 1 {
		t.Errorf("%d bytes, %d headers and %d others; %q %q", size, headers, len(over.Headers), over.ID, over.Key)
	}
	if over.Headers[0].Name != "h0" || !strings.HasPrefix(env[len(env)-1], "REDELIVER_HEADER_H") {
		t.Error("of too many headers the last are in the environment")
	}
}
