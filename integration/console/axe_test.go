package console_test

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"io"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/redeliver/redeliver/console"
)

//go:embed axe/axe.min.js.gz
var packedAxe []byte

// axe is axe-core's script.
func axe(t *testing.T) string {
	t.Helper()
	r, err := gzip.NewReader(bytes.NewReader(packedAxe))
	if err != nil {
		t.Fatal(err)
	}
	script, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(script)
}

// violations returns the violations of WCAG 2.2 AA and of good practice that axe-core finds on the page, one per line.
const violations = `axe.run(document, { runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"], resultTypes: ["violations"] })
	.then((r) => r.violations.map((v) => v.id + ": " + v.help + ": " + v.nodes.slice(0, 3).map((n) => n.target.join(" ") + " " + n.html.slice(0, 120)).join(" | ")))`

// On every page, at three widths, in light and dark, axe-core finds nothing, and nothing is wider than the window.
func TestEveryPageIsAccessible(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.put(orders(12)...)
	s.put(letter{id: "stranger", key: "k", body: "\x00\x01\xff", text: "what " + s.topic, group: "others"})
	empty := newShop(t)
	s.open(console.Config{Queues: []console.Queue{{Queue: waiting{empty.queue}}}, Notes: []string{"one is not shown"}, TraceURL: "https://traces.example.com/{trace}"})
	b := open(t)
	b.visit(s.url)
	b.until(headed("14 dead letters") + " && " + says("declined"))
	b.visit(s.page("replay", "&type=*bank.NotFoundError&canary="))
	b.do(chromedp.SendKeys("input[name=why]", "a test", chromedp.ByQuery))
	b.click("form.order button.main", "Replay")
	b.until(headed("done"))
	empty.queue.silent.Store(true)
	script := axe(t)
	for _, target := range []string{
		eval[string](b, "location.href"), s.url, s.page("dlq", ""), s.page("messages", "&order=newest&header=a&value=b"), s.page("message", "&at=0/0"), s.page("message", "&at=1/6"),
		s.page("replay", ""), s.page("edit", "&at=0/0"), s.page("purge", ""), s.url + "tasks", s.url + "search?q=card", s.url + "search", empty.page2(s, "waiting"), empty.page2(s, "pause"), empty.page2(s, "dlq"), s.url + "nowhere",
	} {
		for _, wide := range []int64{390, 1024, 1440} {
			b.do(emulation.SetDeviceMetricsOverride(wide, height, 1, wide < 600))
			b.visit(target)
			b.do(chromedp.Evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true })", nil), chromedp.Evaluate(script, nil))
			if got := eval[int64](b, "document.documentElement.scrollWidth"); got > wide {
				t.Errorf("%s is %d pixels wide on %d", target, got, wide)
			}
			for _, theme := range []string{"light", "dark"} {
				b.do(scheme(theme))
				var found []string
				b.do(chromedp.Evaluate(violations, &found, awaited))
				if len(found) > 0 {
					t.Errorf("%s, %d pixels, %s:\n%s", strings.TrimPrefix(target, s.url), wide, theme, strings.Join(found, "\n"))
				}
			}
		}
	}
	b.clean("status of 404", "ERR_")
}

// awaited is the option for an expression that is a promise.
func awaited(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) }
