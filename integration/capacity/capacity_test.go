package main

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// docs/evidence/capacity.md is computed, so new figures in docs/evidence/benchmarks.md make it out of date.
func TestThePageIsAsItIsReckoned(t *testing.T) {
	f := measured(t)
	want, err := page(large(), f)
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join("..", "..", capacityPage))
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%s is not what %s makes of it: run go run ./integration/capacity --write", capacityPage, measuredPage)
	}
}

func measured(t *testing.T) figures {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", measuredPage))
	if err != nil {
		t.Fatal(err)
	}
	f, err := read(string(text))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

const tables = "## Results\n\n| row | figure | median (range) | target | |\n| --- | --- | --- | --- | --- |\n" +
	"| `fail-all` | redeliver | 11,000 msg/s (10,700 to 13,400) | at least 15,000 msg/s | MISSED |\n" +
	"|  | peak memory | 272 MiB (270 to 297) |  |  |\n" +
	"| `waiting` | peak memory | 39.5 MiB (36.7 to 45.9) | at most 64 MiB | met |\n" +
	"\n### `grow-size`\n\n| bytes of a value | throughput | broker bytes per retry |\n| --- | --- | --- |\n" +
	"| 100 B | 1 retries/s | 600 B |\n| 1 KiB | 2 retries/s | 1,530 B (1,520 to 1,540) |\n\n### `grow-other`\n\n| 10 KiB | 3 | 4 |\n"

func TestFiguresAreReadFromTheTables(t *testing.T) {
	for _, c := range []struct {
		row, figure string
		want        float64
	}{
		{"fail-all", "redeliver", 11_000},
		{"fail-all", "peak memory", 272}, // the row is named in its first line only
		{"waiting", "peak memory", 39.5},
	} {
		if got, err := result(tables, c.row, c.figure); err != nil || got != c.want { //nolint:floatcompare // As it is written.
			t.Errorf("%s of %s is %g, %v; want %g", c.figure, c.row, got, err, c.want)
		}
	}
	if got, err := point(tables, "grow-size", "1 KiB", "broker bytes per retry"); err != nil || got != 1530 { //nolint:floatcompare // As it is written.
		t.Errorf("the bytes of a retry are %g, %v; want 1530", got, err)
	}
	for _, label := range []string{"10 KiB", "2 KiB"} { // another section's, and nobody's
		if got, err := point(tables, "grow-size", label, "broker bytes per retry"); err == nil {
			t.Errorf("%s has %g bytes, and is not in the table", label, got)
		}
	}
	if got, err := result(tables, "fail-all", "CPU"); err == nil {
		t.Errorf("a figure that is not there is %g", got)
	}
	if got, err := median("- (not measured)"); err == nil {
		t.Errorf("a cell without a number is %g", got)
	}
}

func TestTheResultsFollowTheLoad(t *testing.T) {
	f := figures{
		PacedCores: 0.75, FloodRate: 10_000, FloodMemory: 256, IdleMemory: 40, RetryBytes: 1500, RabbitRate: 2500, RabbitMemory: 32,
		SQSMessage: 0.2, SQSRetry: 0.3,
	}
	l := load{Retries: 30_000, Groups: 10, Waiting: 1e6, Wait: large().Wait, Replicas: 3, Share: 0.5}
	r := reckon(l, f)
	for _, c := range []struct {
		lines      []line
		what, want string
	}{
		{r.Rate, "consumer processes", "4"},              // 30,000 of 15,000 each, half used
		{r.Rate, "cores of the consumers", "3.0"},        // 50 us each
		{r.Rate, "partitions of each delay topic", "16"}, // 3,750 each, half used
		{r.Rate, "writes to the disks", "140 MB/s"},      // 30,000 x 1,500 x 3 = 135
		{r.Group, "topics", "110"},                       // 7 levels and 4
		{r.Wait, "disk", "4.5 GB"},                       // 1e6 x 1,500 x 3
		{r.SQS, "requests", "9,000/s"},                   // three tenths
		{r.Rabbit, "their replicas", "330"},              // 11 queues
		{r.Wait, "until all have run, where they fall due at one time", "33 s"},
	} {
		found := false
		for _, got := range c.lines {
			if got.What == c.what {
				found = true
				if got.Result != c.want {
					t.Errorf("%s: %s, want %s (%s)", c.what, got.Result, c.want, got.How)
				}
			}
		}
		if !found {
			t.Errorf("nothing says how much %q is", c.what)
		}
	}
	l.Retries *= 2
	if a, b := r.Rate[0].Result, reckon(l, f).Rate[0].Result; a == b {
		t.Errorf("twice the load takes %s processes, as before", b)
	}
}

func TestThePriceHasThreeTiers(t *testing.T) {
	for requests, want := range map[float64]float64{1e6: 0.40, 100e9: 40_000, 150e9: 55_000, 300e9: 94_000} {
		if got := sqsPrice(requests); math.Abs(got-want) > 1e-6 {
			t.Errorf("%g requests cost %g, want %g", requests, got, want)
		}
	}
}

func TestNumbersHaveTwoDigits(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 0.0312: "0.031", 5.24: "5.2", 31.4: "31", 99.6: "100", 31_104: "31,000", 1e9: "1,000,000,000"} {
		if got := about(v); got != want {
			t.Errorf("%g is written %s, want %s", v, got, want)
		}
	}
	for v, want := range map[float64]string{999: "1,000 B", 1500: "1.5 kB", 4.59e12: "4.6 TB", 2e15: "2.0 PB"} {
		if got := size(v); got != want {
			t.Errorf("%g bytes are written %s, want %s", v, got, want)
		}
	}
	if got := span(10_000); got != "2.8 h" {
		t.Errorf("10,000 s are written %s", got)
	}
}

func TestALoadOfOnesOwn(t *testing.T) {
	t.Chdir(filepath.Join("..", ".."))
	var out, errs bytes.Buffer
	if err := run([]string{"--retries", "2000", "--groups", "40"}, &out, &errs); err != nil {
		t.Fatal(err)
	}
	if text := out.String(); !strings.Contains(text, "2,000 x") || !strings.Contains(text, "not a measurement") {
		t.Errorf("it says\n%s", text)
	}
	for _, args := range [][]string{{"--share", "2"}, {"--groups", "0"}, {"--replicas", "0"}, {"--retries", "-1"}, {"more"}} {
		if err := run(args, &out, &errs); err == nil {
			t.Errorf("%q is taken", args)
		}
	}
}
