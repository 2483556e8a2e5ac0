// Package console_test uses the web console with a real Chromium, as a person would: by keyboard, by mouse, without
// JavaScript, in dark mode, and with messages full of markup.
package console_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// maxWait bounds each wait. No result depends on how long it takes.
const maxWait = time.Minute

// The window of the browser.
const width, height = 1280, 900

// chromium is the browser that all tests of this run share. Each test has its own tabs.
var chromium = sync.OnceValues(start)

// atEnd has the functions that end the browser, called in reverse order.
var atEnd []func()

func TestMain(m *testing.M) {
	code := m.Run()
	for _, end := range slices.Backward(atEnd) {
		end()
	}
	os.Exit(code)
}

// start starts the browser. It ends with the tests.
func start() (context.Context, error) {
	path, err := exec.LookPath("chromium")
	if err != nil {
		return nil, fmt.Errorf("these tests need a chromium, which Debian has as a package: %w", err)
	}
	dir, err := os.MkdirTemp("", "redeliver-chromium-")
	if err != nil {
		return nil, err
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path), chromedp.UserDataDir(dir), chromedp.Flag("headless", "new"), chromedp.WindowSize(width, height),
		chromedp.NoSandbox, // it runs as root, in containers
		chromedp.Flag("disable-dev-shm-usage", true), chromedp.Flag("disable-gpu", true), chromedp.WSURLReadTimeout(maxWait))
	allocated, endProcess := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, endBrowser := chromedp.NewContext(allocated, chromedp.WithErrorf(func(string, ...any) {})) // a browser newer than the protocol's description
	atEnd = append(atEnd, func() { _ = os.RemoveAll(dir) }, endProcess, endBrowser)
	return ctx, chromedp.Run(ctx)
}

// tab is a tab of the browser, with its errors.
type tab struct {
	t   *testing.T
	ctx context.Context

	mu    sync.Mutex
	wrong []string
}

// guards run on every page before its own scripts. They record what the Content-Security-Policy has refused, and what
// only a foreign script would do.
const guards = `window.refused = []; window.hacked = [];
addEventListener("securitypolicyviolation", (e) => refused.push(e.violatedDirective + " " + e.blockedURI));
window.alert = (what) => hacked.push("alert " + what);`

// open opens a tab with these settings. An error in the tab fails the test.
func open(t *testing.T, settings ...chromedp.Action) *tab {
	t.Helper()
	browser, err := chromium()
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := chromedp.NewContext(browser)
	ctx, endTime := context.WithTimeout(ctx, 5*maxWait)
	b := &tab{t: t, ctx: ctx}
	t.Cleanup(func() {
		endTime()
		end()
	})
	chromedp.ListenTarget(ctx, b.listen)
	b.do(chromedp.ActionFunc(func(ctx context.Context) error {
		_, err := page.AddScriptToEvaluateOnNewDocument(guards).Do(ctx)
		return err
	}))
	b.do(emulation.SetDeviceMetricsOverride(width, height, 1, false), emulation.SetFocusEmulationEnabled(true)) // it is not the only tab
	b.do(settings...)
	return b
}

func (b *tab) listen(event any) {
	var what string
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		what = "an exception: " + e.ExceptionDetails.Error()
	case *log.EventEntryAdded:
		if e.Entry.Level == log.LevelError || e.Entry.Level == log.LevelWarning {
			what = fmt.Sprintf("%s: %s %s", e.Entry.Source, e.Entry.Text, e.Entry.URL)
		}
	case *page.EventJavascriptDialogOpening:
		what = "a dialog: " + e.Message
		go func() { _ = chromedp.Run(b.ctx, page.HandleJavaScriptDialog(false)) }() // else the page stands still
	}
	if what != "" {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.wrong = append(b.wrong, what)
	}
}

// clean fails the test if the tab has an error whose text contains none of the allowed parts.
func (b *tab) clean(but ...string) {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
next:
	for _, what := range b.wrong {
		for _, part := range but {
			if strings.Contains(what, part) {
				continue next
			}
		}
		b.t.Errorf("in the browser: %s", what)
	}
	b.wrong = nil
}

func (b *tab) do(actions ...chromedp.Action) {
	b.t.Helper()
	if err := chromedp.Run(b.ctx, actions...); err != nil {
		b.t.Fatalf("%v; the page is %s", err, b.text())
	}
}

// eval evaluates an expression on the page.
func eval[T any](b *tab, js string) (v T) {
	b.t.Helper()
	b.do(chromedp.Evaluate(js, &v))
	return v
}

