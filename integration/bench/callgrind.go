package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// slowCommits is how often a side commits under valgrind, which makes it so much slower.
const slowCommits = 10 * time.Second

// counting are the functions that do more when crashes are counted. All other costs of a message depend on how
// the goroutines meet, and differ by more than these from process to process.
var counting = regexp.MustCompile(`/adapters/kafka\.\(\*(caution|notes)\)\.|/adapters/kafka\.\(?\*?note\b|/delayqueue\.\(\*Turn\)\.` +
	`|/adapters/kafka\.\(\*lane\)\.(begins|unslot|end|mark|put)$|/adapters/kafka\.\(\*entry\)\.rest$`)

// countRow is what crash counting costs in instructions, which do not depend on how even or how busy the machine is. An
// instruction that locks a cache line counts as any other, so this goes with crash-counting and does not stand in for it.
func countRow(ctx context.Context, e *experiment) error {
	if _, err := exec.LookPath("valgrind"); err != nil {
		return fmt.Errorf("%w: install it (apt-get install valgrind)", err)
	}
	n := e.scaled(20_000)
	e.notef("a thread at a time, no garbage collection, commits every %s, which are 200 ms of a side that valgrind does not make slower; all that a message takes is that of %s messages from their first fetch on, and what is in the functions that count crashes, that of the later half", slowCommits, count(2*n))
	for run := range e.options.runs {
		on, err := e.countInstructions(ctx, run+1, n, ours)
		if err != nil {
			return err
		}
		off, err := e.countInstructions(ctx, run+1, n, crashless)
		if err != nil {
			return err
		}
		e.sayf("run %d: %.1f instructions a message in the functions that count crashes, %.1f when they do not; %.0f and %.0f in all", run+1, on.part, off.part, on.all, off.all)
		e.add("in the functions that count crashes, counting", "instructions", nil, on.part)
		e.add("the same, not counting", "instructions", nil, off.part)
		all := min(on.all, off.all) // a busy machine adds to it, and never takes away
		e.add("all that a message takes", "instructions", nil, all)
		e.add("more for counting crashes", "instructions", nil, on.part-off.part)
		e.add("that is, of all", "%", atMost(2), (on.part-off.part)/all*100)
	}
	return nil
}

// instructions are those of a message.
type instructions struct{ part, all float64 }

// countInstructions counts those of a side for n messages that follow on n others.
func (e *experiment) countInstructions(ctx context.Context, run, n int, who side) (instructions, error) {
	dir := e.options.profileName(e.row.name, who, run)
	if dir == "" {
		var err error
		if dir, err = os.MkdirTemp("", "redeliver-bench-"); err != nil {
			return instructions{}, err
		}
		defer os.RemoveAll(dir)
	} else if err := os.MkdirAll(dir, 0o755); err != nil {
		return instructions{}, err
	}
	self, err := os.Executable()
	if err != nil {
		return instructions{}, err
	}
	all, err := e.inTurns(ctx, run, n, 2, func(s *spec) {
		s.Turns.Sides, s.Turns.Fresh, s.Commits, s.Profile = []side{who}, true, slowCommits, "" // callgrind's own files are the profile
		// Go interrupts goroutines by a signal, which valgrind may not outlive.
		s.Program = []string{
			"env", "GOMAXPROCS=1", "GOGC=off", "GODEBUG=asyncpreemptoff=1",
			"valgrind", "--log-file=" + filepath.Join(dir, "log"), "--tool=callgrind", "--dump-before=main.mark", "--callgrind-out-file=" + filepath.Join(dir, "counted"),
			self, childCommand,
		}
	})
	if err != nil {
		return instructions{}, err
	}
	if all == nil {
		return instructions{}, errors.New("it was not verified")
	}
	// The first file ends where the messages are written, the others at the end of a turn.
	var sum, part float64
	for _, turn := range []string{"counted.2", "counted.3"} {
		text, err := os.ReadFile(filepath.Join(dir, turn))
		if err != nil {
			return instructions{}, fmt.Errorf("what valgrind has counted: %w", err)
		}
		c, err := countedIn(text)
		if err != nil {
			return instructions{}, fmt.Errorf("%s: %w", turn, err)
		}
		part = 0
		for name, n := range c {
			if sum += n; counting.MatchString(name) {
				part += n
			}
			if turn == "counted.3" && strings.HasSuffix(name, "(*caution).admit") {
				return instructions{}, errors.New("a lane was still careful after half of its messages: its first note took more than 10 s, so the machine is too busy")
			}
		}
	}
	return instructions{part: part / float64(n), all: sum / float64(2*n)}, nil
}

// countedIn is how many instructions a file of callgrind has for each function, without those that it called.
func countedIn(text []byte) (map[string]float64, error) {
	names, all := make(map[string]string), make(map[string]float64)
	function := func(ref string) string { // (12) name, or (12) where it was named before
		id, name, named := strings.Cut(ref, " ")
		if named {
			names[id], _, _ = strings.Cut(name, "'") // behind it, how deep it is in itself
		}
		return names[id]
	}
	at, inclusive := "", false
	var total, sum float64
	for l := range bytes.Lines(text) {
		line := strings.TrimSpace(string(l))
		key, rest, _ := strings.Cut(line, "=")
		fields := strings.Fields(line)
		switch {
		case key == "fn":
			at = function(rest)
		case key == "cfn":
			function(rest)
		case key == "calls": // the next line is what the called one took
			inclusive = true
		case len(fields) == 2 && (fields[0] == "totals:" || strings.ContainsAny(fields[0][:1], "0123456789+-*")):
			n, err := strconv.ParseFloat(fields[1], 64)
			switch {
			case err != nil:
				return nil, fmt.Errorf("callgrind has written %q, which is no cost", line)
			case fields[0] == "totals:":
				total = n
			case !inclusive:
				all[at] += n
				sum += n
			}
			inclusive = false
		}
	}
	if total == 0 || sum != total {
		return nil, fmt.Errorf("its functions have %.0f instructions, and in all it tells of %.0f", sum, total)
	}
	return all, nil
}

// mark is where callgrind writes down what it has counted, and begins anew.
//
//go:noinline
func mark() {}
