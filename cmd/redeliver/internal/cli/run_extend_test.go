package cli_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/redeliver/redeliver/adapters/kafka"
)

// A program that asks for more time gets it, up to --max-timeout, and its message does not fail.
func TestRunExtends(t *testing.T) {
	t.Parallel()
	s := newTestKafka(t)
	s.topics("payments")
	type answers struct{ within, beyond int }
	asks := make(chan answers, 1)
	extend := func(url string) int {
		res, err := http.Post(url, "", http.NoBody)
		if err != nil {
			t.Error(err)
			return 0
		}
		_ = res.Body.Close()
		return res.StatusCode
	}
	p := newProgram(t, func(_ http.ResponseWriter, a asked) {
		if a.header.Get("Redeliver-Attempt") != "1" {
			t.Error("the message has failed")
		}
		url := a.header.Get("Redeliver-Extend")
		got := answers{within: extend(url + "?for=30s"), beyond: extend(url + "?for=1h")}
		<-time.After(1500 * time.Millisecond) // longer than --timeout
		asks <- got
	})
	h := s.handle("--http", p.URL, "--health", "127.0.0.1:0", "--timeout", "1s", "--max-timeout", "1m")
	s.put(payments("a")...)
	select {
	case got := <-asks:
		if got.within != http.StatusNoContent || got.beyond != http.StatusConflict {
			t.Errorf("the answers are %+v", got)
		}
	case <-time.After(maxWait):
		t.Error("it is not posted")
	}
	h.stop().want(t, 0)
	if n := s.written("payments.billing.retry"); n != 0 {
		t.Errorf("%d retries are written", n)
	}
}

// Without --health no listener would take the request.
func TestRunOffersNoExtensionWithoutAListener(t *testing.T) {
	t.Parallel()
	s := newTestKafka(t)
	s.topics("payments")
	p := newProgram(t, func(http.ResponseWriter, asked) {})
	h := s.handle("--http", p.URL)
	s.put(payments("a")...)
	s.await("it is posted", func() bool { return len(p.attempts()) == 1 })
	h.stop().want(t, 0)
	if url := p.all[0].header.Get("Redeliver-Extend"); url != "" {
		t.Errorf("the post has %s", url)
	}
}

// A message that its producer wrote twice is posted once.
func TestRunDedups(t *testing.T) {
	t.Parallel()
	s := newTestKafka(t)
	s.topics("payments")
	p := newProgram(t, func(http.ResponseWriter, asked) {})
	twice := func(body, id string) *kgo.Record {
		return &kgo.Record{Topic: "payments", Value: []byte(body), Headers: []kgo.RecordHeader{{Key: kafka.UUIDHeader, Value: []byte(id)}}}
	}
	h := s.handle("--http", p.URL, "--dedup", "memory", "--concurrency", "1")
	s.put(twice("first", "a"), twice("again", "a"), twice("other", "b"))
	s.await("both messages are posted", func() bool { return len(p.attempts()) == 2 })
	h.stop().want(t, 0)
	if got := p.attempts(); got["again"] != "" || got["first"] != "1" || got["other"] != "1" {
		t.Errorf("posted are %v", got)
	}
}

// A message that its producer wrote twice is in one batch, once. A message that failed there is posted again.
func TestRunDedupsBatches(t *testing.T) {
	t.Parallel()
	s := newTestKafka(t)
	s.topics("payments")
	var mu sync.Mutex
	posted := make(map[string]int)
	p := newProgram(t, func(w http.ResponseWriter, a asked) {
		var req struct {
			Messages []struct {
				Attempt int    `json:"attempt"`
				Body    string `json:"body_text"`
			} `json:"messages"`
		}
		if err := json.Unmarshal([]byte(a.body), &req); err != nil {
			t.Error(err)
		}
		answers := []map[string]any{}
		mu.Lock()
		defer mu.Unlock()
		for i, m := range req.Messages {
			posted[m.Body]++
			if m.Body == "fails" && m.Attempt == 1 {
				answers = append(answers, map[string]any{"index": i, "answer": "retry"})
			}
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"answers": answers})
	})
	record := func(body, id string) *kgo.Record {
		return &kgo.Record{Topic: "payments", Value: []byte(body), Headers: []kgo.RecordHeader{{Key: kafka.UUIDHeader, Value: []byte(id)}}}
	}
	seen := func(body string) int {
		mu.Lock()
		defer mu.Unlock()
		return posted[body]
	}
	h := s.handle("--http", p.URL, "--dedup", "memory", "--batch", "4", "--batch-wait", "10ms")
	s.put(record("first", "a"), record("again", "a"), record("fails", "b"))
	s.await("the failed message is posted again", func() bool { return seen("fails") == 2 })
	s.put(record("again", "a"), record("other", "c"))
	s.await("the last message is posted", func() bool { return seen("other") == 1 })
	h.stop().want(t, 0)
	if seen("again") != 0 || seen("first") != 1 || seen("fails") != 2 {
		t.Errorf("posted are %v", posted)
	}
}

func TestRunRefusesWrongTimesAndStores(t *testing.T) {
	t.Parallel()
	for args, says := range map[string]string{
		"--health :0 --timeout 1m --max-timeout 30s": "--max-timeout is 30s",
		"--dedup disk":                         "--dedup: must be memory",
		"--dedup redis://ann:secret@h:notport": "--dedup: must be memory",
		"--dedup memory --dedup-ttl 0s":        "--dedup-ttl",
	} {
		args := append([]string{"run", "--broker", "kafka://127.0.0.1:1", "--topic", "orders", "--group", "billing", "--http", "http://127.0.0.1:1/"}, strings.Fields(args)...)
		if got := (call{}).run(t, args...).want(t, 2, says); strings.Contains(got.err, "secret") {
			t.Errorf("it repeats the password: %s", got.err)
		}
	}
}
