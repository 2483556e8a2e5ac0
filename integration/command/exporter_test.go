package command_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// exporter starts redeliver exporter for the shop's DLQ, and returns its URL.
func (s *shop) exporter() string {
	s.t.Helper()
	args := append([]string{"exporter", "--listen", "127.0.0.1:0", "--every", "1s", "--output", "json", "--dlq", s.dlq}, s.flags...)
	cmd := exec.Command(filepath.Join(built, "redeliver"), args...)
	cmd.Env = append(os.Environ(), "REDELIVER_BROKER="+s.url)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		late := time.AfterFunc(maxWait, func() { _ = cmd.Process.Kill() })
		defer late.Stop()
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			s.t.Error(err)
		}
		if err := cmd.Wait(); err != nil {
			s.t.Errorf("the exporter ends with %v", err)
		}
	})
	var row struct {
		Metrics string `json:"metrics"`
	}
	var text strings.Builder
	for lines := bufio.NewScanner(out); row.Metrics == "" && lines.Scan(); {
		text.WriteString(lines.Text())
		_ = json.Unmarshal([]byte(text.String()), &row) // until it is complete
	}
	if row.Metrics == "" {
		s.t.Fatalf("the exporter prints %q", text.String())
	}
	return row.Metrics
}

// scrape returns the values of the series of this shop, by name and the value of one more label.
func (s *shop) scrape(url, label string) map[string]float64 {
	s.t.Helper()
	res, err := http.Get(url)
	if err != nil {
		s.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	all := make(map[string]float64)
	for line := range strings.Lines(string(text)) {
		name, rest, _ := strings.Cut(strings.TrimSpace(line), "{")
		if !strings.Contains(rest, `origin="`+s.topic+`"`) {
			continue
		}
		labels, value, _ := strings.Cut(rest, "} ")
		if _, after, ok := strings.Cut(labels, label+`="`); ok {
			of, _, _ := strings.Cut(after, `"`)
			name += " " + of
		}
		n, err := strconv.ParseFloat(value, 64)
		if err != nil {
			s.t.Fatalf("%v: %s", err, line)
		}
		all[name] = n
	}
	return all
}

// The exporter reports on each broker what is in the DLQ, and what the origin has that nobody reads. It reports how old
// the DLQ is, except on RabbitMQ, whose dead letters it does not read.
func TestExporter(t *testing.T) {
	t.Parallel()
	onEachBroker(t, func(t *testing.T, s *shop) {
		t.Helper()
		h := newHandler(t, func(w http.ResponseWriter, _, _ string) { w.WriteHeader(http.StatusUnprocessableEntity) })
		c := s.sidecar("--http", h.URL)
		s.send("order", "tenant=acme")
		<-h.posts
		url := s.exporter()
		var got map[string]float64
		awaitEvery(t, time.Second, func() string { return fmt.Sprintf("a dead letter: %v", got) }, func() bool {
			got = s.scrape(url, "kind")
			_, aged := got["redeliver_dlq_oldest_age_seconds"]
			return got["redeliver_dlq_messages"] == 1 && aged == !strings.HasPrefix(s.url, "amqp")
		})
		if got["redeliver_dlq_up"] != 1 {
			t.Errorf("it reports %v", got)
		}
		c.end()
		s.send("another", "tenant=acme")
		awaitEvery(t, time.Second, func() string { return fmt.Sprintf("a message that nobody reads: %v", got) }, func() bool {
			got = s.scrape(url, "kind")
			return got["redeliver_origin_messages"] == 1 && got["redeliver_doctor_findings consumer"] == 1
		})
		if got["redeliver_waiting_up"] != 1 {
			t.Errorf("it reports %v", got)
		}
	})
}
