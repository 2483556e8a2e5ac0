package sidecar

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/redeliver/redeliver"
)

var noon = time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)

// Each status has a meaning.
func TestVerdict(t *testing.T) {
	const done, again, never = "done", "again", "never"
	for code, want := range map[int]string{
		200: done, 201: done, 202: done, 204: done, 299: done,
		101: again, 300: again, 301: again, 302: again, 304: again, 307: again, 308: again,
		400: never, 401: never, 403: never, 404: never, 405: never, 410: never, 413: never, 415: never, 422: never, 451: never, 499: never,
		408: again, 409: again, 425: again, 429: again, 431: again,
		500: again, 501: again, 502: again, 503: again, 504: again, 599: again, 999: again,
	} {
		// Retry-After applies only to 429 and 503: 1 h must not affect others.
		err := errorOfStatus(code, http.Header{"Retry-After": {"3600"}}, "the bank is closed", noon)
		got := again
		switch {
		case err == nil:
			got = done
		case errors.Is(err, redeliver.ErrPermanent):
			got = never
		}
		if got != want {
			t.Errorf("%d is %q: %v; want %q", code, got, err, want)
		}
		after, says := errors.AsType[*redeliver.RetryAfterError](err)
		if says != (code == 429 || code == 503) || says && after.After != time.Hour {
			t.Errorf("%d: when to try again is %v", code, after)
		}
		pause, says := errors.AsType[*redeliver.PauseError](errorOfStatus(code, http.Header{"Retry-After": {"3600"}, pauseHeader: {"60"}}, "the bank is closed", noon))
		if says != (code == 429 || code == 503) || says && pause.Duration != time.Minute {
			t.Errorf("%d: the pause is %v", code, pause)
		}
		if err == nil {
			continue
		}
		status, ok := errors.AsType[*StatusError](err)
		if !ok || status.Code != code {
			t.Errorf("%d: %T", code, err)
		}
		if redirect := code >= 300 && code < 400; strings.Contains(err.Error(), "redirects are not followed") != redirect || strings.Contains(err.Error(), "the bank is closed") == redirect {
			t.Errorf("%d says %q", code, err)
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
		dec := (&redeliver.Policy{MaxRetries: 3, Classify: Classify}).Decide(redeliver.State{}, errorOfStatus(code, nil, "", time.Now()), time.Now())
		if dec.Action != redeliver.RetryLater || dec.MessageAtFault != want {
			t.Errorf("%d: %v, the message is at fault: %v", code, dec.Action, dec.MessageAtFault)
		}
	}
	if Classify(errors.New("other")).MessageAtFault {
		t.Error("another error is the message's")
	}
}
