package cli_test

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// Handled messages are counted, and served at the address of the health pages.
func TestRunServesMetrics(t *testing.T) {
	t.Parallel()
	s := newTestKafka(t)
	s.topics("payments")
	p := newProgram(t, func(http.ResponseWriter, asked) {})
	h := s.handle("--http", p.URL, "--health", "127.0.0.1:0", "--metrics")
	s.put(payments("a")...)
	late := time.After(time.Minute)
	for {
		var row struct {
			Health string `json:"health"`
		}
		if err := json.Unmarshal([]byte(h.out.String()), &row); err == nil {
			if text := get(t, row.Health+"/metrics"); strings.Contains(text, `redeliver_committed_total{group="billing",messaging_system="kafka",origin="payments"} 1`) {
				if !strings.Contains(text, "go_goroutines") || get(t, row.Health+"/healthz") != "ok\n" {
					t.Error("it serves not all")
				}
				break
			}
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-late:
			t.Fatalf("not counted within a minute: %s", h.out.String())
		}
	}
	h.stop().want(t, 0)
}

func get(t *testing.T, url string) string {
	t.Helper()
	res, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
