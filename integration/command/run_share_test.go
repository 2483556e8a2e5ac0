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
			http.Error(w, "the bank is closed", http.StatusInternalServerError)
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

	group := []string{"--group", s.group}
	s.doctor(group)
	s.says(append([]string{"plan", "--retries", "2", "--backoff", "fixed:1s"}, s.whose...), s.topic+"."+s.group+".retry.1s", "share.delivery.count.limit=10")
	acls := append([]string{"plan", "--format", "kafka-acls", "--principal", "User:billing"}, s.whose...)
	s.says(acls, s.topic+"."+s.group+".control", "--operation Read --group "+s.group+"-retry\n")
	s.says(append(acls, "--for", "operator"), "--operation DescribeConfigs --group "+s.group+"\n")
	s.says(append([]string{"plan", "--format", "kafka-topics"}, s.whose...), "--topic "+s.dlq)
	// The command may take the group for a consumer group: the mark is the same.
	for _, scheme := range []string{"kafka://", "kafka+share://"} {
		_, hosts, _ := strings.Cut(s.url, "://")
		s.url = scheme + hosts
		s.command(0, append([]string{"pause", "--reason", "the bank is closed"}, s.whose...)...)
		s.url = "kafka+share://" + hosts
		s.doctorSays("the bank is closed", group, "paused "+s.topic)
		s.command(0, append([]string{"resume"}, s.whose...)...)
	}
	s.doctor(group)
	// No consumer would carry out this command.
	asKafka := *s
	asKafka.url = strings.Replace(s.url, "+share", "", 1)
	asKafka.command(1, append([]string{"waiting", "release", "--all", "--note", "test", "--yes"}, s.whose...)...)
	run.end()
}

// says requires texts in the output of a command.
func (s *shop) says(args []string, texts ...string) {
	s.t.Helper()
	out := s.command(0, args...)
	for _, text := range texts {
		if !strings.Contains(out, text) {
			s.t.Errorf("%q does not say %q:\n%s", args, text, out)
		}
	}
}
