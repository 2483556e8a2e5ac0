package cli_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

// event returns a record of payments with a header.
func event(text, kind string) *kgo.Record {
	return &kgo.Record{Topic: "payments", Key: []byte(text), Value: []byte(text), Headers: []kgo.RecordHeader{{Key: "type", Value: []byte(kind)}}}
}

// The handler does not get what a filter skips, alone or in a batch, also if it fails everything else. Skipped messages are
// acked and counted, and the log of the start names the filters.
func TestRunSkips(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{
		"messages": {},
		"batches":  {"--batch", "10", "--batch-wait", "10ms"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newTestKafka(t)
			s.topics("payments")
			p := newProgram(t, func(w http.ResponseWriter, a asked) {
				if strings.Contains(a.body, "paid") {
					http.Error(w, "no such card", http.StatusUnprocessableEntity)
				}
			})
			tombstone := event("gone", "created")
			tombstone.Value = nil
			empty := event("", "created")
			empty.Value = []byte{}
			s.put(event("created", "created"), event("foreign", "moved"), tombstone, empty, event("test", "created"), event("paid", "paid"), payments("no header")[0])
			s.put(&kgo.Record{Topic: "payments", Value: []byte("the last value counts"), Headers: []kgo.RecordHeader{{Key: "type", Value: []byte("created")}, {Key: "type", Value: []byte("moved")}}})
			test := event("of a test", "created")
			test.Headers = append(test.Headers, kgo.RecordHeader{Key: "test", Value: []byte{0xff}})
			s.put(test)
			h := s.handle(append(args, "--http", p.URL, "--health", "127.0.0.1:0", "--metrics", "--dedup", "memory",
				"--skip-tombstones", "--only-header", "type=created", "--only-header", "type=paid", "--skip-header", "test=base64:/w")...)
			health := h.healthOf(s)
			const series = `redeliver_skipped_total{group="billing",messaging_system="kafka",origin="payments",why="%s"} %d`
			s.await("it counts what it skips", func() bool {
				text := get(t, health+"/metrics")
				return strings.Contains(text, fmt.Sprintf(series, "tombstone", 1)) && strings.Contains(text, fmt.Sprintf(series, "header", 4)) &&
					strings.Contains(text, `redeliver_committed_total{group="billing",messaging_system="kafka",origin="payments"} 8`)
			})
			if got := s.dead(1); got["paid"] == "" {
				t.Errorf("in the DLQ are %q", got)
			}
			var row struct {
				Skips []string `json:"skips"`
			}
			if err := json.Unmarshal([]byte(h.out.String()), &row); err != nil || len(row.Skips) != 3 {
				t.Errorf("it says %q: %v", row.Skips, err)
			}
			h.stop().want(t, 0, "records without a value; messages without the header type=created or type=paid; messages with the header test=base64:/w")

			posted := fmt.Sprint(p.attempts())
			for _, text := range []string{"foreign", "gone", "no header", "the last value counts", "of a test"} {
				if strings.Contains(posted, text) {
					t.Errorf("%q was posted in %s", text, posted)
				}
			}
			if !strings.Contains(posted, "created") || !strings.Contains(posted, "test") {
				t.Errorf("posted were %s", posted)
			}

			// A process without filters gets only what is new.
			s.put(event("new", "moved"))
			other := newProgram(t, func(http.ResponseWriter, asked) {})
			again := s.handle("--http", other.URL)
			s.await("it is handled", func() bool { return len(other.attempts()) > 0 })
			again.stop().want(t, 0)
			if got := other.attempts(); !maps.Equal(got, map[string]string{"new": "1"}) {
				t.Errorf("later come %v", got)
			}
		})
	}
}

// A message that is acked without the handler does not show that the handler is there: messages that a gateway refuses
// meanwhile do not use up their attempts. The same holds for duplicates.
func TestRunSkipsBehindAGateway(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{
		"messages": {"--skip-header", "type=moved"},
		"batches":  {"--skip-header", "type=moved", "--batch", "1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newTestKafka(t)
			s.topics("payments")
			var posts atomic.Int32
			p := newProgram(t, func(w http.ResponseWriter, _ asked) {
				if posts.Add(1) > 4 {
					return
				}
				s.put(event("foreign", "moved"), event("foreign", "moved"))
				http.NotFound(w, nil)
			})
			s.put(payments("a")[0])
			h := s.handle(append(args, "--http", p.URL, "--retries", "0")...)
			s.await("it is handled in the end", func() bool { return posts.Load() > 4 })
			h.stop().want(t, 0)
			if n := s.written("payments.billing.dlq"); n != 0 {
				t.Errorf("%d are in the DLQ: %v", n, s.dead(int(n)))
			}
		})
	}
}

// A plan of a file names what the handler does not get.
func TestThePlanNamesWhatIsSkipped(t *testing.T) {
	t.Parallel()
	s := newTestKafka(t)
	s.topics("payments")
	path := write(t, fmt.Sprintf("subscriptions:\n- {broker: %q, topic: payments, group: billing, http: 'http://h', skip-tombstones: true, only-header: [type=a, type=b]}\n", s.url))
	s.run("plan", "--file", path, "-o", "jsonl").want(t, 0)
	got := s.run("plan", "--file", path).want(t, 0)
	for _, want := range []string{"note: skips records without a value", "note: skips messages without the header type=a or type=b"} {
		if !strings.Contains(got.out, want) {
			t.Errorf("the plan lacks %q: %s", want, got.out)
		}
	}
}