// text returns the visible text of the page.
func (b *tab) text() (text string) {
	_ = chromedp.Run(b.ctx, chromedp.Evaluate(`document.body ? document.body.innerText : ""`, &text))
	return text
}

// visit goes to a page, and returns when the page is loaded.
func (b *tab) visit(url string) {
	b.t.Helper()
	b.leave(chromedp.ActionFunc(func(ctx context.Context) error {
		_, _, failure, _, err := page.Navigate(url).Do(ctx)
		if err == nil && failure != "" {
			err = fmt.Errorf("going to %s: %s", url, failure)
		}
		return err
	}))
}

// reload loads the page again.
func (b *tab) reload() {
	b.t.Helper()
	b.leave(page.Reload())
}

// leave runs actions that load a page, another one or the same.
func (b *tab) leave(action chromedp.Action) {
	b.t.Helper()
	b.do(chromedp.Evaluate("window.left = true", nil), action)
	b.until("!window.left && location.protocol === 'http:'")
}

// until waits until an expression is true, on this page or on one that it leads to.
func (b *tab) until(js string) {
	b.t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(maxWait)
	for {
		var ok bool
		// Between two pages there is no document.
		err := chromedp.Run(b.ctx, chromedp.Evaluate("document.readyState === 'complete' && !!("+js+")", &ok))
		if ok && err == nil {
			return
		}
		if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
			b.t.Fatal(err)
		}
		select {
		case <-tick.C:
		case <-deadline:
			b.t.Fatalf("it never holds that %s (%v); the page is %s\n%s", js, err, eval[string](b, "location.href"), b.text())
		}
	}
}

// says returns an expression that is true if the page contains a text.
func says(text string) string { return fmt.Sprintf("document.body.innerText.includes(%q)", text) }

// headed returns an expression that is true if the page's heading contains a text.
func headed(text string) string {
	return fmt.Sprintf("document.querySelector('h1')?.innerText.includes(%q)", text)
}

// has fails the test if the page does not contain a text.
func (b *tab) has(texts ...string) {
	b.t.Helper()
	for _, text := range texts {
		if !eval[bool](b, says(text)) {
			b.t.Errorf("the page does not say %q:\n%s", text, b.text())
		}
	}
}

// press presses keys, one after another.
func (b *tab) press(keys ...string) {
	b.t.Helper()
	for _, key := range keys {
		b.do(pressed(key))
	}
}

// pressed presses a key as a keyboard does. chromedp.KeyEvent sends no raw key, so the browser would enter the
// character even if a script has used the key.
func pressed(key string) chromedp.Action {
	var events chromedp.Tasks
	for _, r := range key {
		for _, e := range kb.Encode(r) {
			if e.Type == input.KeyDown {
				e.Type = input.KeyRawDown
			}
			events = append(events, e)
		}
	}
	return events
}

// maxTabs bounds how often reach presses Tab.
const maxTabs = 80

// reach presses Tab until the focus is on an element e for which an expression is true. It fails the test if the focus
// is invisible on the way, or never gets there.
func (b *tab) reach(is string) {
	b.t.Helper()
	type focus struct {
		There, Seen bool
		Name        string
	}
	var passed []string
	for range maxTabs {
		b.press(kb.Tab)
		f := eval[focus](b, `(() => { const e = document.activeElement, s = getComputedStyle(e), r = e.getBoundingClientRect();
			return { There: e !== document.body && !!(`+is+`), Seen: e === document.body || s.outlineStyle !== "none" && parseFloat(s.outlineWidth) >= 2 && r.width > 0 && r.bottom > 0 && r.top < innerHeight,
				Name: (e.innerText || e.name || e.tagName).slice(0, 40) } })()`)
		passed = append(passed, f.Name)
		if !f.Seen {
			b.t.Errorf("the focus cannot be seen on %q", f.Name)
		}
		if f.There {
			return
		}
	}
	b.t.Fatalf("no Tab leads to %s, only to %q", is, passed)
}

// follow reaches an element by keyboard and presses Enter, which loads a page with this heading.
func (b *tab) follow(is, to string) {
	b.t.Helper()
	b.reach(is)
	b.leave(pressed(kb.Enter))
	b.until(headed(to))
}

// click clicks on the element that a selector finds, which loads a page with this heading.
func (b *tab) click(selector, to string) {
	b.t.Helper()
	b.leave(chromedp.Click(selector, chromedp.ByQuery))
	b.until(headed(to))
}
