package command_test

import (
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
)

// A sidecar reads a share group. Its dead letter is listed, inspected and replayed under the same URL, and then handled.
func TestRunReadsAShareGroup(t *testing.T) {
	t.Parallel()
	s := kafkaShop(t)
	s.url = strings.Replace(s.url, "kafka://", "kafka+share://", 1)
	var repaired atomic.Bool
	h := newHandler(t, func(w http.ResponseWriter, body, attempt string) {
		switch {
		case body == "bad" && !repaired.Load():
			http.Error(w, "no such card", http.StatusUnprocessableEntity)
		case body == "recovers" && attempt == "1":
			http.Error(w, "the bank is closed", http.StatusBadGateway)
		}
	})
	run := s.sidecar("--http", h.URL+"/orders")
	for _, body := range []string{"good", "bad", "recovers"} {
		s.send(body, "tenant=acme")
	}
	seen := func(want map[string]string) {
		t.Helper()
		await(t, func() string { return fmt.Sprint(h.seen()) }, func() bool { return maps.Equal(h.seen(), want) })
	}
	seen(map[string]string{"good": "1", "bad": "1", "recovers": "12"})
	if dead := s.awaitDeadLetters(1); dead["bad"] != "permanent: the handler answered 422 Unprocessable Entity: no such card" {
		t.Errorf("in the DLQ are %v", dead)
	}
	s.listed(s.group)
	// The consumer group that reads the retries has committed its offsets, so nothing waits.
	var levels []map[string]any
	awaitEvery(t, betweenLooks, func() string { return fmt.Sprint(levels) }, func() bool {
		levels = s.rows(0, append([]string{"waiting", "list"}, s.whose...)...)
		waits := 0.0
		for _, l := range levels {
			waits += l["messages"].(float64)
		}
		return len(levels) > 1 && waits == 0
	})
	repaired.Store(true)
	s.command(0, "dlq", "replay", s.dlq, "--note", "it is fixed", "--yes")
	seen(map[string]string{"good": "1", "bad": "11", "recovers": "12"})
	s.command(0, "dlq", "check", s.dlq)
	run.end()
}
