package console_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/console"
)

// hostile is text that would end the page, or add a script, an image with a script, a style, or a base for all links.
const hostile = `"'></script></pre></textarea></title></select></td></table><img src=x onerror="hacked.push('img')"><script>hacked.push('script')</script>` +
	`<svg onload="hacked.push('svg')"></svg><iframe srcdoc="<script>parent.hacked.push('frame')</script>"></iframe><a href="javascript:hacked.push('link')" autofocus onfocus="hacked.push('focus')">x</a>` +
	`<style>main { display: none }</style><base href="https://evil.example/"><meta http-equiv="refresh" content="0;url=https://evil.example/">{{.}}` + "\u202e\x1b[31m"

// A message full of markup is only text on every page, also after an update of the page. None of it runs, and the
// Content-Security-Policy has nothing to refuse.
func TestAMessageFullOfMarkupRunsNothing(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	bad := letter{
		id: "id" + hostile, key: "key" + hostile, body: `{"a":"` + strings.ReplaceAll(hostile, `"`, `\"`) + `"}`, kind: "*type" + hostile, text: "error" + hostile,
		reason: redeliver.Reason("reason" + hostile), headers: []kgo.RecordHeader{{Key: "name" + hostile, Value: []byte("value" + hostile)}},
	}
	foreign := bad
	foreign.group, foreign.body = "group"+hostile, hostile
	s.put(bad, foreign)
	s.open(console.Config{Title: "title" + hostile})
	b := open(t)
	q := url.QueryEscape(hostile)

	// A replay makes a task with markup in every field that a user can write.
	b.visit(s.page("replay", "&why="+q+"&rate=&canary=&text=error"))
	b.has("Would be sent", "<img src=x")
	b.do(chromedp.SetValue("input[name=why]", "why"+hostile, chromedp.ByQuery))
	b.click("form.order button.main", "Replay")
	b.until(headed("done"))
	task := eval[string](b, "location.href")

	at := []string{"0/0", "1/0"}[1] // the first was replayed
	pages := []string{
		s.url, s.page("dlq", ""), s.page("messages", ""), s.page("messages", "&text="+q+"&type="+q+"&key="+q+"&header="+q+"&value="+q+"&id="+q+"&reason="+q), s.page("message", "&at="+at),
		s.page("edit", "&at="+at), s.page("replay", "&text=error"), s.page("purge", "&text=error"), s.url + "tasks", task, s.url + "dlq?dlq=" + q, s.page("message", "&at="+q), s.url + "?note=" + q, s.url + "none/" + q,
	}
	for _, target := range pages {
		b.visit(target)
		b.runsNothing(target)
	}

	// An open page replaces its parts in another way.
	b.visit(s.page("dlq", ""))
	b.until(says("Dead letters"))
	s.put(bad)
	b.until("[...document.querySelectorAll('.facts dd')].some((e) => e.innerText === '2')")
	b.until("document.querySelectorAll('#rows tbody tr').length === 2")
	b.runsNothing("a page that was brought up to date")
	b.clean("status of 404", "status of 400") // those pages that there are not

	// The guards work: the policy refuses markup that the test inserts, and they record that.
	b.do(chromedp.Evaluate(`document.body.append(Object.assign(document.createElement("script"), { textContent: "hacked.push(1)" }));
		document.body.insertAdjacentHTML("beforeend", "<img src=x onerror='hacked.push(2)'>")`, nil))
	b.until("refused.length >= 2")
	if eval[int](b, "hacked.length") != 0 {
		t.Error("the policy allows inline scripts")
	}
}

// runsNothing fails the test if the page has an element that is not from its template.
func (b *tab) runsNothing(where string) {
	b.t.Helper()
	type findings struct {
		Refused, Hacked, Strange []string
		Shown                    bool
	}
	f := eval[findings](b, `(() => { const strange = [];
		for (const e of document.querySelectorAll("*")) {
			if (["IMG", "IFRAME", "STYLE", "BASE", "OBJECT", "EMBED"].includes(e.tagName)) strange.push(e.outerHTML.slice(0, 200));
			if (e.tagName === "SCRIPT" && (e.textContent || !new URL(e.src).pathname.endsWith("/assets/console.js"))) strange.push(e.outerHTML.slice(0, 200));
			if (e.tagName === "META" && e.httpEquiv) strange.push(e.outerHTML);
			for (const a of e.attributes) if (a.name.startsWith("on") || a.name === "style" || a.name === "srcdoc" || a.name === "autofocus" || /^\s*javascript:/i.test(a.value)) strange.push(a.name + "=" + a.value);
		}
		return { Refused: refused, Hacked: hacked.map(String), Strange: strange, Shown: document.querySelector("main").getBoundingClientRect().height > 50 } })()`)
	if len(f.Hacked)+len(f.Refused)+len(f.Strange) > 0 || !f.Shown {
		b.t.Errorf("%s: ran %q, was refused %q, is strange: %q; shown: %v", where, f.Hacked, f.Refused, f.Strange, f.Shown)
	}
}
