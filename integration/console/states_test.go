package console_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/redeliver/redeliver/console"
)

// An open page updates automatically, shows when, and stops on request. The focus and typed text stay.
func TestAPageIsKeptUpToDate(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.put(orders(1)...)
	s.open(console.Config{})
	b := open(t)
	b.visit(s.url)
	b.until(headed("2 dead letters"))
	b.do(chromedp.Evaluate("window.same = true", nil))
	b.reach("e.innerText === " + `"` + s.dlq + `"`)
	s.put(orders(1)...)
	b.until(headed("4 dead letters"))
	b.until("document.getElementById('live-status').innerText.startsWith('Updated ')")
	if !eval[bool](b, "window.same && document.activeElement.innerText === '"+s.dlq+"'") {
		t.Error("the page was loaded again, or the focus is lost")
	}

	pause := "document.getElementById('live-toggle')"
	if eval[string](b, pause+".getAttribute('aria-pressed') + document.getElementById('live-status').getAttribute('role')") != "falsestatus" {
		t.Error("a screen reader gets no report")
	}
	b.do(chromedp.Focus("#live-toggle", chromedp.ByQuery))
	b.press(kb.Enter)
	b.until(pause + ".getAttribute('aria-pressed') === 'true' && " + says("Updates are paused"))
	s.await("the page has let go", func() bool { return s.streams.Load() == 0 })
	s.put(orders(1)...)
	other := open(t)
	other.visit(s.url)
	other.until(headed("6 dead letters"))
	if !eval[bool](b, headed("4 dead letters")) {
		t.Error("a page that was paused has changed")
	}
	b.reload() // it is still paused then
	b.until(says("Updates are paused") + " && " + headed("6 dead letters"))
	b.do(chromedp.Focus("#live-toggle", chromedp.ByQuery))
	b.press(" ")
	b.until("['Updates on', 'Updated '].some((word) => document.getElementById('live-status').innerText.startsWith(word))")
	s.put(orders(1)...)
	b.until(headed("8 dead letters"))

	// An update keeps typed text and selections.
	b.visit(s.page("dlq", ""))
	b.until(says("Dead letters") + " && document.querySelector('#rows input[type=checkbox]')")
	b.do(chromedp.Click("#filter-rows > summary", chromedp.ByQuery), chromedp.SendKeys("input[name=text]", "half a word", chromedp.ByQuery), chromedp.Focus("#rows input[type=checkbox]", chromedp.ByQuery))
	b.do(chromedp.Evaluate("window.box = document.activeElement", nil))
	tile := func(text string) string {
		return fmt.Sprintf("[...document.querySelectorAll('.facts dd')].some((e) => e.innerText === %q)", text)
	}
	s.put(orders(1)...)
	b.until(tile("10"))
	if !eval[bool](b, "box.isConnected && document.activeElement === box") {
		t.Error("a choice that was not sent is gone")
	}
	b.press(" ")
	b.do(chromedp.Blur("#rows input[type=checkbox]", chromedp.ByQuery))
	s.put(orders(1)...)
	b.until(tile("12"))
	if !eval[bool](b, "box.isConnected && box.checked && document.querySelector('input[name=text]').value === 'half a word'") {
		t.Error("what was chosen or typed is gone")
	}
	b.clean()
	other.clean()
}

// The page reports a broker that does not answer and a server that is gone, and their return.
func TestTroubleIsReported(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.put(orders(2)...)
	s.open(console.Config{})
	b := open(t)
	b.visit(s.url)
	b.until(headed("3 dead letters") + " && " + says("declined"))
	s.queue.silent.Store(true)
	b.until(says("no answer") + " && " + says("connection refused"))
	b.has("3", "Not all queues could be counted")
	b.click("table.queues tbody a", s.dlq)
	b.has("The broker does not answer", "These numbers are from", "The messages are not read while")
	if eval[string](b, "getComputedStyle(document.querySelector('.band.error')).backgroundColor") == eval[string](b, "getComputedStyle(document.body).backgroundColor") {
		t.Error("trouble looks like nothing")
	}
	s.queue.silent.Store(false)
	b.until("!" + says("The broker does not answer"))
	b.clean()

	// Without the server, the old content stays, with its age.
	address := strings.Trim(strings.TrimPrefix(s.url, "http:"), "/")
	if err := s.server.Close(); err != nil {
		t.Fatal(err)
	}
	offline := "document.getElementById('offline')"
	b.until(offline + ".checkVisibility() && " + says("Disconnected since"))
	b.has("declined", "Not up to date.")
	if eval[bool](b, "document.getElementById('live-status').innerText.startsWith('Updates on')") {
		t.Error("a page without a server claims to be up to date")
	}
	if eval[string](b, offline+".getAttribute('role')") != "alert" {
		t.Error("a screen reader gets no report")
	}
	s.listen(address)
	b.until("!" + offline + ".checkVisibility() && !" + says("Not up to date"))
	s.put(orders(2)...)
	b.until("[...document.querySelectorAll('.facts dd')].some((e) => e.innerText === '6')")
	b.clean("ERR_") // the browser says itself that nobody was there

	b.visit(s.url + "nowhere")
	b.until(headed("There is no such page"))
	b.visit(s.page("message", "&at=7/7"))
	b.has("All queues")
	b.clean("status of 404")
}
