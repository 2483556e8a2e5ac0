package cli_test

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The same scenario always gives the same output, which is a golden file.
func TestSimulate(t *testing.T) {
	t.Parallel()
	svg := filepath.Join(t.TempDir(), "hour.svg")
	args := []string{"simulate", "--rate", "50", "--for", "1h", "--outage", "10m-15m", "--errors", "0.01", "--poison", "0.001", "--retries", "6", "--backoff", "steps:1s,10s,1m,5m"}
	call{}.run(t, append(args, "--svg", svg)...).want(t, 0).golden(t, "simulate.txt")
	r := call{}.run(t, append(args, "--output", "json")...).want(t, 0).object(t)
	if r["messages"] != 180_000.0 || r["done"].(float64) < 3600 || len(r["series"].([]any)) < 48 || len(r["operations"].([]any)) != 3 {
		t.Errorf("%v messages, done after %v s", r["messages"], r["done"])
	}
	text, err := os.Open(svg)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = text.Close() }()
	drawn := 0
	for d := xml.NewDecoder(text); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("%s is not XML: %v", svg, err)
		}
		if e, ok := token.(xml.StartElement); ok && e.Name.Local == "path" {
			drawn++
		}
	}
	if drawn < 5 {
		t.Errorf("%d lines are drawn", drawn)
	}
}

func TestSimulateRefusesNonsense(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ args, says string }{
		{"--rate 0 --for 0s --bars 0", "--for is 0"},
		{"--rate -1", "--rate is -1"},
		{"--rate NaN", "--rate is NaN"},
		{"--errors 2 --poison -1", "--errors is 2"},
		{"--errors 2 --poison -1", "--poison is -1"},
		{"--outage 5m", "FROM-TO"},
		{"--outage 5m-1m", "--outage[0] is"},
		{"--outage 5m-6m:no", "FROM-TO"},
		{"--retries -1 --outage x", "--retries is -1"},
		{"--retries -1 --outage x", `--outage is "x"`},
		{"--backoff nonsense", "--backoff"},
		{"--rate 1e12", "messages in 1h"},
		{"extra", "extra"},
	} {
		call{}.run(t, append([]string{"simulate"}, strings.Fields(c.args)...)...).want(t, 2, c.says)
	}
	call{}.run(t, "simulate", "--for", "1m", "--svg", filepath.Join(t.TempDir(), "no", "such.svg")).want(t, 1, "--svg")
	call{}.run(t, "simulate", "--for", "1m", "--bars", "1", "--svg", filepath.Join(t.TempDir(), "a.svg")).want(t, 2, "--bars")
	if out := (call{}).run(t, "simulate", "--for", "1m", "--bars", "1").want(t, 0).out; !strings.Contains(out, "--bars") || strings.Contains(out, "in the DLQ  0 (NaN") {
		t.Errorf("%s", out)
	}
}
