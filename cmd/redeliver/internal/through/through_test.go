//go:build unix

package through_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redeliver/redeliver/cmd/redeliver/internal/through"
	"github.com/redeliver/redeliver/deadletter"
)

// encode writes a message as dlq show -o jsonl does.
func encode(m *deadletter.Message) ([]byte, error) {
	type header struct {
		Name  string `json:"name"`
		Value []byte `json:"value"`
		Text  string `json:"text"`
	}
	row := struct {
		ID       string   `json:"id"`
		Key      []byte   `json:"key"`
		KeyText  string   `json:"key_text"`
		Headers  []header `json:"headers"`
		Body     []byte   `json:"body"`
		BodyText string   `json:"body_text"`
	}{m.ID, m.Key, string(m.Key), nil, m.Body, string(m.Body)}
	for _, h := range m.Headers {
		row.Headers = append(row.Headers, header{h.Name, h.Value, string(h.Value)})
	}
	return json.Marshal(row)
}

func order() *deadletter.Message {
	return &deadletter.Message{
		ID: "o-1", Key: []byte("k"), Body: []byte("20 EURO"),
		Headers: []deadletter.Header{{Name: "tenant", Value: []byte("acme")}, {Name: "tenant", Value: []byte("bolt")}},
	}
}

// describe returns what a program may change.
func describe(m *deadletter.Message) string { return fmt.Sprintf("%s %q %s", m.Key, m.Body, m.Headers) }

func TestAProgramChangesAMessage(t *testing.T) {
	t.Parallel()
	same := describe(order())
	for name, c := range map[string]struct{ command, want string }{
		"nothing":               {"cat", same},
		"an empty object":       {"echo '{}'", same},
		"the text":              {"sed 's/20 EURO/20 EUR/'", strings.Replace(same, "EURO", "EUR", 1)},
		"only the text":         {`echo '{"body_text":"new"}'`, strings.Replace(same, "20 EURO", "new", 1)},
		"only the bytes":        {`echo '{"body":"bmV3"}'`, strings.Replace(same, "20 EURO", "new", 1)},
		"both alike":            {`echo '{"body":"bmV3","body_text":"new"}'`, strings.Replace(same, "20 EURO", "new", 1)},
		"no body":               {`echo '{"body":null}'`, strings.Replace(same, "20 EURO", "", 1)},
		"the second of a name":  {"sed 's/bolt/core/'", strings.Replace(same, "bolt", "core", 1)},
		"fewer headers":         {`echo '{"headers":[{"name":"tenant"}]}'`, `k "20 EURO" [{tenant acme}]`},
		"another header":        {`echo '{"headers":[{"name":"a","text":"b"}]}'`, `k "20 EURO" [{a b}]`},
		"the key":               {"sed 's/\"key_text\":\"k\"/\"key_text\":\"j\"/'", strings.Replace(same, "k ", "j ", 1)},
		"without reading":       {"echo '{}'; exec <&-", same},
		"with words about it":   {"echo working >&2; cat", same},
		"an argument and a dot": {"printf '%s' '{\"body_text\":\"a b\"}'", strings.Replace(same, "20 EURO", "a b", 1)},
	} {
		m := order()
		p := through.Program{Command: c.command, Timeout: time.Minute, Input: encode}
		if err := p.Change(t.Context(), m); err != nil || describe(m) != c.want {
			t.Errorf("%s: %s, want %s: %v", name, describe(m), c.want, err)
		}
	}
}

func TestAProgramThatDoesNotChangeAMessageSaysWhy(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ command, want string }{
		"an exit status":   {"echo 'no such\ncurrency' >&2; exit 3", "exit status 3: no such currency"},
		"no program":       {"./nosuch", "exit status 127: "},
		"nothing":          {"true", "wrote nothing"},
		"no JSON":          {"echo yes", "did not write a message in JSON"},
		"two messages":     {"cat; echo '{}'", "more than one JSON value"},
		"a wrong type":     {`echo '{"body_text":1}'`, "did not write a message in JSON"},
		"two bodies":       {`echo '{"body":"bmV3","body_text":"newer"}'`, "changed the body twice"},
		"too much":         {"head -c 20000000 /dev/zero", "wrote more than"},
		"a program's end":  {"kill -9 $$", "signal: killed"},
		"many words":       {"head -c 5000 /dev/zero | tr '\\0' x >&2; echo ' the end' >&2; exit 1", "the end"},
		"status after all": {"cat; exit 1", "exit status 1"},
	} {
		m := order()
		p := through.Program{Command: c.command, Timeout: time.Minute, Input: encode}
		if err := p.Change(t.Context(), m); err == nil || !strings.Contains(err.Error(), c.want) || len(err.Error()) > 600 {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// A program that hangs ends with its children, after the time-out or with the caller.
func TestAProgramThatHangsIsEnded(t *testing.T) {
	t.Parallel()
	p := through.Program{Command: "sleep 600 | cat", Timeout: 50 * time.Millisecond, Input: encode}
	if err := p.Change(t.Context(), order()); err == nil || !strings.Contains(err.Error(), "did not end within 50ms") {
		t.Errorf("%v", err)
	}
	p.Timeout = time.Hour
	ctx, stop := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, stop)
	if err := p.Change(ctx, order()); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// No output of a program makes a panic, and a body that the output does not name stays as it is.
func FuzzOutput(f *testing.F) {
	for _, s := range []string{"", "{}", `{"body":"bmV3"}`, `{"headers":[{"name":"tenant","value":null}]}`, `{"headers":[]}`, `{"key":"?"}`, "[1]", `{"body_text":"\u0000"}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, output []byte) {
		m := order()
		input, err := encode(m)
		if err != nil {
			t.Fatal(err)
		}
		if err := through.ReadOutput(m, input, output); err == nil && !bytes.Contains(output, []byte("body")) && string(m.Body) != "20 EURO" && !bytes.Contains(bytes.ToLower(output), []byte("body")) && !bytes.Contains(output, []byte(`\u`)) {
			t.Errorf("%q makes the body %q", output, m.Body)
		}
	})
}
