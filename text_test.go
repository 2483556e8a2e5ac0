package redeliver_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/limits"
)

func TestCutEndsAtACharacter(t *testing.T) {
	for _, row := range []struct {
		in   string
		most int
		want string
	}{
		{"", 0, ""}, {"", 5, ""}, {"abc", 3, "abc"}, {"abc", 2, "ab"}, {"abc", 0, ""},
		{"abc", -1, ""},
		{"aé", 3, "aé"}, {"aé", 2, "a"}, {"語語", 5, "語"}, {"語語", 3, "語"}, {"語", 2, ""}, {"語", 1, ""},
		{"a😀b", 5, "a😀"}, {"a😀b", 4, "a"}, {"a😀b", 2, "a"}, {"😀", 3, ""},
		{"a\xff\xfeb", 10, "a?b"}, {"\xff\xff\xff\xff\xff\xff", 5, "?"}, {"\x80\x80\x80\x80\x80\x80", 5, "?"}, {"ok\xe8", 10, "ok?"},
	} {
		if got := limits.Cut(row.in, row.most); got != row.want {
			t.Errorf("Cut(%q, %d) is %q, want %q", row.in, row.most, got, row.want)
		}
	}
}

func FuzzCut(f *testing.F) {
	f.Add("plain", 3)
	f.Add("語😀é", 4)
	f.Add("\x80\x80\x80\x80\x80\x80\xff", 5)
	f.Add("x", -1)
	f.Fuzz(func(t *testing.T, s string, most int) {
		got := limits.Cut(s, most)
		if len(got) > max(0, most) || !utf8.ValidString(got) {
			t.Fatalf("Cut(%q, %d) is %q", s, most, got)
		}
		if limits.Cut(got, most) != got {
			t.Fatalf("cutting %q again changes it", got)
		}
		if utf8.ValidString(s) {
			if !strings.HasPrefix(s, got) {
				t.Fatalf("%q does not begin with %q", s, got)
			}
			// The cut text has all characters for which there is room.
			if rest := s[len(got):]; rest != "" && most >= 0 {
				if _, n := utf8.DecodeRuneInString(rest); len(got)+n <= most {
					t.Fatalf("Cut(%q, %d) is %q, and another character would fit", s, most, got)
				}
			}
		}
	})
}

