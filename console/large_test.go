package console

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redeliver/redeliver/deadletter"
)

// BenchmarkLargeDLQ serves a DLQ of 10 million messages, each with an id, a key and an error of its own. A browser asks for
// the home page ten times a second while the console reads the DLQ in the background, and for the page of the DLQ
// afterwards. Run it alone: the memory is the peak of the whole process.
func BenchmarkLargeDLQ(b *testing.B) {
	const messages = 10_000_000
	for b.Loop() {
		q := newStub("large", messages)
		body := make([]byte, 1<<10)
		q.make = func(of func(int64) *deadletter.Message) func(int64) *deadletter.Message {
			return func(i int64) *deadletter.Message {
				m := of(i)
				m.Body, m.State.Error = body, fmt.Sprintf("card %d declined", i)
				return m
			}
		}(q.make)
		c, err := New(Config{Queues: []Queue{{Queue: q}}, Audit: io.Discard})
		if err != nil {
			b.Fatal(err)
		}
		server := httptest.NewServer(c)
		get := func(path string) (page string, firstByte time.Duration) {
			began := time.Now()
			answer, err := http.Get(server.URL + path)
			if err != nil {
				b.Fatal(err)
			}
			firstByte = time.Since(began)
			defer answer.Body.Close()
			text, err := io.ReadAll(answer.Body)
			if err != nil || answer.StatusCode != http.StatusOK {
				b.Fatalf("%s is %d: %v", path, answer.StatusCode, err)
			}
			return string(text), firstByte
		}
		began, slowest := time.Now(), time.Duration(0)
		tick := time.NewTicker(100 * time.Millisecond)
		for page := ""; !strings.Contains(page, "10,000,000 ×"); <-tick.C {
			var took time.Duration
			page, took = get("/")
			slowest = max(slowest, took)
		}
		tick.Stop()
		b.ReportMetric(time.Since(began).Seconds(), "s-until-read")
		b.ReportMetric(float64(slowest.Microseconds())/1000, "ms-home-slowest")
		_, took := get("/dlq?dlq=large")
		b.ReportMetric(float64(took.Microseconds())/1000, "ms-dlq")
		server.Close()
		c.Close()
	}
	status, err := os.ReadFile("/proc/self/status")
	if peak := regexp.MustCompile(`VmHWM:\s+(\d+) kB`).FindSubmatch(status); err == nil && peak != nil {
		kB, _ := strconv.Atoi(string(peak[1]))
		b.ReportMetric(float64(kB)/1024, "MiB-peak")
	}
}
