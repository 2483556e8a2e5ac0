//go:build prove

package console_test

import (
	"bytes"
	"flag"
	"fmt"
	"image/png"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/console"
)

var screenshots = flag.String("screenshots", "", "the `directory` into which the screenshots of the pages are written (default one that is thrown away)")

// The options of a screenshot.
const (
	maxHeight = 1000
	maxBytes  = 200_000
)

// A screenshot of every page can be taken. make screenshots writes docs/screenshots with this test. Kafka runs in this
// process, because its names are in the pictures.
func TestScreenshots(t *testing.T) {
	t.Parallel()
	dir := *screenshots
	if dir == "" {
		dir = t.TempDir()
	}
	k, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Close)
	s := newShopOn(t, k.ListenAddrs(), "orders")
	refunds, invoices := newShopOn(t, k.ListenAddrs(), "refunds"), newShopOn(t, k.ListenAddrs(), "invoices")
	s.put(failures()...)
	refunds.put(orders(20)...)
	s.open(console.Config{Title: "The shop", TraceURL: "https://traces.example.com/{trace}", Queues: []console.Queue{{Queue: waiting{refunds.queue}}, {Queue: invoices.queue}}})
	b := open(t)
	take := func(name string, actions ...chromedp.Action) {
		t.Helper()
		b.do(actions...)
		b.picture(filepath.Join(dir, name+".png"))
	}
	visit := func(name, target, until string) {
		t.Helper()
		b.visit(target)
		b.until(until)
		take(name)
	}
	b.visit(s.url)
	b.until(says("limit of") + " && " + says("declined"))
	refunds.queue.silent.Store(true)
	b.until(says("no answer"))
	take("home")
	take("home-dark", scheme("dark"))
	take("home-phone", scheme("light"), emulation.SetDeviceMetricsOverride(360, 640, 1, true))
	b.do(emulation.SetDeviceMetricsOverride(width, height, 1, false))

	visit("dlq", s.page("dlq", ""), headed(s.dlq))
	visit("trouble", refunds.page2(s, "dlq"), says("The broker does not answer"))
	visit("waiting", refunds.page2(s, "waiting"), headed("Waiting for"))
	visit("pause", refunds.page2(s, "pause"), headed("Pause"))
	visit("messages", s.page("messages", "&type=*bank.Error&order=newest&size=8"), headed("Messages"))
	visit("message", s.page("message", "&at=0/0"), headed("o-0"))
	visit("search", s.url+"search?q=limit+of+23", says("messages found"))
	visit("purge", s.page("purge", "&reason=rejected"), headed("Purge"))

	b.visit(s.page("edit", "&at=0/0"))
	b.do(chromedp.Evaluate(`document.querySelector("textarea").value = document.querySelector("textarea").value.replace("Ada", "Grace")`, nil), chromedp.SendKeys("input[name=why]", "her name, INC-1208", chromedp.ByQuery))
	b.click("button[value=preview]", "Edit and replay")
	take("edit")

	b.visit(s.page("replay", "&type=*net.OpError"))
	b.do(chromedp.SendKeys("input[name=why]", "the bank is back, INC-1207", chromedp.ByQuery))
	take("replay")
	b.do(chromedp.Evaluate(`document.querySelector("input[name=watch]").value = 1`, nil))
	b.click("form.order button.main", "Replay")
	b.until(headed("done"))
	take("task")
	visit("tasks", s.url+"tasks", says("INC-1207"))
	visit("problem", s.url+"nowhere", headed("There is no such page"))

	b.visit(s.page("dlq", ""))
	b.until(headed(s.dlq))
	if err := s.server.Close(); err != nil {
		t.Fatal(err)
	}
	b.until(says("Disconnected since"))
	take("disconnected")

	s.queue.silent.Store(false)
	viewer := console.Custom(func(*http.Request) (console.Actor, error) {
		return console.Actor{Name: "bob", Role: console.RoleViewer}, nil
	})
	s.open(console.Config{Title: "The shop", Auth: viewer, ReadOnly: true})
	visit("viewer", s.page("message", "&at=0/0"), headed("o-0"))
	invoices.open(console.Config{Title: "The shop"})
	visit("empty", invoices.url, headed("No dead letters"))
	b.clean("status of 404", "ERR_")
}

// failures are dead letters of one day, with four causes.
func failures() (letters []letter) {
	for i := range 240 {
		l := letter{
			id: fmt.Sprintf("o-%d", i), key: fmt.Sprintf("customer-%d", i*i%61), attempts: 4, trace: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", ago: time.Duration((240-i)*(240-i)) * 1400 * time.Millisecond,
			body:    fmt.Sprintf(`{"id":%d,"customer":"Ada","sum":%d.10,"card":%d,"items":["book","<b>text</b>"]}`, 9007199254740993+i, i, 4_000_000_000_004_730+i),
			headers: []kgo.RecordHeader{{Key: "tenant", Value: []byte([]string{"acme", "globex"}[i%2])}, {Key: "content-type", Value: []byte("application/json")}},
		}
		switch {
		case i%11 == 5:
			l.kind, l.text, l.reason, l.attempts = "*bank.Error", fmt.Sprintf("no such card: %d", 4730+i), redeliver.ReasonPermanent, 1
		case i%7 == 3:
			l.text, l.reason, l.attempts = "the shelf of books is empty", redeliver.ReasonRejected, 1
		case i%3 == 1:
			l.kind, l.text = "*net.OpError", "dial tcp 10.0.0.7:443: connect: connection refused"
		default:
			l.kind, l.text = "*bank.Error", fmt.Sprintf("card %d declined: limit of %d.10 EUR is exceeded", 4730+i, i)
		}
		letters = append(letters, l)
	}
	return letters
}

// picture writes a screenshot of the whole page, or of its top if it is too long.
func (b *tab) picture(path string) {
	b.t.Helper()
	tall := min(maxHeight, max(400, eval[int64](b, "document.documentElement.scrollHeight")))
	wide := eval[int64](b, "innerWidth")
	b.do(emulation.SetDeviceMetricsOverride(wide, tall, 1, wide < width))
	var shot []byte
	b.do(chromedp.CaptureScreenshot(&shot))
	size, err := png.DecodeConfig(bytes.NewReader(shot))
	if err != nil || int64(size.Width) != wide || int64(size.Height) != tall {
		b.t.Errorf("%s has %d x %d: %v", path, size.Width, size.Height, err)
	}
	if *screenshots != "" || len(shot) > maxBytes { // the browser is quick about it
		shot = b.packed(shot)
	}
	if len(shot) > maxBytes {
		b.t.Errorf("%s has %d bytes, more than %d", path, len(shot), maxBytes)
	}
	if err := os.WriteFile(path, shot, 0o644); err != nil {
		b.t.Fatal(err)
	}
	b.do(emulation.SetDeviceMetricsOverride(wide, height, 1, wide < width))
}

// packed compresses a picture as far as possible.
func (b *tab) packed(shot []byte) []byte {
	b.t.Helper()
	picture, err := png.Decode(bytes.NewReader(shot))
	if err != nil {
		b.t.Fatal(err)
	}
	var small bytes.Buffer
	if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&small, picture); err != nil {
		b.t.Fatal(err)
	}
	return small.Bytes()
}
