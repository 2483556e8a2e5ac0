package console_test

import (
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/redeliver/redeliver/console"
)

// scheme requests light or dark mode, as a system's settings do.
func scheme(name string) chromedp.Action {
	return emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}})
}

// poorly lists the texts of a page with too little contrast: WCAG 2.2 AA requires 4.5 to 1, and 3 to 1 for large text.
const poorly = `(() => {
	const rgb = (c) => (c.match(/[\d.]+/g) || []).map(Number);
	const light = ([r, g, b]) => [r, g, b].map((v) => (v /= 255) <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4).reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0);
	const ground = (e) => { for (; e; e = e.parentElement) { const c = rgb(getComputedStyle(e).backgroundColor); if (c.length < 4 || c[3] === 1) return c; } return [255, 255, 255]; };
	const found = [];
	const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
	for (let t; t = texts.nextNode();) {
		const e = t.parentElement;
		if (!t.data.trim() || !e.checkVisibility() || e.closest(".sr, .skip, option")) continue;
		const s = getComputedStyle(e), a = light(rgb(s.color)), b = light(ground(e));
		const contrast = (Math.max(a, b) + .05) / (Math.min(a, b) + .05), size = parseFloat(s.fontSize);
		if (contrast < (size >= 24 || size >= 18.66 && s.fontWeight >= 700 ? 3 : 4.5)) found.push(contrast.toFixed(2) + " " + t.data.trim().slice(0, 40));
	}
	return found })()`

// nameless lists the controls that have no name for a screen reader.
const nameless = `[...document.querySelectorAll("a[href], button, input:not([type=hidden]), select, textarea, [role=region], nav, [role=img], progress")].filter((e) => {
	const by = e.getAttribute("aria-labelledby");
	return !(e.getAttribute("aria-label") || by && document.getElementById(by)?.textContent.trim() || e.labels?.length && e.labels[0].textContent.trim() || e.textContent.trim());
}).map((e) => e.outerHTML.slice(0, 120))`

// disorder lists structures that confuse a screen reader: headings that skip a level, duplicate ids, cells without
// headers.
const disorder = `(() => { const found = [], ids = new Set(); let last = 0;
	for (const h of document.querySelectorAll("h1, h2, h3")) { const n = +h.tagName[1]; if (n > last + 1) found.push("behind h" + last + " " + h.outerHTML); last = n; }
	if (document.querySelectorAll("h1").length !== 1) found.push("not one h1");
	for (const e of document.querySelectorAll("[id]")) { if (ids.has(e.id)) found.push("twice #" + e.id); ids.add(e.id); }
	for (const t of document.querySelectorAll("table")) if (!t.querySelector("th[scope]")) found.push("no heads");
	if (!document.documentElement.lang || !document.title) found.push("no language or title");
	return found })()`

// Every page can be read in light and dark mode and at a width of 360 pixels, and every control has a name.
func TestEveryPageCanBeRead(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.put(orders(12)...)
	s.put(letter{id: "stranger", key: "k", body: "\x00\x01\xff", text: "what " + s.topic, group: "others"})
	s.open(console.Config{})
	b := open(t)
	b.visit(s.url)
	b.until(headed("14 dead letters") + " && " + says("declined"))
	b.visit(s.page("replay", "&type=*bank.NotFoundError&canary="))
	b.do(chromedp.SendKeys("input[name=why]", "a test", chromedp.ByQuery))
	b.click("form.order button.main", "Replay")
	b.until(headed("done"))
	pages := []string{
		eval[string](b, "location.href"), s.url, s.page("dlq", ""), s.page("messages", "&order=newest"), s.page("message", "&at=0/0"), s.page("message", "&at=1/6"),
		s.page("replay", ""), s.page("edit", "&at=0/0"), s.page("purge", ""), s.url + "tasks", s.page("tasks", ""), s.url + "nowhere",
	}
	ground := map[string]string{}
	for _, name := range []string{"light", "dark"} {
		b.do(scheme(name))
		for _, target := range pages {
			b.visit(target)
			b.do(chromedp.Evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true })", nil))
			for what, js := range map[string]string{"cannot be read": poorly, "has no name": nameless, "is in disorder": disorder} {
				if found := eval[[]string](b, js); len(found) > 0 {
					t.Errorf("%s, %s: this %s: %q", target, name, what, found)
				}
			}
			ground[name] = eval[string](b, "getComputedStyle(document.body).backgroundColor")
		}
	}
	if ground["light"] == ground["dark"] {
		t.Errorf("light and dark are %v", ground)
	}
	b.do(emulation.SetDeviceMetricsOverride(360, 640, 1, true))
	for _, target := range pages {
		b.visit(target)
		if wide := eval[int](b, "document.documentElement.scrollWidth"); wide > 360 {
			t.Errorf("%s is %d pixels wide on 360", target, wide)
		}
	}
	b.clean("status of 404")
}
