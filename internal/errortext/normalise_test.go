package errortext_test

import (
	"strings"
	"testing"

	"github.com/redeliver/redeliver/internal/errortext"
)

func TestNormalise(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                                 "",
		"card declined":                    "card declined",
		"order 17 of customer 0042 failed": "order <n> of customer <n> failed",
		"order17 took 1.5s":                "order<n> took <n>s",
		"dial tcp 10.0.0.7:5432: connect: connection refused": "dial tcp <n>: connect: connection refused",
		"1,000.5 of 2, or 3. That: 4.":                        "<n> of <n>, or <n>. That: <n>.",
		"refused by 10.0.0.7:5432":                            "refused by <n>",
		"7.x and 8:y, 9,":                                     "<n>.x and <n>:y, <n>,",
		"at 2026-11-21T10:11:12Z":                             "at <n>-<n>-<n>T<n>:<n>Z",
		"Größe 5 überschritten":                               "Größe <n> überschritten",

		"no row for 7f3c9a52-1b2d-4e5f-8a9b-0c1d2e3f4a5b":                  "no row for <uuid>",
		"7F3C9A52-1B2D-4E5F-8A9B-0C1D2E3F4A5B, gone":                       "<uuid>, gone",
		"7f3c9a52-1b2d-4e5f-8a9b-0c1d2e3f4a5bz":                            "<hex>-<n>b<n>d-<n>e<n>f-<n>a<n>b-<n>c<n>d<n>e<n>f<n>a<n>bz",
		"7f3c9a52-1b2d-4e5f-8a9b-0c1d2e3f4a5":                              "<hex>-<n>b<n>d-<n>e<n>f-<n>a<n>b-<hex>",
		"7f3c9a52-1b2d-4e5f-8a9b-0c1d2e3f4a5g":                             "<hex>-<n>b<n>d-<n>e<n>f-<n>a<n>b-<n>c<n>d<n>e<n>f<n>a<n>g",
		"7f3c9a52+1b2d-4e5f-8a9b-0c1d2e3f4a5b":                             "<hex>+<n>b<n>d-<n>e<n>f-<n>a<n>b-<hex>",
		"7f3c9a52-1b2d+4e5f-8a9b-0c1d2e3f4a5b":                             "<hex>-<n>b<n>d+<n>e<n>f-<n>a<n>b-<hex>",
		"7f3c9a52-1b2d-4e5f+8a9b-0c1d2e3f4a5b":                             "<hex>-<n>b<n>d-<n>e<n>f+<n>a<n>b-<hex>",
		"7f3c9a52-1b2d-4e5f-8a9b+0c1d2e3f4a5b":                             "<hex>-<n>b<n>d-<n>e<n>f-<n>a<n>b+<hex>",
		"7f3c9a5-21b2d-4e5f-8a9b-0c1d2e3f4a5b":                             "<hex>-<n>b<n>d-<n>e<n>f-<n>a<n>b-<hex>",
		"bad digest deadbeef01 and 0xFF, 0X1":                              "bad digest <hex> and <hex>, <hex>",
		"abcd12 is six, abcd1 is five, abcdef has no digit":                "<hex> is six, abcd<n> is five, abcdef has no digit",
		"0x is no number, nor 0xfg1, 1xff, 0yff":                           "<n>x is no number, nor <n>xfg<n>, <n>xff, <n>yff",
		"beefed facade added":                                              "beefed facade added",
		`no such tenant "acme \"inc\""`:                                    "no such tenant <text>",
		"column 'it''s'":                                                   "column <text><text>",
		"'it's so' they say, `x` too":                                      "<text> they say, <text> too",
		"can't open the customer's file":                                   "can't open the customer's file",
		"an unfinished \"quotation 5":                                      "an unfinished \"quotation <n>",
		"\"two\nlines\"":                                                   "\"two\nlines\"",
		`"a"b "c"d`:                                                        "<text>b <text>d",
		"\"" + strings.Repeat("x", 511) + "\"":                             "<text>",
		"\"" + strings.Repeat("x", 512) + "\"":                             "\"" + strings.Repeat("x", 512) + "\"",
		strings.Repeat("x", 400) + " \"" + strings.Repeat("y", 400) + "\"": strings.Repeat("x", 400) + " <text>",
		"x'" + strings.Repeat("\\", 3) + "'y\"" + `\\"` + " z'1":           "x'\\\\\\'y<text> z'<n>",
	} {
		if got := errortext.Normalise(text); got != want {
			t.Errorf("%q is normalised to %q, want %q", text, got, want)
		}
	}
}

// The class of a byte decides where a word, a number and a quotation begin. Bytes above ASCII belong to words, because UTF-8 has letters
// there.
func TestNormaliseAcceptsEveryByte(t *testing.T) {
	t.Parallel()
	const digits, hexes, others = "0123456789", "abcdefABCDEF", "ghijklmnopqrstuvwxyzGHIJKLMNOPQRSTUVWXYZ"
	for i := range 256 {
		c := string([]byte{byte(i)})
		stands, number, quotation := c, "<n>"+c, "<text>"
		switch {
		case strings.Contains(digits, c):
			stands, number, quotation = "<n>", "<n>", "'x'"
		case strings.Contains(hexes, c):
			number, quotation = "<hex>", "'x'"
		case strings.Contains(others, c) || i >= 0x80:
			quotation = "'x'" // an apostrophe within a word
		}
		for text, want := range map[string]string{"word" + c: "word" + stands, "12345" + c: number, c + "'x'": stands + quotation} {
			if text == "''x'" {
				want = "<text>" // the second is within a word
			}
			if got := errortext.Normalise(text); got != want {
				t.Errorf("%q is normalised to %q, want %q", text, got, want)
			}
		}
	}
}

func FuzzNormalise(f *testing.F) {
	f.Add("order 17: \"x\" 'y 7f3c9a52-1b2d-4e5f-8a9b-0c1d2e3f4a5b 0xfe")
	f.Add("'\\")
	f.Fuzz(func(t *testing.T, text string) {
		got := errortext.Normalise(text)
		if len(got) > 6*len(text)+6 {
			t.Errorf("%q grew to %d bytes", text, len(got))
		}
		if rest := strings.NewReplacer("<n>", "", "<hex>", "", "<uuid>", "", "<text>", "").Replace(got); !strings.ContainsAny(text, "\"'`") && strings.ContainsAny(rest, "0123456789") {
			t.Errorf("%q still has digits: %q", text, got)
		}
	})
}

func BenchmarkNormalise(b *testing.B) {
	text := `charging order 8817: dial tcp 10.0.0.7:5432: no row for "7f3c9a52" in tenant acme, try 3 of 4 after 1.5s`
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		errortext.Normalise(text)
	}
}
