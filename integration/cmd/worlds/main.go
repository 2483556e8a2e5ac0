// Command worlds runs random worlds, one process for each on all cores, and prints the seeds that broke a promise. See
// docs/evidence/worlds.md.
package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/redeliver/redeliver/integration/chaos/history"
	"github.com/redeliver/redeliver/integration/worlds/live"
)

func main() {
	os.Exit(runMain())
}

func runMain() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	code, err := run(ctx, os.Args[1:], os.Stdout)
	if err != nil {
		fmt.Fprintf(os.Stderr, "worlds: %v\n", err)
	}
	return code
}

type options struct {
	program, dir string
	seeds        []uint64
	first        uint64
	duration     time.Duration
	processes    int
	limit        time.Duration
	keep         int
	minCovered   int
	quiet        bool
}

func run(ctx context.Context, args []string, out io.Writer) (int, error) {
	var o options
	fs := flag.NewFlagSet("worlds", flag.ContinueOnError)
	fs.StringVar(&o.program, "program", "bin/worlds/kafka.test", "the test program of a driver")
	fs.StringVar(&o.dir, "dir", "bin/worlds/histories", "where histories of failed worlds are kept")
	seeds := fs.String("seeds", "", "run only these seeds, separated by commas; or @FILE with a seed at the beginning of each line")
	fs.Uint64Var(&o.first, "first", 0, "the first seed (default: the time)")
	fs.DurationVar(&o.duration, "for", time.Minute, "how long new worlds are started")
	fs.IntVar(&o.processes, "processes", 0, "how many worlds run at once (default: one for each core; 30 in real time)")
	fs.DurationVar(&o.limit, "limit", 0, "how long one world may take (default 2m; 8m in real time)")
	fs.IntVar(&o.keep, "keep", 20, "how many histories of failed worlds to keep")
	fs.IntVar(&o.minCovered, "covered", 0, "fail if a word with an order occurred less often")
	shown := fs.String("print", "", "print this history for people, and run nothing")
	fs.BoolVar(&o.quiet, "quiet", false, "print no table of the coverage")
	if err := fs.Parse(args); err != nil {
		return 2, err
	}
	if *shown != "" {
		return 0, printHistory(*shown, out)
	}
	processes, limit := runtime.NumCPU(), 2*time.Minute
	if filepath.Base(o.program) == "rabbitmq.test" { // in real time
		processes, limit = 30, 8*time.Minute
	}
	o.processes, o.limit = cmp.Or(o.processes, processes), cmp.Or(o.limit, limit)
	var err error
	if o.seeds, err = readSeeds(*seeds); err != nil {
		return 2, err
	}
	if o.first == 0 {
		o.first = uint64(time.Now().UnixNano() / 1e6 % 1e9 * 1000)
	}
	if err := os.MkdirAll(o.dir, 0o755); err != nil {
		return 1, err
	}
	return search(ctx, o, out)
}

// printHistory prints a history for people: a line each, without what every message has.
func printHistory(path string, out io.Writer) error {
	lines, err := history.NewReader(path).More()
	if err != nil || len(lines) == 0 {
		return err
	}
	slices.SortStableFunc(lines, func(a, b history.Line) int { return cmp.Compare(a.At, b.At) })
	fmt.Fprintf(out, "%s\n", lines[0].Run.World)
	for _, l := range lines[1:] {
		at := time.Duration(l.At - lines[0].At).Round(time.Millisecond)
		fmt.Fprintf(out, "%12s %-14s %-8s", at, l.Process, l.Kind)
		for _, text := range []string{l.ID, l.Name, l.What, l.Target, l.Outcome, l.Reason} {
			if text != "" {
				fmt.Fprintf(out, " %s", text)
			}
		}
		switch {
		case l.Attempt > 0:
			fmt.Fprintf(out, " #%d", l.Attempt)
		case l.Kind == history.Written:
			fmt.Fprintf(out, " %s at %d/%d", l.Key, l.Partition, l.Offset)
		}
		fmt.Fprintln(out)
	}
	return nil
}

