package cli_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/redeliver/redeliver/adapters/kafka"
)

// healthOf returns the health URL of a sidecar.
func (h *handling) healthOf(s *testKafka) string {
	s.t.Helper()
	var row struct {
		Health string `json:"health"`
	}
	s.await("it says where its health is", func() bool { return json.Unmarshal([]byte(h.out.String()), &row) == nil })
	return row.Health
}

// records returns the lines of a log, all of which must be JSON.
func records(t *testing.T, text string) (all []map[string]any) {
	t.Helper()
	for line := range strings.Lines(text) {
		var r map[string]any
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Errorf("%v: %q", err, line)
		}
		all = append(all, r)
	}
	return all
}

// A gateway answers for a handler that is away: while a route is missing, or a login is not accepted. That sends nothing to the DLQ,
// also after the handler has answered before, and the log and /readyz say why nothing happens. A message that gets such an answer while
// others are handled goes to the DLQ after its retries.
func TestRunBehindAGateway(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{
		"no retries": {"--retries", "0"},
		"retries":    {"--retries", "2", "--backoff", "fixed:1s"},
		"batches":    {"--retries", "2", "--batch", "5", "--batch-wait", "10ms"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newTestKafka(t)
			s.topics("payments")
			var away, handled atomic.Int32
			p := newProgram(t, func(w http.ResponseWriter, a asked) {
				switch code := int(away.Load()); {
				case code != 0:
					http.Error(w, "no such page", code)
				case strings.Contains(a.body, "kills"):
					http.Error(w, "its worker has ended", http.StatusBadGateway)
				default:
					handled.Add(int32(max(1, strings.Count(a.body, `"id":`))))
				}
			})
			h := s.handle(append(args, "--http", p.URL, "--log", "json", "--health", "127.0.0.1:0")...)
			health := h.healthOf(s)
			ready := func() (string, bool) {
				answer, err := http.Get(health + "/readyz")
				if err != nil {
					return "", false
				}
				defer answer.Body.Close()
				why, _ := io.ReadAll(answer.Body)
				return string(why), answer.StatusCode == http.StatusOK
			}
			for i, code := range []int32{http.StatusNotFound, http.StatusUnauthorized} {
				s.put(payments(fmt.Sprint("before ", i))...)
				s.await("it and all before it are handled", func() bool { return int(handled.Load()) >= 1+101*i })
				away.Store(code)
				for n := range 100 {
					s.put(payments(fmt.Sprintf("a%d-%d", i, n))...)
				}
				s.await("it is not ready", func() bool {
					why, ok := ready()
					return !ok && strings.Contains(why, "outage") && strings.Contains(why, "no such page")
				})
				away.Store(0)
				s.await("it is ready again", func() bool {
					_, ok := ready()
					return ok
				})
			}
			s.put(payments("kills")...)
			s.await("it is dead-lettered while others are handled", func() bool {
				s.put(payments("another")...)
				return s.written("payments.billing.dlq") > 0
			})
			if got := s.dead(1); got["kills"] != "exhausted: the handler answered 502 Bad Gateway: its worker has ended" {
				t.Errorf("in the DLQ are %q", got)
			}
			h.stop().want(t, 0)
			if n := s.written("payments.billing.dlq"); n != 1 {
				t.Errorf("%d are in the DLQ", n)
			}
		})
	}
}

// If a server accepts connections but does not answer, no attempt is counted. The message is postponed when half of the
// attempt's time is over.
func TestRunWithAHandlerThatSaysNothing(t *testing.T) {
	t.Parallel()
	s := newTestKafka(t)
	s.topics("payments")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	s.put(payments("a")...)
	h := s.handle("--http", "https://"+l.Addr().String(), "--retries", "0", "--timeout", "16s", "--drain", "100ms", "--health", "127.0.0.1:0")
	health := h.healthOf(s)
	s.await("it is not reached", func() bool {
		answer, err := http.Get(health + "/readyz")
		if err != nil {
			return false
		}
		defer answer.Body.Close()
		why, _ := io.ReadAll(answer.Body)
		return strings.Contains(string(why), "handshake timeout")
	})
	h.stop().want(t, 0)
	if n := s.written("payments.billing.dlq"); n != 0 {
		t.Errorf("%d are in the DLQ", n)
	}
}

