package console

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/redelivertest"
)

// where returns the position of a message by its id.
func where(t *testing.T, q deadletter.Queue, id string) string {
	t.Helper()
	for m, err := range deadletter.Browse(t.Context(), q, deadletter.Filter{IDs: []string{id}}) {
		if err != nil {
			t.Fatal(err)
		}
		return string(m.Position)
	}
	t.Fatalf("message %s is not there", id)
	return ""
}

func page(name string, q deadletter.Queue, more ...string) string {
	return "/" + address(name, q.Info().DLQ, nil, more...)
}

func TestPagesShowAgeAndRetention(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		s := newShop(t, b,
			failingMessage("o-1", "card 4711 declined", `{"id":12345678901234567890,"sum":1.10}`),
			failingMessage("o-2", "card 4712 declined", "line one\nline two"),
			failingMessage("o-3", "bank is closed", "\x00\x01\xff"))
		c := open(t, b, Config{Queues: []Queue{{Queue: s.queue}}, Title: "The shop"})

		get(t, c, "/").has(t, "The shop", "3 dead letters", "orders.billing.dlq", "orders → billing", "2 × card 4712 declined", "3 from the last hour", "The broker does not report waiting messages")
		get(t, c, page("dlq", s.queue)).has(t, "Dead letters 3", "Causes 2", "bank is closed", "67 %", "o-1", "o-2", "o-3", "View as table")

		found := get(t, c, page("messages", s.queue, "body", "line two"))
		if found.has(t, "body with line two", "o-2"); strings.Contains(found.text(), "o-1") || strings.Contains(found.text(), "o-3") {
			t.Error("the text is not in the body of all messages")
		}
		some := get(t, c, page("messages", s.queue, "text", "CLOSED"))
		some.has(t, "error text with CLOSED", "o-3")
		if strings.Contains(some.text(), "o-1") {
			t.Error("the filter matches all messages")
		}
		get(t, c, page("messages", s.queue, "key", "customer-o-2")).has(t, "o-2")
		get(t, c, page("messages", s.queue, "id", "none")).has(t, "No message. 3 were read")

		// Numbers in JSON are shown unchanged, not as a float.
		get(t, c, page("message", s.queue, "at", where(t, s.queue, "o-1"))).has(t, "JSON", `"id": 12345678901234567890`, `"sum": 1.10`, "customer-o-1", "_watermill_message_uuid", "Timeline", "Dead-lettered", "exhausted")
		get(t, c, page("message", s.queue, "at", where(t, s.queue, "o-2"))).has(t, "17 B, text", "line one line two", "6c 69 6e 65")
		get(t, c, page("message", s.queue, "at", where(t, s.queue, "o-3"))).has(t, "3 B, binary", "00 01 ff")
		file := get(t, c, page("payload", s.queue, "at", where(t, s.queue, "o-3")))
		if file.body != "\x00\x01\xff" || file.Header.Get("Content-Type") != "application/octet-stream" || !strings.HasPrefix(file.Header.Get("Content-Disposition"), "attachment") {
			t.Errorf("the body comes as %q, %v", file.body, file.Header)
		}
		get(t, c, "/tasks").has(t, "No tasks yet")

		for target, status := range map[string]int{
			"/dlq?dlq=other":                                                   http.StatusNotFound,
			page("message", s.queue, "at", "77"):                               http.StatusNotFound,
			page("message", s.queue):                                           http.StatusBadRequest,
			page("task", s.queue, "id", "none"):                                http.StatusNotFound,
			page("messages", s.queue, "size", "1000"):                          http.StatusBadRequest,
			page("messages", s.queue, "skip", "-1"):                            http.StatusBadRequest,
			page("messages", s.queue, "after", "monday"):                       http.StatusBadRequest,
			page("messages", s.queue, "key", "base64:?"):                       http.StatusBadRequest,
			page("messages", s.queue, "text", strings.Repeat("x", maxParam+1)): http.StatusBadRequest,
			"/nothing/here":                                                    http.StatusNotFound,
			"/assets/layout.css":                                               http.StatusNotFound,
		} {
			if a := ask(t, c, http.MethodGet, target, nil); a.StatusCode != status || a.page == nil {
				t.Errorf("GET %s is %d, want %d", target, a.StatusCode, status)
			}
		}
	})
}