func TestRedactRemovesCredentials(t *testing.T) {
	for _, row := range []struct{ in, want string }{
		// Secrets.
		{"dial amqp://guest:guest@rabbit:5672/vhost: refused", "dial amqp://***@rabbit:5672/vhost: refused"},
		{"amqp://guest@rabbit/", "amqp://***@rabbit/"},
		{"https://ghp_token@github.com/a/b@v1", "https://***@github.com/a/b@v1"},
		{"redis://:secret@h:1", "redis://***@h:1"},
		{"kafka+tls://user:p@ss@host:9093?sasl=scram-sha-512", "kafka+tls://***@host:9093?sasl=scram-sha-512"},
		{"kafka://u:p@h1:9092,u:p@h2:9092", "kafka://***@h2:9092"},
		{"joe@corp:secret in http://joe@corp:secret@h/", "joe@corp:secret in http://***@h/"}, // only URLs are promised
		{"first amqp://a:b@h/ then http://c:d@i/", "first amqp://***@h/ then http://***@i/"},
		// Passwords that break the rules of URLs.
		{"amqp://u:pa/ss@h/", "amqp://***@h/"},
		{"amqp://u:p?s@h/", "amqp://***@h/"},
		{"amqp://u:p@s/w@h/", "amqp://***@h/"},
		{"amqp://u:it's@h/", "amqp://***@h/"},
		{"amqp://u:a<b>@h/", "amqp://***@h/"},
		{"amqp://joe@corp:p#s@h/", "amqp://***@h/"},
		{`parse "amqp://guest:p#ss@h:5672/": invalid port ":p" after host`, `parse "amqp://***@h:5672/": invalid port ":p" after host`},
		{`parse "amqp://guest:p\"x@h/": net/url: invalid userinfo`, `parse "amqp://***@h/": net/url: invalid userinfo`},
		{"https://proxy/fetch?url=amqp://u:secret@h/", "https://proxy/fetch?url=amqp://***@h/"},
		{"https://x.y/a,amqp://u:secret@h/", "https://x.y/a,amqp://***@h/"},
		// Query strings and connection strings.
		{"GET https://h/?password=a&x=1", "GET https://h/?password=***&x=1"},
		{"https://q.aws/?a=b&X-Amz-Signature=0f&X-Amz-Date=1", "https://q.aws/?a=b&X-Amz-Signature=***&X-Amz-Date=1"},
		{"?X-Amz-Security-Token=x%2F&X-Amz-Credential=AKIA%2F1", "?X-Amz-Security-Token=***&X-Amz-Credential=***"},
		{"https://h/?token=a&api_key=b&apikey=c&api-key=d&sig=e", "https://h/?token=***&api_key=***&apikey=***&api-key=***&sig=***"},
		{"https://h/?client_secret=a;refresh_token=b", "https://h/?client_secret=***;refresh_token=***"},
		{"https://h/cb#access_token=c", "https://h/cb#access_token=***"},
		{"https://h/?password=a#b", "https://h/?password=***"}, // perhaps a fragment, perhaps half a password
		{"Endpoint=sb://h/;SharedAccessKeyName=n;SharedAccessKey=k=", "Endpoint=sb://h/;SharedAccessKeyName=n;SharedAccessKey=***"},
		// No secrets.
		{"", ""},
		{"card declined, ask joe@example.com", "card declined, ask joe@example.com"},
		{"cannot reach http://localhost:8080/users/@me", "cannot reach http://localhost:8080/users/@me"},
		{"go: https://pkg.go.dev/github.com/foo@v1.2.3", "go: https://pkg.go.dev/github.com/foo@v1.2.3"},
		{"kafka://h1:9092,h2:9092/a@b", "kafka://h1:9092,h2:9092/a@b"},
		{"http://[::1]:8080/a@b", "http://[::1]:8080/a@b"},
		{"no such file:///users/@me/a@b", "no such file:///users/@me/a@b"},
		{"https://x.y/z, mail joe@x.y", "https://x.y/z, mail joe@x.y"},
		{`{"url":"http://h:1/","mail":"a@b.c"}`, `{"url":"http://h:1/","mail":"a@b.c"}`},
		{"token=plain text, not in a URL", "token=plain text, not in a URL"},
		{"https://h/?design=1&tokens=2&signal=3", "https://h/?design=1&tokens=2&signal=3"},
		{"a == b && c != d: mismatch", "a == b && c != d: mismatch"},
	} {
		got := redeliver.Redact(row.in)
		if got != row.want {
			t.Errorf("Redact(%q)\n got %q\nwant %q", row.in, got, row.want)
		}
		if twice := redeliver.Redact(got); twice != got {
			t.Errorf("redacting %q again gives %q", got, twice)
		}
	}
}

// An error's text is cut before it is redacted. A URL that is cut must not keep a part of its password.
func TestErrorTextDoesNotLeakAtTheCut(t *testing.T) {
	const secret = "hunter2hunter2"
	signed := "https://q.aws/?X-Amz-Security-Token=" + strings.Repeat("x", 1300) + " "
	for pad := range 40 {
		text := strings.Repeat(signed, 3) + strings.Repeat(".", pad) + " amqp://u:" + secret + strings.Repeat("y", 500) + "@h/"
		got := redeliver.Policy{}.Decide(redeliver.State{}, errors.New(text), now).State.Error
		if strings.Contains(got, "hunter") || !strings.HasPrefix(got, "https://q.aws/?X-Amz-Security-Token=*** ") {
			t.Fatalf("with %d bytes before it: %q", pad, got)
		}
	}
}

// Only a text that is too long is cut at a URL, and only where its last word is one. The end of a text stays: it has the cause.
func TestErrorTextKeepsHarmlessText(t *testing.T) {
	long := strings.Repeat("y", 4*limits.MaxErrorText)
	for name, row := range map[string]struct{ text, want string }{
		"a long word":              {"boom " + long, limits.CutMiddle("boom "+long, limits.MaxErrorText)},
		"a URL":                    {"dial amqp://u:hunter2" + long, "dial amqp://"},
		"a URL without its scheme": {"dial ://u:hunter2" + long, "dial ://"},
		"just not too long":        {("see https://h/" + long)[:4*limits.MaxErrorText], limits.CutMiddle(("see https://h/" + long)[:4*limits.MaxErrorText], limits.MaxErrorText)},
		"one byte too long":        {("see https://h/" + long)[:4*limits.MaxErrorText+1], "see https://"},
	} {
		if got := (redeliver.Policy{}).Decide(redeliver.State{}, errors.New(row.text), now).State.Error; got != row.want {
			t.Errorf("%s: %q, want %q", name, got, row.want)
		}
	}
}

