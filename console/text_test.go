package console

import (
	"bytes"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"
)

// A message whose indentation would take gigabytes is shown unchanged.
func TestADeeplyNestedMessageIsNotIndented(t *testing.T) {
	deep := strings.Repeat("[", 5000) + strings.Repeat("1,", 100_000) + "1" + strings.Repeat("]", 5000)
	if p := newPayload([]byte(deep)); p.Pretty != "" || p.Text == "" {
		t.Errorf("it became %d bytes", len(p.Pretty))
	}
	flat := `{"a":[` + strings.Repeat(`"[[[[\"[[[[",`, 10_000) + `1]}`
	if p := newPayload([]byte(flat)); p.Kind != "JSON" || p.Pretty == "" {
		t.Error("brackets within texts count as brackets")
	}
}

func TestAPayloadIsShownAsItIs(t *testing.T) {
	for body, kind := range map[string]string{
		`{"a":1e400,"b":0.10,"a":2}`: "JSON", "1": "JSON", "{": "text", "": "text", "\x00": "binary", "\xc3\x28": "binary", "ä": "text",
	} {
		p := newPayload([]byte(body))
		if p.Kind != kind || p.Null || p.Size != len(body) {
			t.Errorf("%q is %+v", body, p)
		}
		if kind == "JSON" && strings.Join(strings.Fields(p.Pretty), "") != body {
			t.Errorf("%s is indented as %s", body, p.Pretty)
		}
	}
	if !newPayload(nil).Null {
		t.Error("null is empty")
	}
	long := newPayload(bytes.Repeat([]byte("ä"), maxText))
	if !long.TextCut || !long.HexCut || len(long.Text) > maxText+3 || !utf8.ValidString(long.Text) || strings.Count(long.Hex, "\n") != maxHex/16 {
		t.Errorf("a long one has %d bytes of text and %d lines of hex", len(long.Text), strings.Count(long.Hex, "\n"))
	}
}

// The text that is shown for any bytes has only visible characters.
func FuzzVisible(f *testing.F) {
	f.Add("plain\ttext\n")
	f.Add("\x1b[31m\u202e\u200b\xff\r\U000e0001")
	f.Fuzz(func(t *testing.T, s string) {
		v := escapeInvisible(s)
		if !utf8.ValidString(v) || strings.ContainsFunc(v, isInvisible) {
			t.Errorf("%q is shown as %q", s, v)
		}
		if !strings.ContainsFunc(s, isInvisible) && v != s {
			t.Errorf("%q was changed to %q", s, v)
		}
		newPayload([]byte(s))
	})
}

// An address that is parsed and written again has the same meaning.
func FuzzFilter(f *testing.F) {
	f.Add("fp=a&fp=b&key=k&header=h&value=v&after=2026-01-02T03:04&reason=exhausted")
	f.Add("key=base64:AP8&id=%00&before=2026-01-02T03:04:05Z&header=base64:/w&value=base64:&header=a&value=b%00")
	f.Add("key=base64:&header=a&value=")
	f.Fuzz(func(t *testing.T, query string) {
		v, err := url.ParseQuery(query)
		if err != nil {
			return
		}
		one, err := readFilter(v)
		if err != nil {
			return
		}
		again := url.Values{}
		writeFilter(again, &one)
		two, err := readFilter(again)
		if err != nil || !reflect.DeepEqual(two, one) {
			t.Errorf("%+v became %+v: %v", one, two, err)
		}
	})
}