// The page of a message shows its trace id in a separate element, so that users can copy it.
func TestAMessageHasItsTrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newStub("traced", 2)
		plain := q.make
		q.make = func(i int64) *deadletter.Message {
			m := plain(i)
			if i == 1 {
				m.State.Trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
			}
			return m
		}
		c, err := New(Config{Queues: []Queue{{Queue: q}}})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		get(t, c, page("message", q, "at", "1")).has(t, "Trace 0af7651916cd43dd8448eb211c80319c")
		if text := get(t, c, page("message", q, "at", "0")).text(); strings.Contains(text, "Trace ") {
			t.Error("a message without a trace has one")
		}
	})
}

// A scan reads one partition after another. The newest messages are those that were written last, of all partitions.
func TestNewestFirstIsByTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 20
		q := newStub("parted", n)
		old := q.make
		q.make = func(i int64) *deadletter.Message { // two partitions, written in turns
			m := old(i)
			m.Time = time.Now().Add(time.Duration(i%(n/2)*2+i/(n/2)-n) * time.Minute)
			return m
		}
		c, err := New(Config{Queues: []Queue{{Queue: q}}})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		var got []string
		get(t, c, page("messages", q, "order", "newest", "size", "4")).each(func(n *node) {
			if n.Data == "code" && strings.HasPrefix(n.FirstChild.Data, "id-") {
				got = append(got, n.FirstChild.Data)
			}
		})
		if want := []string{"id-19", "id-9", "id-18", "id-8"}; !slices.Equal(got, want) {
			t.Errorf("the newest are %q, want %q", got, want)
		}
	})
}

// A list reads the whole DLQ if its tail has too few matches, even if there is no background count to compare with yet.
func TestNewestFirstFindsEarlierMessagesOfAnUncountedDLQ(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newStub("big", 100)
		q.tail = 10
		q.fail(errSilent)
		c, err := New(Config{Queues: []Queue{{Queue: q}}})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		synctest.Wait() // the first count has failed
		q.fail(nil)
		get(t, c, page("messages", q, "order", "newest", "id", "id-3")).has(t, "id-3", "key-3")
	})
}

func TestAListHasPagesInBothOrders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newStub("big", 120)
		old := q.make
		q.make = func(i int64) *deadletter.Message {
			m := old(i)
			m.Time = time.Now().Add(time.Duration(i-1000) * time.Second)
			return m
		}
		c, err := New(Config{Queues: []Queue{{Queue: q}}})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		for order, want := range map[string][]string{"": {"id-0", "id-49", "id-50", "id-99", "id-100", "id-119"}, "newest": {"id-119", "id-70", "id-69", "id-20", "id-19", "id-0"}} {
			var got []string
			for target := page("messages", q, "order", order); target != ""; {
				a := get(t, c, target)
				var ids []string
				target = ""
				a.each(func(n *node) {
					if n.Data == "code" && strings.HasPrefix(n.FirstChild.Data, "id-") {
						ids = append(ids, n.FirstChild.Data)
					}
					if n.Data == "a" && attr(n, "rel") == "next" {
						target = "/" + attr(n, "href")
					}
				})
				got = append(got, ids[0], ids[len(ids)-1])
			}
			if !slices.Equal(got, want) {
				t.Errorf("order %q has pages from and to %v, want %v", order, got, want)
			}
		}
	})
}

func TestEmptyDLQsAreShownAsEmpty(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newStub("none", 0)
		q.gate = make(chan struct{})
		c, err := New(Config{Queues: []Queue{{Queue: q}}})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		get(t, c, "/").has(t, "not counted yet")
		close(q.gate)
		synctest.Wait()
		get(t, c, "/").has(t, "No dead letters", "Every queue is empty")
		get(t, c, page("dlq", q)).has(t, "No dead letters.")
		get(t, c, page("replay", q)).has(t, "There is nothing to replay")
	})
}

