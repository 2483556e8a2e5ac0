package console_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/redeliver/redeliver/console"
	"github.com/redeliver/redeliver/middleware"
)

// service is the group whose handler has failed and is fixed now.
type service struct {
	fixed atomic.Bool
	mu    sync.Mutex
	got   map[string]int // by the id of what was handled
}

// serve runs the service until the test ends.
func (s *shop) serve() *service {
	s.t.Helper()
	v := &service{got: make(map[string]int)}
	router, err := message.NewRouter(message.RouterConfig{}, watermill.NewSlogLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		s.t.Fatal(err)
	}
	router.AddMiddleware(middleware.Retry())
	router.AddConsumerHandler("charge", s.topic, s.client.Subscriber(), func(msg *message.Message) error {
		if !v.fixed.Load() {
			return errors.New("the bank is closed")
		}
		v.mu.Lock()
		defer v.mu.Unlock()
		v.got[msg.UUID]++
		return nil
	})
	ctx, end := context.WithCancel(context.WithoutCancel(s.t.Context()))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := router.Run(ctx); err != nil {
			s.t.Error(err)
		}
	}()
	s.t.Cleanup(func() {
		end()
		<-ended
	})
	select {
	case <-router.Running():
	case <-ended:
		s.t.FailNow()
	}
	return v
}

func (v *service) handled() map[string]int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return maps.Clone(v.got)
}

// By keyboard alone, a user goes from the home page to the cause, its messages, and a replay with a typed reason. The
// group that failed the messages handles them after the replay, and the page shows that without a reload.
func TestACauseIsReplayedByKeyboard(t *testing.T) {
	t.Parallel()
	const n = 7
	s := newShop(t)
	v := s.serve()
	s.put(orders(n)...)
	s.open(console.Config{})
	b := open(t)
	b.visit(s.url)
	b.until(headed(fmt.Sprintf("%d dead letters", n+1)))

	// The first Tab skips what is on every page.
	b.reach("e.innerText === 'Skip to the content'")
	b.press(kb.Enter)
	b.until("document.activeElement.id === 'main'")

	b.follow(fmt.Sprintf("e.innerText === %q", s.dlq), s.dlq)
	b.until(says("declined")) // read, and not only counted
	b.has("Causes", "88 %", "*bank.Error", "exhausted")
	b.follow("e.closest('tbody th')?.innerText.includes('declined')", "Messages")
	b.has("o-0", "customer-0")
	if eval[bool](b, says("o-last")) {
		t.Error("the other cause is among them")
	}
	b.follow("e.innerText === 'o-3'", "o-3")
	b.has("card 4714 declined", "12345678901234567890", "customer-0", "Last failure, attempt 4")
	b.follow("e.innerText === 'All with this cause'", "Messages")
	b.follow("e.innerText.startsWith('Replay all')", "Replay ")
	b.has("Would be sent", fmt.Sprintf("Replay %d messages", n))

	b.reach("e.name === 'why'")
	b.do(chromedp.KeyEvent("the bank is open, INC-1207"))
	b.reach("e.name === 'canary'")
	b.press("1", ",", "3") // what was there is chosen, and so overwritten
	b.reach("e.name === 'watch'")
	b.press("1")
	v.fixed.Store(true)
	b.follow(fmt.Sprintf("e.innerText === 'Replay %d messages'", n), "Replay")
	b.has("The task was started", "INC-1207", "1, 3, each watched for 1 s", "local (console)")
	b.do(chromedp.Evaluate("window.same = true", nil))
	b.until(headed("done"))
	if !eval[bool](b, "window.same") {
		t.Error("the page was loaded again")
	}
	b.has(fmt.Sprintf("%d of %d", n, n), "o-3", "replayed")
	s.await("all are handled", func() bool { return len(v.handled()) == n })
	for id, times := range v.handled() {
		if times != 1 || id == "o-last" {
			t.Errorf("%s was handled %d times", id, times)
		}
	}
	b.follow("e.innerText === 'Queues'", "1 dead letter")
	b.follow("e.innerText === 'Tasks'", "Tasks")
	b.has("INC-1207", "done")
	b.clean()
}

// The same without JavaScript, by mouse.
func TestACauseIsReplayedWithoutJavaScript(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.put(orders(3)...)
	s.open(console.Config{})
	b := open(t, emulation.SetScriptExecutionDisabled(true))
	again := func(says string) {
		t.Helper()
		s.await("the page says "+says, func() bool {
			b.reload()
			return strings.Contains(b.text(), says)
		})
	}
	b.visit(s.url)
	again("4 dead letters")
	if eval[bool](b, "!document.getElementById('live').hidden || window.same !== undefined") {
		t.Error("a script has run")
	}
	b.click(fmt.Sprintf("a[href$=%q]", s.dlq), s.dlq)
	again("declined")
	b.click(`tbody a.button[href^="replay?"]`, "Replay ")
	// A replay without a reason is refused.
	b.do(chromedp.Click("form.order button.main", chromedp.ByQuery))
	b.until("document.querySelector('input[name=why]').matches(':invalid')")
	b.do(chromedp.SendKeys("input[name=why]", "the bank is open", chromedp.ByQuery))
	b.reach("e.name === 'canary'")
	b.press(kb.Backspace)
	b.click("form.order button.main", "Replay")
	again("Replay done")
	b.has("3 of 3", "the bank is open")

	// A purge, which needs the typed name of the DLQ.
	b.click(".crumbs a:nth-of-type(2)", s.dlq)
	b.click(`a[href^="purge?"]`, "Purge 1 message from "+s.dlq)
	b.do(chromedp.SendKeys("input[name=why]", "a test", chromedp.ByQuery), chromedp.SendKeys("input[name=confirm]", "orders", chromedp.ByQuery))
	b.until("document.querySelector('input[name=confirm]').validity.patternMismatch") // the browser does not send the form
	b.visit(s.page("purge", ""))
	b.do(chromedp.SendKeys("input[name=why]", "a test", chromedp.ByQuery), chromedp.SendKeys("input[name=confirm]", s.dlq, chromedp.ByQuery))
	b.click("form.order button.danger", "Purge")
	again("Purge done")
	b.click("nav a", "dead letter") // counted soon
	again("No dead letters")
	b.clean("status of 400") // for the wrong name
}
