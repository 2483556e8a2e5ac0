package console

import (
	"net/http"
	"net/url"
	"testing"

	"github.com/redeliver/redeliver/redelivertest"
)

// A quarantined message stays, is marked, and is skipped by a replay that does not include it.
func TestACauseIsQuarantined(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		s := newShop(t, b, failingMessage("o-1", "card 1 declined", "1"), failingMessage("o-2", "card 2 declined", "2"), failingMessage("o-3", "closed", "3"))
		c := open(t, b, Config{Queues: []Queue{{Queue: s.queue}}, Audit: &auditLog{}})
		form := get(t, c, page("replay", s.queue, "text", "declined")).form(t, "quarantine")
		if a := ask(t, c, http.MethodPost, "/quarantine", form); a.StatusCode != http.StatusBadRequest {
			t.Errorf("without a reason the status is %d", a.StatusCode)
		}
		form.Set("why", "waits for OPS-17")
		follow(t, c, "quarantine", form).has(t, "The task was started", "OPS-17")
		b.Wait()
		get(t, c, "/tasks").has(t, "quarantine", "done", "2 of 2")
		get(t, c, page("message", s.queue, "at", where(t, s.queue, "o-1"))).has(t, "Quarantined. Somebody has marked it.")
		get(t, c, page("replay", s.queue)).has(t, "Would be sent 1", "Quarantined 2", "Include them")
		if n := len(s.orders.DeadLetters()); n != 3 {
			t.Errorf("%d of 3 are left", n)
		}
		// All messages at once cannot be quarantined, by any form or request.
		all := url.Values{"dlq": form["dlq"], "why": {"x"}}
		if a := ask(t, c, http.MethodPost, "/quarantine", all); a.StatusCode != http.StatusBadRequest {
			t.Errorf("a quarantine of everything is %d", a.StatusCode)
		}
	})
}
