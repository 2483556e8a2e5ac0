package console

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/redelivertest"
)

// follow sends a form and gets the page to which it redirects.
func follow(t *testing.T, c *Console, to string, form url.Values) *answer {
	t.Helper()
	a := ask(t, c, http.MethodPost, "/"+to, form)
	if a.StatusCode != http.StatusSeeOther {
		t.Fatalf("POST %s is %d: %s", to, a.StatusCode, a.text())
	}
	at := a.Header.Get("Location")
	if strings.HasPrefix(at, "/") || strings.Contains(at, "//") {
		t.Fatalf("POST %s leads to %q, which leaves the prefix", to, at)
	}
	return get(t, c, "/"+at)
}

// A user without JavaScript can get from the cause to the end of its replay.
func TestACauseIsReplayed(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		s := newShop(t, b, failingMessage("o-1", "card 1 declined", "1"), failingMessage("o-2", "card 2 declined", "2"), failingMessage("o-3", "closed", "3"))
		c := open(t, b, Config{Queues: []Queue{{Queue: s.queue}}, Audit: &auditLog{}})
		var link string
		get(t, c, page("dlq", s.queue)).each(func(n *node) {
			if href := attr(n, "href"); link == "" && strings.HasPrefix(href, "replay?") && strings.Contains(href, "fp=") {
				link = href // of the most frequent cause
			}
		})
		plan := get(t, c, "/"+link)
		plan.has(t, "Would be sent 2", "Read 3", "orders.billing.retry", "Replay 2 messages")
		form := plan.form(t, "replay")
		form.Set("why", "the bank is back, INC-1207")
		form.Set("watch", "5")
		s.mend()
		began := time.Now()
		task := follow(t, c, "replay", form)
		task.has(t, "The task was started", "running", "local (console)", "INC-1207", "Canary 1, 10, 100, each watched for 5 s", "Pause")
		if time.Since(began) > time.Second {
			t.Error("the form waited for the replay")
		}
		b.Wait()
		<-time.After(20 * time.Second)
		list, _, err := c.svc.listTasks(t.Context(), Actor{Name: "ann", Role: RoleViewer}, "")
		if err != nil || len(list) != 1 {
			t.Fatalf("%d tasks: %v", len(list), err)
		}
		id := list[0].ID
		a := get(t, c, page("task", s.queue, "id", id))
		a.has(t, "Replay done", "2 of 2", "Replayed 2", "Came back 0", "o-1", "o-2", "replayed")
		if strings.Contains(a.text(), "Resume") || strings.Contains(a.text(), "Cancel for good") {
			t.Error("a finished task accepts requests")
		}
		get(t, c, "/").has(t, "1 dead letter ")
		get(t, c, "/tasks").has(t, "replay", "done", "2 of 2")
		if left := s.orders.DeadLetters(); len(left) != 1 || left[0].State.ID != "o-3" {
			t.Errorf("%v is left", left)
		}
	})
}

// Only selected messages are replayed, and an empty selection does not mean all.
func TestChosenMessagesAreReplayed(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		s := newShop(t, b, failingMessage("o-1", "closed", "1"), failingMessage("o-2", "closed", "2"), failingMessage("o-3", "closed", "3"))
		c := open(t, b, Config{Queues: []Queue{{Queue: s.queue}}, Audit: &auditLog{}})
		boxes := 0
		get(t, c, page("messages", s.queue)).each(func(n *node) {
			if attr(n, "name") == "at" && attr(n, "type") == "checkbox" {
				boxes++
			}
		})
		if boxes != 3 {
			t.Errorf("%d of 3 messages can be chosen", boxes)
		}
		query := url.Values{"dlq": {s.queue.Info().DLQ}, "at": {where(t, s.queue, "o-1"), where(t, s.queue, "o-3")}, "chosen": {"yes"}}
		plan := get(t, c, "/replay?"+query.Encode())
		plan.has(t, "Would be sent 2")
		form := plan.form(t, "replay")
		form.Set("why", "these two")
		form.Set("canary", "")
		s.mend()
		follow(t, c, "replay", form)
		b.Wait()
		if left := s.orders.DeadLetters(); len(left) != 1 || left[0].State.ID != "o-2" {
			t.Errorf("%v is left", left)
		}
		query.Del("at")
		for _, to := range []string{"replay", "purge"} {
			if a := ask(t, c, http.MethodGet, "/"+to+"?"+query.Encode(), nil); a.StatusCode != http.StatusBadRequest {
				t.Errorf("%s of nothing chosen is %d: %s", to, a.StatusCode, a.text())
			}
		}
	})
}

