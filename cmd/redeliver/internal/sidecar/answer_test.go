package sidecar

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/redeliver/redeliver"
)

var noon = time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)

// Each status has a meaning, unless the user gives it another one.
func TestVerdict(t *testing.T) {
	const done, again, never, gone = "done", "again", "never", "gone"
	for code, want := range map[int]string{
		200: done, 201: done, 202: done, 204: done, 299: done,
		300: gone, 301: gone, 302: gone, 304: gone, 307: gone, 308: gone, 401: gone, 403: gone, 404: gone, 405: gone, 407: gone, 502: gone, 503: gone, 504: gone,
		400: never, 410: never, 413: never, 415: never, 422: never, 451: never, 499: never,
		101: again, 408: again, 409: again, 425: again, 429: again, 431: again, 500: again, 501: again, 505: again, 599: again, 999: again,
	} {
		for meaning, changed := range map[Meaning]string{"": want, Ack: done, Retry: again, Reject: never, Unreachable: gone} {
			var s Statuses
			if meaning != "" {
				s = Statuses{code: meaning, 42: Ack}
			}
			// Retry-After applies only to 429 and 503: 1 h must not affect others.
			err := s.errorOfStatus(code, http.Header{"Retry-After": {"3600"}}, "the bank is closed", noon)
			got := again
			switch {
			case err == nil:
				got = done
			case errors.Is(err, redeliver.ErrPermanent):
				got = never
			case Classify(err).Unreachable:
				got = gone
			}
			if got != changed {
				t.Errorf("%d, given %q, is %q: %v; want %q", code, meaning, got, err, changed)
			}
			waits := (code == 429 || code == 503) && got != done && got != never
			after, says := errors.AsType[*redeliver.RetryAfterError](err)
			if says != waits || says && after.After != time.Hour {
				t.Errorf("%d: when to try again is %v", code, after)
			}
			pause, says := errors.AsType[*redeliver.PauseError](s.errorOfStatus(code, http.Header{"Retry-After": {"3600"}, pauseHeader: {"60"}}, "the bank is closed", noon))
			if says != waits || says && pause.Duration != time.Minute {
				t.Errorf("%d: the pause is %v", code, pause)
			}
			if err == nil {
				continue
			}
			status, ok := errors.AsType[*StatusError](err)
			if !ok || status.Code != code {
				t.Errorf("%d: %T", code, err)
			}
			if redirect := code >= 300 && code < 400 && got != never; strings.Contains(err.Error(), "redirects are not followed") != redirect || strings.Contains(err.Error(), "the bank is closed") == redirect {
				t.Errorf("%d says %q", code, err)
			}
		}
	}
}

// A server that gets http:// on a TLS port is the wrong one. Any other 400 is about the message.
func TestABadRequestMayBeAboutTLS(t *testing.T) {
	for text, want := range map[string]bool{
		"Client sent an HTTP request to an HTTPS server.": true, "<h1>The plain HTTP request was sent to HTTPS port</h1>": true,
		"You're speaking plain HTTP to an SSL-enabled server port.": true, "no such card": false, "": false,
	} {
		err := Statuses(nil).errorOfStatus(400, nil, text, noon)
		if gone := Classify(err).Unreachable; gone != want || errors.Is(err, redeliver.ErrPermanent) == want {
			t.Errorf("%q: %t, %v", text, gone, err)
		}
	}
}

