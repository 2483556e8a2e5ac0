package live

import (
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redeliver/redeliver/integration/chaos/history"
	"github.com/redeliver/redeliver/integration/worlds/check"
	"github.com/redeliver/redeliver/integration/worlds/plan"
)

var (
	seed = flag.Uint64("seed", 1, "the seed of the world")
	path = flag.String("history", "", "the file to which the history is written")
	show = flag.Bool("show", false, "print the plan, and run nothing")
)

// Report is what a process prints about its world, as JSON after "world: ".
type Report struct {
	Seed       uint64
	Broker     string
	Settled    bool
	Stuck      string
	Virtual    time.Duration
	Result     check.Result
	Violations []string
}

// TestWorld runs the world of the flag -seed in a bubble, and judges it.
func TestWorld(t *testing.T, v plan.Vocabulary, start func(w plan.World, say func(string)) (Driver, func(), error), bubble func(*testing.T, func(*testing.T))) {
	t.Helper()
	slog.SetDefault(slog.New(slog.DiscardHandler))
	if only := os.Getenv("WORLDS_WORDS"); only != "" { // for who adds a word
		maps.DeleteFunc(v.Words, func(word string, _ int) bool { return !slices.Contains(strings.Split(only, ","), word) })
	}
	w := plan.Generate(*seed, v)
	if *show {
		text, _ := json.MarshalIndent(w, "", "  ")
		fmt.Println(string(text))
		return
	}
	file := *path
	if file == "" {
		file = t.TempDir() + "/history"
	}
	_ = os.Remove(file)
	log, err := history.Open(file, "world")
	if err != nil {
		t.Fatal(err)
	}
	report := Report{Seed: *seed, Broker: v.Broker}
	bubble(t, func(t *testing.T) { //nolint:thelper // it is the test
		d, end, err := start(w, func(text string) { log.Add(history.Line{Kind: history.Said, What: text}) })
		if err != nil {
			t.Fatal(err)
		}
		j, err := Run(w, d, log)
		end()
		if err != nil {
			t.Fatal(err)
		}
		report.Settled, report.Stuck, report.Virtual = j.Settled, j.Stuck, j.Virtual
		report.print(t, file) // before the end of the bubble, which fails if goroutines are left
	})
}

// print judges the history, and prints the report.
func (r *Report) print(t *testing.T, file string) {
	t.Helper()
	lines, err := history.NewReader(file).More()
	if err != nil {
		t.Fatal(err)
	}
	result, violations, err := check.Check(lines)
	if err != nil {
		t.Fatal(err)
	}
	r.Result = result
	if r.Stuck == "" {
		for _, v := range violations {
			r.Violations = append(r.Violations, v.String())
		}
	}
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Printf("world: %s\n", text)
	if len(r.Violations) > 0 {
		t.Fail()
	}
}
