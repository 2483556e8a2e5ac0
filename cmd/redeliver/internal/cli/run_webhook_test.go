package cli_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
)

// The webhook receives the id and the reason of each message, including the last dead letters. The secret in the URL is
// not shown.
func TestRunReportsDeadLetters(t *testing.T) {
	t.Parallel()
	s := newTestKafka(t)
	s.topics("payments")
	p := newProgram(t, func(w http.ResponseWriter, _ asked) {
		http.Error(w, "no such card", http.StatusUnprocessableEntity)
	})
	posted := make(chan asked, 1)
	hook := newProgram(t, func(_ http.ResponseWriter, a asked) { posted <- a })
	h := s.handleIn(map[string]string{"REDELIVER_ON_DEAD_LETTER": hook.URL + "/services/s3cret", "REDELIVER_ON_DEAD_LETTER_AUTHORIZATION": "Bearer k3y\n"}, "--http", p.URL)
	s.put(payments("a")...)
	got := <-posted
	var letter map[string]any
	if err := json.Unmarshal([]byte(got.body), &letter); err != nil {
		t.Fatal(err)
	}
	if letter["reason"] != "permanent" || letter["origin"] != "payments" || letter["broker"] != "kafka" || !strings.Contains(letter["error"].(string), "no such card") ||
		got.header.Get("Authorization") != "Bearer k3y" {
		t.Errorf("reported %s with %v", got.body, got.header)
	}
	e := h.stop().want(t, 0)
	if !strings.Contains(e.out, `"on_dead_letter": "`+hook.URL+`"`) && !strings.Contains(e.out, `"on_dead_letter":"`+hook.URL+`"`) {
		t.Errorf("it says %s", e.out)
	}
	if strings.Contains(e.out+e.err, "s3cret") || strings.Contains(e.out+e.err, "k3y") {
		t.Errorf("%s%s", e.out, e.err)
	}
}

func TestRunRefusesAWebhook(t *testing.T) {
	t.Parallel()
	run := strings.Fields("run --broker kafka://h:1 --topic a --group g --http http://h --on-dead-letter")
	for url, says := range map[string]string{
		"ftp://h/s3cret": "must be http://", "http://ann:s3cret@h/": "must not contain a user", "http://h/#s3cret": "#fragment", "http://h:s3cret/": "must be http://",
	} {
		if got := (call{}).run(t, append(run, url)...).want(t, 2, "--on-dead-letter", says); strings.Contains(got.out+got.err, "s3cret") {
			t.Errorf("%s: %s%s", url, got.out, got.err)
		}
	}
	c := call{env: map[string]string{"REDELIVER_ON_DEAD_LETTER": "s3cret", "REDELIVER_ON_DEAD_LETTER_AUTHORIZATION": "x"}}
	if got := c.run(t, run[:len(run)-1]...).want(t, 2, "REDELIVER_ON_DEAD_LETTER must be"); strings.Contains(got.out+got.err, "s3cret") {
		t.Errorf("%s%s", got.out, got.err)
	}
}