// Only a status with one of the meanings can be given, and each once.
func TestParseStatuses(t *testing.T) {
	for _, c := range []struct {
		command bool
		all     string
		want    string
	}{
		{false, "", ""}, {false, "404=reject", "map[404:reject]"}, {false, "300=retry 599=unreachable 409=ack", "map[300:retry 409:ack 599:unreachable]"}, {true, "1=reject 255=ack 126=retry", "map[1:reject 126:retry 255:ack]"},
		{false, "404", "must be CODE=MEANING"}, {false, "404=", "must be CODE=MEANING"}, {false, "=reject", "must be CODE=MEANING"}, {false, "404=drop", "MEANING is ack, retry, reject or unreachable"}, {false, "4xx=reject", "must be CODE=MEANING"}, {false, "404=Reject", "must be CODE=MEANING"},
		{false, "204=retry", "2xx always means ack"}, {false, "299=ack", "2xx always means ack"}, {false, "600=ack", "from 300 to 599"}, {false, "100=ack", "from 300 to 599"}, {false, "-1=ack", "from 300 to 599"}, {true, "0=retry", "from 1 to 255"}, {true, "256=retry", "from 1 to 255"},
		{false, "404=reject 404=retry", "404 is given twice"}, {false, "404=reject 0404=reject", "404 is given twice"},
	} {
		s, err := ParseStatuses(strings.Fields(c.all), c.command)
		got := ""
		switch {
		case err != nil:
			got = err.Error()
		case s != nil:
			got = fmt.Sprint(s)
		}
		if !strings.Contains(got, c.want) || (got == "") != (c.want == "") || (err == nil) != (c.want == "" || strings.HasPrefix(c.want, "map")) {
			t.Errorf("%q: %s, want %s", c.all, got, c.want)
		}
	}
}

func TestRetryAfter(t *testing.T) {
	in := func(d time.Duration) string { return noon.Add(d).Format(http.TimeFormat) }
	for text, want := range map[string]time.Duration{ // 0: the policy decides
		"1": time.Second, "120": 2 * time.Minute, " 5 ": 5 * time.Second,
		in(time.Minute): time.Minute, in(36 * time.Hour): 36 * time.Hour, noon.Add(time.Hour).Format(time.ANSIC): time.Hour,
		"31622400": redeliver.MaxWait,
		"":         0, "0": 0, "-1": 0, "+1": 0, "1.5": 0, "1e3": 0, "0x10": 0, "soon": 0, "60, 120": 0,
		"31622401": 0, "9223372036": 0, "9223372036854775807": 0, "18446744073709551616": 0, strings.Repeat("9", 1000): 0,
		in(-time.Hour): 0, in(0): 0, in(10 * 366 * 24 * time.Hour): 0, "Thu, 01 Jan 1970 00:00:00 GMT": 0, "Fri, 31 Dec 9999 23:59:59 GMT": 0,
	} {
		d, ok := retryAfter(text, noon)
		if ok != (want > 0) || ok && d != want {
			t.Errorf("%q is %s, %t; want %s", text, d, ok, want)
		}
	}
}

// The output of a program becomes one line of an error, within its limit.
func TestOutputBecomesOneLine(t *testing.T) {
	long := strings.Repeat("ä", maxText)
	for _, c := range []struct{ said, first, last string }{
		{"", "", ""},
		{"no\r\nsuch\tcard\n", "no such card", "no such card"},
		{"\xff\xfe", "?", "?"},
		{"begin " + long + " end", "begin " + strings.Repeat("ä", (maxText-6)/2), strings.Repeat("ä", (maxText-4)/2) + " end"},
	} {
		first, last := firstWords([]byte(c.said)), lastWords([]byte(c.said))
		if first != c.first || last != c.last || !utf8.ValidString(last) || len(first) > maxText || len(last) > maxText {
			t.Errorf("%.20q is %q and %q", c.said, first, last)
		}
	}
}

// A conflict is retried, and is no sign of an outage.
func TestAConflictIsNoSignOfAnOutage(t *testing.T) {
	for code, want := range map[int]bool{http.StatusConflict: true, http.StatusInternalServerError: false, http.StatusServiceUnavailable: false} {
		dec := (&redeliver.Policy{MaxRetries: 3, Classify: Classify}).Decide(redeliver.State{}, Statuses(nil).errorOfStatus(code, nil, "", time.Now()), time.Now())
		if dec.Action != redeliver.ActionRetryLater || dec.MessageAtFault != want {
			t.Errorf("%d: %v, the message is at fault: %v", code, dec.Action, dec.MessageAtFault)
		}
	}
	if Classify(errors.New("other")).MessageAtFault {
		t.Error("another error is the message's")
	}
}