// The page shows what the broker reports about waiting messages and its retention.
func TestWaitingMessagesAndRetentionAreShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newStub("waits", 3)
		q.waiting = []Level{{"10s", 4, 0, 0}, {"1m", 5, 2, 0}, {"2m", 6, -1, 3 * time.Minute}, {"3m", 7, -1, minOverdue - 1}}
		q.keeps = 20 * time.Hour
		c, err := New(Config{Queues: []Queue{{Queue: q, Cluster: "east"}}})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		synctest.Wait()
		get(t, c, "/").has(t, "east", "22 waiting: 10s 4 , 1m 5 2 late", "2 late , 2m 6 late by 3 min", "2m 6 late by 3 min , 3m 7", "dropped in 19 h")
		get(t, c, page("dlq", q)).has(t, "Dropped by the broker in 19 h", "1m 5 2 late", "2m 6 late by 3 min 3m 7")
	})
}

// The queues stand in the order of the configuration, or by a column.
func TestQueuesAreSorted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		few, many := newStub("few", 2), newStub("many", 3)
		few.keeps, many.keeps = time.Hour, time.Hour
		c, err := New(Config{Queues: []Queue{{Queue: few}, {Queue: many}}})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		synctest.Wait()
		for order, first := range map[string]string{"": "few", "count": "many", "oldest": "many", "arrived": "many", "none": "few"} {
			text := get(t, c, "/?order="+order).text()
			if _, rows, _ := strings.Cut(text, "Waiting for a retry"); !strings.HasPrefix(strings.TrimSpace(rows), first) {
				t.Errorf("by %q %s is not the first: %s", order, first, rows)
			}
		}
	})
}

// A message of another group is never replayed, so its page does not offer this.
func TestAMessageThatCannotBeReplayedHasNoReplayButton(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newStub("mixed", 2)
		letter := q.make
		q.make = func(i int64) *deadletter.Message {
			m := letter(i)
			if i == 1 {
				m.Mismatch = "its headers name group others"
			}
			return m
		}
		c, err := New(Config{Queues: []Queue{{Queue: q}}})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		get(t, c, page("message", q, "at", "0")).has(t, "Replay… Edit and replay…", "Purge…")
		foreign := get(t, c, page("message", q, "at", "1"))
		foreign.has(t, "Not of this group: its headers name group others", "Purge…")
		if strings.Contains(foreign.body, `href="replay?`) || strings.Contains(foreign.body, `href="edit?`) {
			t.Errorf("it can be replayed or edited: %s", foreign.text())
		}
	})
}

// A broker that does not answer is shown with its last known state and without its password, and it recovers without a
// restart.
func TestABrokerThatDoesNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newStub("far", 2)
		c, err := New(Config{Queues: []Queue{{Queue: q}}})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		synctest.Wait()
		q.fail(errSilent)
		<-time.After(2 * DefaultRefresh)
		for _, target := range []string{"/", page("dlq", q)} {
			a := get(t, c, target)
			a.has(t, "connection refused")
			if strings.Contains(a.body, "secret") {
				t.Errorf("%s contains the password", target)
			}
		}
		dlq := get(t, c, page("dlq", q))
		dlq.has(t, "The broker does not answer", "Dead letters 2", "The messages are not read while the broker does not answer")
		if strings.Contains(dlq.text(), "No message") {
			t.Error("2 dead letters that could not be read are said not to be there")
		}
		get(t, c, "/tasks").has(t, "far did not answer")
		if a := ask(t, c, http.MethodGet, page("messages", q), nil); a.StatusCode != http.StatusBadGateway || strings.Contains(a.body, "secret") {
			t.Errorf("its messages are %d: %s", a.StatusCode, a.text())
		}
		q.fail(nil)
		<-time.After(2 * DefaultRefresh)
		if a := get(t, c, "/"); strings.Contains(a.text(), "no answer") {
			t.Error("it answers again, and no event reports it")
		}
	})
}

// If reading changes a counter, it never happens by accident: not in the background, and not by opening a page.
func TestADLQWhoseReadsHaveAnEffectIsReadOnlyOnRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newStub("costly", 7)
		q.info.ReadEffect = "raises x-delivery-count of each message"
		c, err := New(Config{Queues: []Queue{{Queue: q}}})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		<-time.After(20 * DefaultRefresh)
		get(t, c, "/").has(t, "costly", "7", "Not read in the background, because reading has a cost")
		for _, name := range []string{"dlq", "messages", "message", "edit", "replay", "purge", "payload"} {
			a := get(t, c, page(name, q, "at", "3"))
			a.has(t, "raises x-delivery-count")
		}
		if n := q.scanned(); n != 0 {
			t.Fatalf("it was read %d times without a request", n)
		}
		ask(t, c, "POST", "/causes", url.Values{"dlq": {q.info.DLQ}})
		synctest.Wait()
		get(t, c, page("dlq", q)).has(t, "bank is closed", "Read it again")
		<-time.After(20 * DefaultRefresh)
		if n := q.scanned(); n != 1 {
			t.Fatalf("it was read %d times, and asked for once", n)
		}
		get(t, c, page("messages", q, "look", "yes")).has(t, "id-6")
		get(t, c, page("message", q, "at", "3", "look", "yes")).has(t, "id-3")
	})
}