func readSeeds(text string) (seeds []uint64, _ error) {
	fields := strings.Split(text, ",")
	if file, ok := strings.CutPrefix(text, "@"); ok {
		b, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		fields = nil
		for line := range strings.Lines(string(b)) {
			if f := strings.Fields(line); len(f) > 0 && !strings.HasPrefix(f[0], "#") {
				fields = append(fields, f[0])
			}
		}
	} else if text == "" {
		return nil, nil
	}
	for _, f := range fields {
		n, err := strconv.ParseUint(f, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("the seed %q is no number", f)
		}
		seeds = append(seeds, n)
	}
	return seeds, nil
}

// totals are the sums of all worlds.
type totals struct {
	real                        []time.Duration
	worlds, failed, unjudged    int
	messages, runs, again, dead int
	virtual                     time.Duration
	coverage                    map[string]int
	stuck                       map[string]int
}

func search(ctx context.Context, o options, out io.Writer) (int, error) {
	total := totals{coverage: make(map[string]int), stuck: make(map[string]int)}
	began := time.Now()
	var mu sync.Mutex
	started := 0
	next := func() (seed uint64, n int, ok bool) {
		mu.Lock()
		defer mu.Unlock()
		started++
		if ctx.Err() != nil {
			return 0, 0, false
		}
		if len(o.seeds) > 0 {
			seed, o.seeds = o.seeds[0], o.seeds[1:]
			if len(o.seeds) == 0 {
				o.duration = 0
			}
			return seed, started, true
		}
		if time.Since(began) >= o.duration {
			return 0, 0, false
		}
		o.first++
		return o.first, started, true
	}
	var all sync.WaitGroup
	for range o.processes {
		all.Go(func() {
			for {
				seed, n, ok := next()
				if !ok {
					return
				}
				w := runWorld(ctx, o, seed, n)
				mu.Lock()
				total.add(w)
				if len(w.problems) > 0 {
					fmt.Fprintf(out, "seed %d of %s: %s\n", seed, filepath.Base(o.program), cut(strings.Join(w.problems, "\n    "), 3000))
					if total.failed <= o.keep {
						fmt.Fprintf(out, "    history: %s\n", w.history)
					}
				}
				if len(w.problems) == 0 || total.failed > o.keep {
					_ = os.Remove(w.history)
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	if !o.quiet {
		total.printCoverage(out)
	}
	slices.Sort(total.real)
	if n := len(total.real); n > 0 {
		fmt.Fprintf(out, "a world takes %s (median), %s (longest)\n", total.real[n/2].Round(time.Millisecond), total.real[n-1].Round(time.Millisecond))
	}
	fmt.Fprintf(out, "%d worlds in %s: %d failed, %d not judged %v; %.1f virtual hours, %d messages, %d attempts (%d again, explained by faults), %d dead letters\n",
		total.worlds, time.Since(began).Round(time.Second), total.failed, total.unjudged, total.stuck, total.virtual.Hours(), total.messages, total.runs, total.again, total.dead)
	switch {
	case total.failed > 0:
		return 1, nil
	case total.worlds == 0:
		return 1, errors.New("no world ran")
	case total.unjudged*20 > total.worlds && total.worlds >= 100:
		return 1, errors.New("more than 5 % of the worlds were not judged")
	}
	return 0, total.checkCoverage(o.minCovered)
}

func (t *totals) add(w outcome) {
	t.worlds++
	r := w.report
	switch {
	case len(w.problems) > 0:
		t.failed++
	case r.Stuck != "":
		t.unjudged++
		t.stuck[r.Stuck]++
	}
	t.virtual += r.Virtual
	t.real = append(t.real, w.real)
	t.messages += r.Result.Messages
	t.runs += r.Result.Runs
	t.again += r.Result.Again
	t.dead += r.Result.Dead
	for k, n := range r.Result.Coverage {
		t.coverage[k] += n
	}
}

// printCoverage prints how often each word and event occurred with each order.
func (t *totals) printCoverage(out io.Writer) {
	orders := []string{"OrderFirstAttempts", "OrderNone", "OrderThroughRetries", "OrderBlocking"}
	rows := make(map[string]bool)
	for k := range t.coverage {
		rows[k[:strings.LastIndexByte(k, '/')]] = true
	}
	fmt.Fprintf(out, "%-42s", "")
	for _, order := range orders {
		fmt.Fprintf(out, "%10s", order)
	}
	fmt.Fprintln(out)
	for _, row := range slices.Sorted(maps.Keys(rows)) {
		fmt.Fprintf(out, "%-42s", row)
		for _, order := range orders {
			fmt.Fprintf(out, "%10d", t.coverage[row+"/"+order])
		}
		fmt.Fprintln(out)
	}
}

func (t *totals) checkCoverage(minimum int) error {
	var few []string
	for k, n := range t.coverage {
		if n < minimum && strings.HasPrefix(k, "word ") {
			few = append(few, fmt.Sprintf("%s %d", k, n))
		}
	}
	if few == nil {
		return nil
	}
	slices.Sort(few)
	return fmt.Errorf("some words occurred less than %d times with an order: %s", minimum, strings.Join(few, ", "))
}

// outcome is one world's.
type outcome struct {
	report   live.Report
	problems []string
	history  string
	real     time.Duration
}

// routerWaits reports whether a handler of Watermill's Router waits for the Router's mutex, whose owner waits for virtual time.
// A goroutine that waits for a mutex keeps virtual time from advancing.
func routerWaits(goroutines string) bool {
	for g := range strings.SplitSeq(goroutines, "\n\n") {
		if strings.Contains(g, "[sync.Mutex.Lock") && strings.Contains(g, "message.(*Router).RunHandlers") {
			return true
		}
	}
	return false
}

func runWorld(ctx context.Context, o options, seed uint64, n int) outcome {
	w := outcome{history: filepath.Join(o.dir, fmt.Sprintf("%s-%d.%d.jsonl", strings.TrimSuffix(filepath.Base(o.program), ".test"), seed, n))}
	ctx, cancel := context.WithTimeout(ctx, o.limit)
	defer cancel()
	c := exec.CommandContext(ctx, o.program, "-test.run", "^TestWorld$", "-test.timeout", "0", "-seed", strconv.FormatUint(seed, 10), "-history", w.history)
	c.Cancel = func() error { return c.Process.Signal(syscall.SIGQUIT) } // the program prints its goroutines
	c.WaitDelay = 5 * time.Second
	c.Env = append(os.Environ(), "GOGC=400", "GOMEMLIMIT=1GiB", "GOMAXPROCS=2")
	var output bytes.Buffer
	c.Stdout, c.Stderr = &output, &output
	began := time.Now()
	err := c.Run()
	w.real = time.Since(began)
	_, text, found := strings.Cut(output.String(), "world: ")
	line, _, _ := strings.Cut(text, "\n")
	if found {
		if jerr := json.Unmarshal([]byte(line), &w.report); jerr != nil {
			w.problems = append(w.problems, jerr.Error())
		}
	}
	w.problems = append(w.problems, w.report.Violations...)
	switch {
	case ctx.Err() != nil && !found && routerWaits(output.String()):
		w.report.Stuck = "Watermill's Router waits for its lock, which stops virtual time"
	case ctx.Err() != nil && !found:
		w.problems = append(w.problems, fmt.Sprintf("it did not end within %s; its goroutines are in %s.txt", o.limit, w.history))
		_ = os.WriteFile(w.history+".txt", output.Bytes(), 0o644)
	case err != nil && found && strings.Contains(output.String(), "watchAllHandlersStopped"):
		// Watermill's Router leaves goroutines behind when Run fails because of a subscription.
	case err != nil && len(w.problems) == 0:
		w.problems = append(w.problems, fmt.Sprintf("%v\n%s", err, cut(output.String(), 4000)))
	}
	const shown = 3
	if len(w.problems) > shown {
		w.problems = append(w.problems[:shown], fmt.Sprintf("and %d more", len(w.problems)-shown))
	}
	return w
}

func cut(s string, n int) string {
	if len(s) > n {
		return s[:n] + " ..."
	}
	return s
}
