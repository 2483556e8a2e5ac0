package sidecar

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/redeliver/redeliver"
)

// For any answer to a batch, each message has at most one answer, an invalid answer as a whole has no effect, and no
// wait exceeds the maximum.
func FuzzDecodeAnswers(f *testing.F) {
	f.Add([]byte(`{"answers":[{"index":0,"answer":"ack"},{"index":1,"answer":"retry","delay":"30s","reason":"busy"},{"index":2,"answer":"reject"}]}`), 3)
	f.Add([]byte(`{"answers":[{"index":0,"answer":"ack"},{"index":0,"answer":"ack"}]}`), 3)
	f.Add([]byte(`{"answers":[{"index":-1}]}`), 1)
	f.Add([]byte(`{"answers":[{"index":0,"answer":"retry","delay":"2562047h"}]}`), 1)
	f.Add([]byte(`{"answers":null}`), 1)
	f.Add([]byte(" "), 1)
	f.Fuzz(func(t *testing.T, text []byte, n int) {
		n = max(1, min(n, 100))
		seen := map[int]bool{}
		err := decodeAnswers(text, n, func(i int, err error) {
			if i < 0 || i >= n || seen[i] {
				t.Errorf("answer to %d of %d", i, n)
			}
			seen[i] = true
			d := redeliver.Policy{}.Decide(redeliver.State{Attempts: 0}, err, time.Unix(1e9, 0))
			if err != nil && (d.Delay < 0 || d.Delay > redeliver.MaxWait) {
				t.Errorf("%v waits %s", err, d.Delay)
			}
		})
		if err != nil && len(seen) > 0 {
			t.Errorf("%d answers, and %v", len(seen), err)
		}
	})
}

// For any response of a server, only 2xx means done, and every wait is valid.
func FuzzVerdict(f *testing.F) {
	f.Add(503, "120", []byte("busy"))
	f.Add(429, "Fri, 31 Dec 9999 23:59:59 GMT", []byte{})
	f.Add(429, "99999999999999999999", []byte("\xff\xfe"))
	f.Add(302, "-1", []byte(strings.Repeat("語", 1000)))
	f.Add(200, "0", []byte(nil))
	now := time.Date(2026, 3, 14, 15, 9, 26, 0, time.UTC)
	f.Fuzz(func(t *testing.T, code int, after string, body []byte) {
		text := firstWords(body)
		if len(text) > maxText || strings.ContainsAny(text, "\r\n") || len(lastWords(body)) > maxText {
			t.Errorf("%q is said of %q", text, body)
		}
		err := Statuses(nil).errorOfStatus(code, http.Header{"Retry-After": {after}, "Location": {after}}, text, now)
		if (err == nil) != (code >= 200 && code < 300) {
			t.Errorf("%d is %v", code, err)
		}
		if d, ok := retryAfter(after, now); ok && (d <= 0 || d > redeliver.MaxWait) {
			t.Errorf("%q waits %s", after, d)
		}
	})
}

// For any message, a child's environment is valid, and everything that does not fit there is passed separately.
func FuzzEnvironment(f *testing.F) {
	f.Add("trace-id=1\nTrace_Id=2\ncontent-type=a/b", []byte("key"))
	f.Add("\x00=\x00\nPATH=/tmp\nredeliver-broker=x\n=y", []byte("\x00"))
	f.Add("a="+strings.Repeat("x", 40<<10), []byte(nil))
	f.Fuzz(func(t *testing.T, block string, key []byte) {
		m := &Message{Key: key, State: redeliver.State{ID: "1", Group: "billing", Origin: "orders"}}
		for line := range strings.SplitSeq(block, "\n") {
			name, value, _ := strings.Cut(line, "=")
			m.Headers = append(m.Headers, Header{name, value})
		}
		env, rest := environment(m)
		names, size := map[string]bool{}, 0
		for _, e := range env {
			name, _, _ := strings.Cut(e, "=")
			size += len(e)
			if !strings.HasPrefix(name, ourPrefix) || strings.ContainsRune(e, 0) || names[name] {
				t.Errorf("the environment has %q", e)
			}
			names[name] = true
		}
		if size > 2*maxEnvironment || !json.Valid(rest) {
			t.Errorf("%d bytes of environment, and in addition %q", size, rest)
		}
		var over *jsonMessage
		if err := json.Unmarshal(rest, &over); err != nil || over == nil {
			t.Error(errors.Join(err, errors.New("descriptor 3 cannot be parsed")))
		}
	})
}
