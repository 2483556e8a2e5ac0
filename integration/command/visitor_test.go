package command_test

import (
	"html"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"
)

// visitor is a user of a console without JavaScript, who reads pages, follows their links and sends their forms.
type visitor struct {
	t    *testing.T
	base string
}

// replayOneCause finds one of three causes, replays its messages with a canary, and checks that the canary is handled and the
// rest follow. Messages with other causes stay.
func (v *visitor) replayOneCause(s *shop, each int) {
	v.t.Helper()
	home := regexp.MustCompile(`href="(dlq\?[^"]*)"[^>]*>` + regexp.QuoteMeta(s.dlq) + `<`).FindStringSubmatch(v.get(""))
	if home == nil {
		v.t.Fatalf("no link leads to %s", s.dlq)
	}
	dlq := html.UnescapeString(home[1])
	page := v.get(dlq)
	if strings.Contains(page, `action="causes"`) { // looking hides messages there
		v.post("causes", fields(page, "causes"))
	}
	page = v.until(dlq, "panicked by the rule")
	for _, cause := range []string{"permanent", "panic", "exhausted"} {
		if !strings.Contains(page, `<span class="tag">`+cause+`</span>`) {
			v.t.Fatalf("%s shows no cause %s:\n%s", s.dlq, cause, page)
		}
	}
	_, row, _ := strings.Cut(page, `<span class="tag">panic</span>`)
	row, _, _ = strings.Cut(row, "</tr>")
	to := regexp.MustCompile(`href="(replay\?[^"]*)"`).FindStringSubmatch(row)
	if to == nil {
		v.t.Fatalf("%s has no button to replay", row)
	}
	address := html.UnescapeString(to[1])
	form := v.get(address)
	if strings.Contains(form, "Reading has a cost here") {
		form = v.get(address + "&look=yes")
	}
	order := fields(form, "replay")
	order.Set("why", "it is fixed")
	order.Set("canary", "1")
	order.Set("watch", "1")
	task := v.post("replay", order)
	done := s.work("never", "commit", each, nil)
	if len(done) != each {
		v.t.Errorf("%d were handled, want %d", len(done), each)
	}
	v.until(task, ">done<")
	for _, letter := range s.rows(0, "dlq", "show", s.dlq) {
		if letter["reason"] == "panic" || done[letter["id"].(string)] {
			v.t.Errorf("%v is in %s and was replayed", letter["id"], s.dlq)
		}
	}
}

// fields returns the hidden fields of a page's form.
func fields(page, action string) url.Values {
	_, form, _ := strings.Cut(page, `action="`+action+`"`)
	form, _, _ = strings.Cut(form, "</form>")
	values := make(url.Values)
	for _, field := range regexp.MustCompile(`<input type="hidden" name="([^"]*)" value="([^"]*)">`).FindAllStringSubmatch(form, -1) {
		values.Add(field[1], html.UnescapeString(field[2]))
	}
	return values
}

func (v *visitor) get(address string) string {
	v.t.Helper()
	answer, err := http.Get(v.base + address)
	if err != nil {
		v.t.Fatal(err)
	}
	return v.read(answer, address)
}

// post sends a form and returns the address to which it redirects.
func (v *visitor) post(address string, form url.Values) string {
	v.t.Helper()
	once := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	answer, err := once.PostForm(v.base+address, form)
	if err != nil {
		v.t.Fatal(err)
	}
	text := v.read(answer, address)
	if answer.StatusCode != http.StatusSeeOther {
		v.t.Fatalf("%s %v: %s\n%s", address, form, answer.Status, text)
	}
	return answer.Header.Get("Location")
}

func (v *visitor) read(answer *http.Response, address string) string {
	v.t.Helper()
	text, err := io.ReadAll(answer.Body)
	_ = answer.Body.Close()
	if err != nil || answer.StatusCode >= http.StatusBadRequest {
		v.t.Fatalf("%s: %s: %v\n%s", address, answer.Status, err, text)
	}
	return string(text)
}

// until reads a page repeatedly until it contains a text.
func (v *visitor) until(address, says string) string {
	v.t.Helper()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(maxWait)
	for {
		page := v.get(address)
		if strings.Contains(page, says) {
			return page
		}
		select {
		case <-tick.C:
		case <-deadline:
			v.t.Fatalf("%s does not say %q:\n%s", address, says, page)
		}
	}
}
