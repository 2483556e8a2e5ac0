package console_test

import (
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/redeliver/redeliver/console"
)

// Keys of one letter find and open a message and copy its id. They can be turned off, as WCAG 2.1.4 requires. One box
// selects all messages of a page.
func TestKeysOfOneLetter(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.put(orders(3)...)
	s.open(console.Config{})
	b := open(t)
	b.visit(s.url)
	b.until(headed("4 dead letters"))
	b.press("/")
	b.until("document.activeElement.id === 'find'")
	b.press("card 4712 ?jkr") // and no letter is a shortcut here
	b.until("document.getElementById('find').value === 'card 4712 ?jkr'")
	b.press(strings.Repeat(kb.Backspace, 5))
	b.leave(pressed(kb.Enter))
	b.until(headed("1 message found"))
	b.press("j")
	b.leave(pressed(kb.Enter))
	b.until(headed("o-1"))
	b.press("r")
	b.until("document.activeElement.innerText === 'Replay…'")
	b.do(chromedp.Evaluate("navigator.clipboard.writeText = async (text) => { window.copied = text }; true", nil), chromedp.Click("h1 .copy", chromedp.ByQuery))
	b.until("document.querySelector('h1 .copy').innerText === 'Copied'")
	if copied := eval[string](b, "window.copied"); copied != "o-1" {
		t.Errorf("the clipboard gets %q", copied)
	}
	b.press("?")
	b.until("document.getElementById('keys').open")
	b.do(chromedp.Click("#keys-toggle", chromedp.ByQuery))
	b.press("/")
	if eval[bool](b, "document.activeElement.id === 'find'") {
		t.Error("a key that was turned off does something")
	}
	b.reload()
	b.press("/")
	if eval[bool](b, "document.activeElement.id === 'find'") {
		t.Error("it is on again on another page")
	}
	b.visit(s.page("messages", ""))
	b.do(chromedp.Click("[data-all]", chromedp.ByQuery))
	b.until("document.querySelectorAll('input[name=at]:checked').length === 4")
	b.clean()
}