// A canary whose message comes back stops automatically and reports it. Its task can be resumed and cancelled from the
// page.
func TestACanaryThatComesBackStopsTheReplay(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		s := newShop(t, b, failingMessage("o-1", "closed", "1"), failingMessage("o-2", "closed", "2"), failingMessage("o-3", "closed", "3"))
		c := open(t, b, Config{Queues: []Queue{{Queue: s.queue}}, Audit: &auditLog{}})
		form := get(t, c, page("replay", s.queue)).form(t, "replay")
		form.Set("why", "it may be back")
		task := follow(t, c, "replay", form)
		b.Wait()
		<-time.After(time.Minute)
		list, _, err := c.svc.listTasks(t.Context(), Actor{Role: RoleViewer}, "")
		if err != nil || len(list) != 1 || list[0].Status != deadletter.StatusStopped {
			t.Fatalf("the tasks are %+v: %v", list, err)
		}
		target := page("task", s.queue, "id", list[0].ID)
		a := get(t, c, target)
		a.has(t, "Replay stopped", "Came back 1", "came back to orders.billing.dlq", "1 of 3")
		_ = task
		get(t, c, page("message", s.queue, "at", where(t, s.queue, "o-2"))).has(t, "Failure", "Dead-lettered")

		resume := a.form(t, "task")
		resume.Set("ask", "resume")
		s.mend()
		follow(t, c, "task", resume).has(t, "The task was resumed", "running")
		again := ask(t, c, http.MethodPost, "/replay", form)
		if again.StatusCode != http.StatusConflict {
			t.Errorf("a second task is %d", again.StatusCode)
		}
		again.has(t, "Another task uses this DLQ", "local (console)")
		pause := url.Values{"dlq": resume["dlq"], "id": resume["id"], "ask": {"pause"}}
		follow(t, c, "task", pause).has(t, "The task pauses")
		<-time.After(2 * time.Second)
		get(t, c, target).has(t, "Replay paused", "Resume", "Cancel for good")
		cancel := url.Values{"dlq": resume["dlq"], "id": resume["id"], "ask": {"cancel"}}
		follow(t, c, "task", cancel).has(t, "Replay cancelled")
		if a := ask(t, c, http.MethodPost, "/task", resume); a.StatusCode < 400 {
			t.Errorf("the cancelled task continues: %d", a.StatusCode)
		}
	})
}

// When the console is closed, its task is paused and no message is lost.
func TestAConsoleThatEndsPausesItsTask(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		s := newShop(t, b, failingMessage("o-1", "closed", "1"), failingMessage("o-2", "closed", "2"))
		s.mend()
		c := open(t, b, Config{Queues: []Queue{{Queue: s.queue}}, Audit: &auditLog{}})
		form := get(t, c, page("replay", s.queue)).form(t, "replay")
		form.Set("why", "a test")
		follow(t, c, "replay", form)
		get(t, c, "/").has(t, "1 task runs here")
		c.Close()
		tasks, err := deadletter.History(t.Context(), s.queue)
		if err != nil || len(tasks) != 1 || tasks[0].Status != deadletter.StatusPaused {
			t.Fatalf("%+v: %v", tasks, err)
		}
		if _, err := deadletter.Resume(t.Context(), s.queue, tasks[0].ID, deadletter.ResumeOptions{Who: "bob"}); err != nil {
			t.Fatal(err)
		}
		if n := len(s.orders.DeadLetters()); n != 0 {
			t.Errorf("%d are left", n)
		}
		if a := ask(t, c, http.MethodPost, "/replay", form); a.StatusCode < 400 {
			t.Errorf("a closed console starts a task: %d", a.StatusCode)
		}
	})
}