// A message that fails every batch does not send others to the DLQ.
func TestRunBatchesWithOneThatFailsAll(t *testing.T) {
	t.Parallel()
	s := newTestKafka(t)
	s.topics("payments")
	var done sync.Map
	p := newProgram(t, func(w http.ResponseWriter, a asked) {
		var req struct {
			Messages []struct {
				BodyText string `json:"body_text"`
			} `json:"messages"`
		}
		if err := json.Unmarshal([]byte(a.body), &req); err != nil {
			t.Error(err)
		}
		if strings.Contains(a.body, "bad") {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		for _, m := range req.Messages {
			done.Store(m.BodyText, true)
		}
	})
	s.put(payments("a", "bad", "b")...)
	h := s.handle("--http", p.URL, "--batch", "3", "--batch-wait", "1s", "--retries", "1")
	if got := s.dead(1); got["bad"] != "exhausted: the handler answered 500 Internal Server Error" {
		t.Errorf("in the DLQ are %q", got)
	}
	s.await("the others are done", func() bool {
		_, a := done.Load("a")
		_, b := done.Load("b")
		return a && b
	})
	h.stop().want(t, 0)
	if n := s.written("payments.billing.dlq"); n != 1 {
		t.Errorf("%d are in the DLQ", n)
	}
}

// With a JSON log, each line of the command's output is also a record. The command's arguments are not logged.
func TestRunExecLogs(t *testing.T) {
	t.Parallel()
	s := newTestKafka(t)
	s.topics("payments")
	pay := payments("a")
	pay[0].Headers = append(pay[0].Headers, kgo.RecordHeader{Key: kafka.UUIDHeader, Value: []byte("\u202epay\u009b2J")})
	s.put(pay...)
	h := s.handle("--log", "json", "--retries", "0", "--exec", "--", "/bin/sh", "-c", `printf 'no such card\033[2J\n' >&2; exit 65`, "--token=s3cret")
	s.dead(1)
	got := h.stop().want(t, 0)
	said := slices.ContainsFunc(records(t, got.err), func(r map[string]any) bool {
		return r["msg"] == "output of the command" && r["id"] == `\u{202e}pay\u{9b}2J` && r["line"] == `no such card\x1b[2J`
	})
	if !said {
		t.Errorf("%s", got.err)
	}
	if strings.ContainsAny(got.err, "\u202e\u009b") || !strings.Contains(got.err, `"id":"\u202epay\u009b2J"`) {
		t.Errorf("the log has characters that a terminal interprets or does not show: %q", got.err)
	}
	var row struct {
		Handler string `json:"handler"`
	}
	if err := json.Unmarshal([]byte(got.out), &row); err != nil || row.Handler != "/bin/sh and 3 arguments" || strings.Contains(got.out, "s3cret") {
		t.Errorf("%v: %s", err, got.out)
	}
}

// A batch is limited in bytes, also by default.
func TestRunBoundsABatch(t *testing.T) {
	t.Parallel()
	const n, size = 12, 900_000
	for _, args := range [][]string{nil, {"--batch-bytes", "0"}} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			t.Parallel()
			s := newTestKafka(t)
			s.topics("payments")
			var largest, seen atomic.Int64
			p := newProgram(t, func(_ http.ResponseWriter, a asked) {
				seen.Add(int64(strings.Count(a.body, `"body_text"`)))
				largest.Store(max(largest.Load(), int64(len(a.body)))) // posts are sequential
			})
			var texts []string
			for i := range n {
				texts = append(texts, fmt.Sprint(i, strings.Repeat("x", size)))
			}
			all := payments(texts...)
			for i, r := range all {
				r.Key = fmt.Append(nil, i)
				s.put(r)
			}
			s.handle(append([]string{"--http", p.URL, "--batch", fmt.Sprint(n), "--batch-wait", "5s"}, args...)...)
			s.await("all are posted", func() bool { return seen.Load() == n })
			if got := largest.Load(); got > 8<<20+1<<16 {
				t.Errorf("a post has %d bytes", got)
			}
		})
	}
}

// The end does not wait for a client that opens a health request and sends nothing.
func TestRunHealthDoesNotWait(t *testing.T) {
	t.Parallel()
	s := newTestKafka(t)
	s.topics("payments")
	h := s.handle("--http", "http://127.0.0.1:1", "--health", "127.0.0.1:0")
	conn, err := net.Dial("tcp", strings.TrimPrefix(h.healthOf(s), "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "GET /healthz HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhalf"); err != nil {
		t.Fatal(err)
	}
	if err := conn.SetReadDeadline(time.Now().Add(maxWait)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, bufio.NewReader(conn)); err != nil {
		t.Errorf("it waits: %v", err)
	}
}