// FuzzRedact puts a password into a URL, both unescaped and as net/url writes it.
func FuzzRedact(f *testing.F) {
	f.Add("guest", "guest", "", "refused")
	f.Add("u", "p@ss/w?o#r:d", "/vhost", ": dial")
	f.Add("joe@corp", `it's "a"`, "/a@b", "x@y")
	f.Add("", "1234#x", "?a=b", "amqp://h/")
	f.Add("u", "[::1]", "", "")
	f.Fuzz(func(t *testing.T, user, password, _, text string) {
		redeliver.Redact(password + text) // any text: no panic
		// Escaped, every password is valid. The marker makes it unique.
		secret := "S3cr3t" + password
		u := url.URL{Scheme: "amqp", User: url.UserPassword(user, secret), Host: "rabbit:5672"}
		for _, in := range []string{"dial " + u.String(), fmt.Sprintf("dial %q: no", u.String())} {
			if got := redeliver.Redact(in); strings.Contains(got, "S3cr3t") || !strings.Contains(got, "rabbit:5672") {
				t.Fatalf("Redact(%q) is %q", in, got)
			}
		}
		// An unescaped password must not have characters that end the word.
		if raw := user + ":" + secret; !strings.ContainsAny(raw, " \t\n\r\v\f\"\\/?#") {
			if got := redeliver.Redact("dial amqp://" + raw + "@rabbit:5672" + "/"); strings.Contains(got, "S3cr3t") {
				t.Fatalf("Redact leaks %q: %q", raw, got)
			}
		}
	})
}

type ownError struct{ error }

// The type is the first in the chain that is no wrapper.
func TestErrorTypeLooksThroughWrappers(t *testing.T) {
	cause := ownError{errBoom}
	wrap := func(err error) error { return fmt.Errorf("x: %w", err) }
	for name, row := range map[string]struct {
		err  error
		want string
	}{
		"plain":                 {errBoom, "*errors.errorString"},
		"own type":              {cause, "redeliver_test.ownError"},
		"wrapped twice":         {wrap(wrap(cause)), "redeliver_test.ownError"},
		"joined":                {errors.Join(cause, errBoom), "redeliver_test.ownError"},
		"joined, wrapped":       {wrap(errors.Join(wrap(cause), errBoom)), "redeliver_test.ownError"},
		"two %w":                {fmt.Errorf("%w and %w", cause, errBoom), "redeliver_test.ownError"},
		"permanent":             {redeliver.Permanent(wrap(cause)), "redeliver_test.ownError"},
		"retry after":           {wrap(redeliver.RetryAfter(cause, time.Second)), "redeliver_test.ownError"},
		"postponed":             {redeliver.Postpone(cause), "redeliver_test.ownError"},
		"a panic stays a panic": {&redeliver.PanicError{Value: cause}, "*redeliver.PanicError"},
		"timeout":               {wrap(&redeliver.TimeoutError{}), "*redeliver.TimeoutError"},
		"of the library":        {wrap(context.DeadlineExceeded), "context.deadlineExceededError"},
	} {
		if got := (redeliver.Policy{}).Decide(redeliver.State{}, row.err, now).State.ErrorType; got != row.want {
			t.Errorf("%s: type %q, want %q", name, got, row.want)
		}
	}
}

// A text that should be an address but is none is shown without secrets.
func TestRedactAddressHidesUsers(t *testing.T) {
	for in, want := range map[string]string{
		"localhost:9092":          "localhost:9092",
		"kafka://u:secret@h:9092": "***@h:9092",
		"u:secret@h:9092":         "***@h:9092",
		"amqp://u:se cret@h":      "***@h",
		"amqp//u:sec@ret@h":       "***@h",
		"http://h/?password=a":    "http://h/?password=***",
		"@h:9092":                 "***@h:9092",
	} {
		if got := redeliver.RedactAddress(in); got != want {
			t.Errorf("%s became %s, want %s", in, got, want)
		}
	}
}