func TestAPurgeMustBeConfirmedByName(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		s := newShop(t, b, failingMessage("o-1", "card 1 declined", "1"), failingMessage("o-2", "card 2 declined", "2"), failingMessage("o-3", "closed", "3"))
		c := open(t, b, Config{Queues: []Queue{{Queue: s.queue}}, Audit: &auditLog{}})
		form := get(t, c, page("purge", s.queue, "text", "declined")).form(t, "purge")
		form.Set("why", "test data")
		for _, typed := range []string{"", "orders", "orders.billing.dlq "} {
			form.Set("confirm", typed)
			if a := ask(t, c, http.MethodPost, "/purge", form); a.StatusCode != http.StatusBadRequest {
				t.Errorf("typed %q it is %d", typed, a.StatusCode)
			}
		}
		form.Set("confirm", s.queue.Info().DLQ)
		expect := form.Get("expect")
		for _, n := range []string{"", "0", "x"} {
			form.Set("expect", n)
			if a := ask(t, c, http.MethodPost, "/purge", form); a.StatusCode != http.StatusBadRequest {
				t.Errorf("with %q expected it is %d", n, a.StatusCode)
			}
		}
		form.Set("expect", "1") // but there are two
		if a := ask(t, c, http.MethodPost, "/purge", form); a.StatusCode != http.StatusConflict {
			t.Errorf("with more than expected it is %d", a.StatusCode)
		}
		if n := len(s.orders.DeadLetters()); n != 3 {
			t.Fatalf("%d of 3 are left", n)
		}
		form.Set("expect", expect)
		follow(t, c, "purge", form)
		b.Wait()
		if left := s.orders.DeadLetters(); len(left) != 1 || left[0].State.ID != "o-3" {
			t.Errorf("%v is left", left)
		}
		get(t, c, "/tasks").has(t, "purge", "done", "test data")
	})
}

// An edit changes only what the user has changed. The line ends of the body and all other headers stay the same.
func TestAMessageIsEdited(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		var mu = make(chan struct{}, 1)
		got := map[string]*message.Message{}
		broken := true
		billing := b.Open(redelivertest.Config{Group: "billing", Policy: redeliver.Policy{MaxRetries: redeliver.NoRetries}})
		orders := billing.Handle("orders", func(msg *message.Message) error {
			mu <- struct{}{}
			defer func() { <-mu }()
			if broken {
				return fmt.Errorf("no such customer")
			}
			got[msg.UUID] = msg
			return nil
		})
		msg := message.NewMessage("o-1", []byte("\n{\n  \"customer\": \"adam\"\n}\n"))
		msg.Metadata.Set("tenant", "acme")
		msg.Metadata.Set("region", "eu")
		b.Publish("orders", msg)
		if n := len(orders.DeadLetters()); n != 1 {
			t.Fatal(n)
		}
		q := orders.DeadLetterQueue()
		c := open(t, b, Config{Queues: []Queue{{Queue: q}}, Audit: &auditLog{}})
		form := get(t, c, page("edit", q, "at", "0")).form(t, "edit")
		form.Set("why", "her name")
		if a := ask(t, c, http.MethodPost, "/edit", form); a.StatusCode != http.StatusBadRequest {
			t.Fatalf("an edit of nothing is %d: %s", a.StatusCode, a.text())
		}
		form.Set("body", strings.Replace(form.Get("body"), "adam", "Ada", 1))
		headers := map[string]string{}
		get(t, c, page("edit", q, "at", "0")).each(func(n *node) {
			if n.Data == "label" && n.FirstChild.NextSibling != nil {
				headers[strings.TrimSpace(n.FirstChild.Data)] = attr(n.FirstChild.NextSibling, "name")
			}
		})
		form.Set(headers["tenant"], "globex")
		form.Set(headers["region"]+"-remove", "yes")
		form.Set("n1-name", "fixed-by")
		form.Set("n1", "ann")
		form.Set("step", "preview")
		seen := ask(t, c, http.MethodPost, "/edit", form)
		seen.has(t, "What would be sent", `- "customer": "adam"`, `+ "customer": "Ada"`, "acme → globex", "eu → removed", "fixed-by was not there → ann")
		if n := len(orders.DeadLetters()); n != 1 {
			t.Fatal("the preview has sent it")
		}
		again := seen.form(t, "edit")
		for _, f := range seen.forms("edit") { // only what was previewed can be sent
			visible, sends := 0, false
			for n := range f.Descendants() {
				switch {
				case n.Data == "textarea", n.Data == "input" && attr(n, "type") != "hidden":
					visible++
				case n.Data == "button" && attr(n, "value") == "send":
					sends = true
				}
			}
			if sends && visible > 0 {
				t.Errorf("a form with %d fields that can be changed sends the message", visible)
			}
		}
		again.Set("step", "send")
		mu <- struct{}{}
		broken = false
		<-mu
		follow(t, c, "edit", again).has(t, "The edited message was replayed", "Edit done", "acme → globex", "sha256:", "her name")
		b.Wait()
		mu <- struct{}{}
		defer func() { <-mu }()
		m := got["o-1"]
		if m == nil || string(m.Payload) != "\n{\n  \"customer\": \"Ada\"\n}\n" || m.Metadata.Get("tenant") != "globex" || m.Metadata.Get("fixed-by") != "ann" || m.Metadata.Get("region") != "" {
			t.Errorf("the handler got %+v", m)
		}
		if a := ask(t, c, http.MethodPost, "/edit", again); a.StatusCode != http.StatusNotFound {
			t.Errorf("a second edit of the same is %d", a.StatusCode)
		}
	})
}

