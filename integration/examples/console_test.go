package examples_test

import (
	"io"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"
)

// The console shows the dead letters of the shop's services, starts a replay on Kafka that stops when its canary comes
// back, and ends gracefully.
func TestTheConsoleExample(t *testing.T) {
	t.Parallel()
	p := start(t, nil, "console", "--address", "127.0.0.1:0")
	base := ""
	late := time.After(maxWait)
	for base == "" {
		select {
		case line, ok := <-p.lines:
			if !ok {
				t.Fatalf("it has ended: %v", p.err)
			}
			_, base, _ = strings.Cut(line, "The console is at ")
		case <-late:
			t.Fatal("it does not say where it is")
		}
	}
	get := func(at string) string {
		t.Helper()
		answer, err := http.Get(base + at)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		page, err := io.ReadAll(answer.Body)
		if err != nil || answer.StatusCode != http.StatusOK {
			t.Fatalf("%s is %s: %v\n%s", at, answer.Status, err, page)
		}
		return string(page)
	}
	// until asks for a page until it contains a text.
	until := func(at, what string) string {
		t.Helper()
		said := regexp.MustCompile(what)
		for {
			page := get(at)
			if said.MatchString(page) {
				return page
			}
			select {
			case <-time.After(200 * time.Millisecond):
			case <-late:
				t.Fatalf("%s never says %s:\n%s", at, what, page)
			}
		}
	}
	const dlq = "orders.billing.dlq"
	until("", `>\d+ dead letters<`)
	for _, name := range []string{dlq, "orders.shipping.dlq", "invoices.mailing.dlq"} {
		until("dlq?dlq="+name, `<h2 id="causes">Causes <span class="count">[1-9]`)
	}
	mails := until("messages?dlq=invoices.mailing.dlq&text=550", "an error is text")
	if strings.Contains(mails, "<script>alert") {
		t.Error("the text of an error is markup")
	}
	link := regexp.MustCompile(`href="(message\?[^"]+)"`).FindStringSubmatch(mails)
	if link == nil {
		t.Fatalf("there is no message:\n%s", mails)
	}
	if page := get(strings.ReplaceAll(link[1], "&amp;", "&")); !strings.Contains(page, "tenant") || !strings.Contains(page, "&#34;id&#34;: 9007199254") {
		t.Errorf("the message is shown as\n%s", page)
	}

	answer, err := http.PostForm(base+"replay", url.Values{"dlq": {dlq}, "type": {"*main.BankError"}, "why": {"the bank may be back"}, "canary": {"1"}, "watch": {"30"}})
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close()
	if answer.StatusCode != http.StatusOK || !strings.HasSuffix(answer.Request.URL.Path, "/task") {
		t.Fatalf("the replay leads to %s, %s", answer.Request.URL, answer.Status)
	}
	task := strings.TrimPrefix(answer.Request.URL.String(), base)
	until(task, `came back to `+regexp.QuoteMeta(dlq))
	if said := p.errors(); !strings.Contains(said, `"action":"replay"`) || !strings.Contains(said, `"result":"done"`) {
		t.Errorf("the record is\n%s", said)
	}
	if err := p.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	for range p.lines {
	}
	select {
	case <-p.ended:
		if p.err != nil {
			t.Errorf("it ends with %v", p.err)
		}
	case <-late:
		t.Error("it does not end")
	}
}
