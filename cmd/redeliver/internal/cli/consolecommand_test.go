package cli_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// The console cancels waiting messages on Kafka, as the command does, and shows how long dead letters are kept.
func TestConsoleCancelsWaitingMessages(t *testing.T) {
	t.Parallel()
	k := newTestKafka(t)
	k.fill()
	k.writeWaiting()
	s := serve(t, nil, "--broker", k.url)
	s.until("dlq?dlq="+dlq, "Release…")
	s.until("dlq?dlq="+dlq, "Dropped by the broker")
	s.until("waiting?dlq="+dlq, "No commands that still apply")
	form := url.Values{"dlq": {dlq}, "kind": {"cancel"}, "level": {"1h"}, "header": {"tenant"}, "value": {"acme"}, "why": {"the tenant is gone"}, "confirm": {"another"}}
	if status, _, page := s.ask(form, "waiting"); status != http.StatusBadRequest {
		t.Errorf("with another name typed it is %d: %s", status, page)
	}
	form.Set("confirm", dlq)
	if status, _, page := s.ask(form, "waiting"); status != http.StatusOK {
		t.Fatalf("it is %d: %s", status, page)
	}
	k.waiting("list").want(t, 0, "has cancelled messages that match", "acme", "the tenant is gone")
	s.until("waiting?dlq="+dlq, "header tenant: acme")
	s.end()
}

// The console pauses and resumes the group of a DLQ, as the command does.
func TestConsolePausesTheGroup(t *testing.T) {
	t.Parallel()
	k := newTestKafka(t)
	k.fill()
	k.writeWaiting()
	s := serve(t, nil, "--broker", k.url)
	s.until("dlq?dlq="+dlq, "Pause group…")
	form := url.Values{"dlq": {dlq}, "why": {"the bank is closed"}, "confirm": {dlq}}
	if status, _, page := s.ask(form, "pause"); status != http.StatusOK || !strings.Contains(page, "The group is paused") {
		t.Fatalf("pausing is %d: %s", status, page)
	}
	s.until("", "group paused")
	if status, _, page := s.ask(form, "resume"); status != http.StatusOK || strings.Contains(page, "The group is paused") {
		t.Errorf("resuming is %d: %s", status, page)
	}
	if row := k.run("resume", "--topic", "orders", "--group", "billing", "-o", "json").want(t, 0).object(t); row["paused"] != false {
		t.Errorf("the command reports %v", row)
	}
	s.end()
}