// A body that a form would change cannot be edited in a form.
func TestABodyThatAFormWouldChangeIsLocked(t *testing.T) {
	for body, locked := range map[string]bool{
		"plain": false, "two\nlines": false, "\n": false, "tab\t": false, "äöü": false,
		"dos\r\n": true, "\x00": true, "\xff": true, "a\u202eb": true, strings.Repeat("x", maxEditBytes+1): true,
	} {
		if got := whyBodyReadOnly(&messageView{Body: []byte(body), Whole: true}) != ""; got != locked {
			t.Errorf("%.20q is locked: %v", body, got)
		}
	}
	if whyBodyReadOnly(&messageView{Body: nil, Whole: true}) == "" || whyBodyReadOnly(&messageView{Body: []byte("x")}) == "" {
		t.Error("a null or hidden value can be edited")
	}
}

// If another runner uses the DLQ, the page names it.
func TestTheHolderOfTheDLQIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newStub("held", 3)
		c, err := New(Config{Queues: []Queue{{Queue: q}}, Audit: &auditLog{}})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		a := ask(t, c, http.MethodPost, "/replay", url.Values{"dlq": {"held"}, "why": {"x"}})
		if a.StatusCode != http.StatusConflict {
			t.Errorf("%d", a.StatusCode)
		}
		a.has(t, "Another task uses this DLQ", "bob@ops", "t-1")
	})
}

// A replay skips a message that came back from three replays, unless the user includes it.
func TestMessagesThatCameBackTooOftenAreIncludedOnRequest(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		s := newShop(t, b, failingMessage("o-1", "card declined", "1"))
		for range deadletter.DefaultMaxReplays {
			task, err := deadletter.Replay(t.Context(), s.queue, deadletter.ReplayOptions{Who: "ann", Why: "test"})
			if err != nil || task.Counts.Replayed != 1 {
				t.Fatalf("%+v: %v", task, err)
			}
			b.Wait()
		}
		c := open(t, b, Config{Queues: []Queue{{Queue: s.queue}}, Audit: &auditLog{}})
		get(t, c, page("replay", s.queue)).has(t, "There is nothing to replay", "Replayed too often 1", "Include them")
		form := get(t, c, page("replay", s.queue, pAgain, "yes")).form(t, "replay")
		form.Set("why", "OPS-17")
		form.Set("canary", "")
		follow(t, c, "replay", form).has(t, "The task was started")
		b.Wait()
		get(t, c, "/tasks").has(t, "replay", "done", "1 of 1")
		if all := s.orders.DeadLetters(); len(all) != 1 || all[0].State.Replays != deadletter.DefaultMaxReplays+1 {
			t.Errorf("the DLQ has %+v", all)
		}
	})
}
