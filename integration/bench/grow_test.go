package main

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	chart "github.com/wcharczuk/go-chart/v2"
)

// grownRow is a row measured twice at three points, one of its figures only at two.
func grownRow() *rowResult {
	r := &rowResult{Name: "grow-waiting", What: "something grows", Axis: "messages that wait", Notes: []string{"so it is"}}
	e := &experiment{row: &row{name: r.Name}, result: r}
	for _, rate := range []float64{1, 1.5} {
		for i, at := range []int{1_000, 10_000, 100_000} {
			c := &cost{retries: at, seconds: rate * float64(i+1), busy: 0.1, peak: 40 << 20, late: &lateness{P50: 0.2, P99: 3, Max: 40}}
			if i > 0 {
				c.disk = &topicSize{records: 10, bytes: 15_000}
			}
			e.plot(at, count(at), c)
		}
	}
	r.finish()
	return r
}

func TestAGrowRowHasAChart(t *testing.T) {
	dir := t.TempDir()
	rep := report{Rows: []*rowResult{grownRow(), {Name: "fail-all"}}}
	if err := rep.saveCharts(dir); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(files) != 1 || filepath.Base(files[0]) != "grow-waiting.svg" {
		t.Fatalf("the charts are %q, %v; a row that does not grow has no chart", files, err)
	}
	text, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	for d := xml.NewDecoder(strings.NewReader(string(text))); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("the chart is not XML: %v", err)
		}
	}
	for _, want := range []string{"messages that wait", "throughput, retries/s", "lateness p99, ms", "broker bytes per retry, B", ">1,000<", ">100,000<", ">0.1<"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the chart does not show %q", want)
		}
	}
	few := &rowResult{Name: "grow-size", Figures: grownRow().Figures[:3]}
	if _, err := few.draw(); err == nil {
		t.Error("one point is drawn as a line")
	}
}

func TestAGrowRowHasATable(t *testing.T) {
	r := grownRow()
	rep := report{Rows: []*rowResult{r}}
	text := rep.table()
	for _, want := range []string{
		"### `grow-waiting`", "![grow-waiting](grow-waiting.svg)",
		"| messages that wait | throughput | lateness p50 | lateness p99 | lateness max | CPU per million | peak memory | broker bytes per retry |",
		"| 1,000 | 833 retries/s (667–1,000) | 0.20 ms | 3 ms | 40 ms | 100 s | 40 MiB | - |",
		"| 100,000 | 27,800 retries/s (22,200–33,300) | 0.20 ms | 3 ms | 40 ms | 1 s | 40 MiB | 1,500 B |",
		"So it is.",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the page does not have %q:\n%s", want, text)
		}
	}
	if strings.Contains(text, "| row | figure |") {
		t.Error("a report without figures has a table of figures")
	}
}

func TestBothAxesAreLogarithmic(t *testing.T) {
	r := grownRow()
	at, _ := r.points()
	lines, low, high := r.lines(at)
	if len(lines) != len(chartQuantities) || low != 0.2 || high < 27_000 {
		t.Fatalf("%d lines from %g to %g", len(lines), low, high)
	}
	line, ok := lines[0].(chart.ContinuousSeries)
	if !ok || len(line.XValues) != 3 || line.XValues[0] != 3 || line.XValues[2] != 5 {
		t.Fatalf("the first line is %+v", lines[0])
	}
	if rise := line.YValues[1] - line.YValues[0]; rise < 0.69 || rise > 0.71 { // five times as much
		t.Errorf("the throughput rises by %g of a decade", rise)
	}
}