// The home page shows earlier counts, so its size and speed do not depend on the number of messages.
func TestTheHomePageIsSmall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var cfg Config
		var stubs []*stub
		for i := range 10 {
			q := newStub(fmt.Sprintf("orders-with-a-rather-long-name-%d.a-group-with-a-long-name-too.dlq", i), 10_000)
			q.make = func(of func(int64) *deadletter.Message) func(int64) *deadletter.Message {
				return func(n int64) *deadletter.Message {
					m := of(n)
					m.State.Error = strings.Repeat(fmt.Sprintf("cause %c ", 'a'+rune(n%600%26)), 100)
					m.Handler = fmt.Sprint(n % 600)
					return m
				}
			}(q.make)
			if i > 0 { // reading one is enough for the test
				q.n = 2000
			}
			stubs = append(stubs, q)
			cfg.Queues = append(cfg.Queues, Queue{Queue: q})
		}
		c, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		synctest.Wait()
		before := 0
		for _, q := range stubs {
			before += q.scanned()
		}
		a := get(t, c, "/")
		a.has(t, "28,000 dead letters")
		all := len(a.body)
		for _, asset := range []string{"/assets/console.css", "/assets/console.js", "/assets/icon.svg"} {
			all += len(get(t, c, asset).body)
		}
		t.Logf("report: the home page of 10 DLQs has %d bytes, %d with its style, script and icon", len(a.body), all)
		if all > 150_000 {
			t.Errorf("the whole home page has %d bytes, more than 150 kB", all)
		}
		after := 0
		for _, q := range stubs {
			after += q.scanned()
		}
		if after != before {
			t.Error("the home page reads DLQs")
		}
		// The page of a DLQ shows a limited number of causes.
		rows := 0
		get(t, c, page("dlq", stubs[0])).each(func(n *node) {
			if n.Data == "a" && strings.HasPrefix(attr(n, "href"), "replay?") && strings.Contains(attr(n, "href"), "fp=") {
				rows++
			}
		})
		if rows != maxGroups {
			t.Errorf("the page shows %d causes, want %d", rows, maxGroups)
		}
	})
}

func TestAFilterSurvivesItsAddress(t *testing.T) {
	now := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	for _, f := range []deadletter.Filter{
		{},
		{Fingerprints: []string{"a", "b"}, IDs: []string{"1&2"}, Positions: []deadletter.Position{"2/3"}, Key: []byte("k=v")},
		{Key: []byte{0, 1, 255}, Headers: map[string]string{"tenant": "a b"}, After: now, Before: now.Add(time.Hour)},
		{ErrorText: "50%", ErrorType: "*x.Y", Reasons: []reason{"exhausted"}},
	} {
		v := url.Values{}
		writeFilter(v, &f)
		back, err := readFilter(v)
		if err != nil || fmt.Sprint(back) != fmt.Sprint(f) {
			t.Errorf("%+v came back as %+v: %v", f, back, err)
		}
	}
}

func TestAConfigurationThatCannotWorkIsRefusedAtOnce(t *testing.T) {
	q := newStub("a", 0)
	_, err := New(Config{Queues: []Queue{{}, {Queue: q}, {Queue: q}}, Refresh: 1, Auth: Basic(User{Name: "ann", Password: "short", Role: RoleViewer})})
	if err == nil {
		t.Fatal("it was accepted")
	}
	for _, want := range []string{"Queues[0]", "Queues[2]", "Refresh", "at least 8 bytes"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not mention %s", err, want)
		}
	}
	if _, err := New(Config{}); err == nil || errors.Unwrap(err) == nil {
		t.Error("a console of nothing was opened")
	}
}
