// Command suites runs one tier of the tests and reports the result: the output of go test, then a table with the
// seconds, the CPU seconds and the verdict of each package.
//
//		suites [-run REGEXP] [-timeout D] unit|race|test|prove|soak
//
//	  - unit: the tests of the library and of the command. They need no broker; the tests of adapters/kafka whose names
//	    begin with TestOnKafka use the Kafka that REDELIVER_TEST_KAFKA names, if there is one.
//	  - race: unit with the race detector, which takes five times the CPU seconds.
//	  - test: unit; with the race detector the packages of shared; then integration/ without the files that need the
//	    build tag prove.
//	  - prove: all tests with the race detector, including those with the tag.
//	  - soak: integration/ again with REDELIVER_SOAK=1, which lengthens some tests to hours.
//
// All tiers except unit and race use the brokers that withbrokers starts; see the Makefile. The program must be started
// in the repository's root. It fails when a test fails, when no test ran, and when a test is skipped that is not listed
// in skips.go.
//
// A failed test runs once more, alone. If it passes then, it is reported as FLAKY and the run passes; a run accepts at
// most two of them.
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

type options struct {
	run     string
	timeout time.Duration
	tier    string
}

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

func run(args []string, stdout, stderr io.Writer) int {
	if len(args) > 1 && args[0] == meterVerb {
		return meter(args[1:])
	}
	var o options
	flags := flag.NewFlagSet("suites", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&o.run, "run", "", "run only tests that match `regexp`")
	flags.DurationVar(&o.timeout, "timeout", 0, "the longest that one package may take (default 20m, for soak 6h)")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	o.tier = flags.Arg(0)
	suites, err := o.suites()
	if err == nil && flags.NArg() > 1 {
		err = fmt.Errorf("%q follows the tier; flags come before it", flags.Arg(1))
	}
	if err != nil {
		fmt.Fprintf(stderr, "suites: %v\n", err)
		return 2
	}

	// The first signal ends the running suite, which has received it, too. The table is still printed.
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	began := time.Now()
	var t table
	for i := 0; i < len(suites) && ctx.Err() == nil; i++ {
		s := suites[i]
		s.out, s.errOut = stdout, stderr
		beside, shown := s.beside, bytes.Buffer{}
		var both sync.WaitGroup
		if beside != nil {
			beside.out, beside.errOut = &shown, stderr
			both.Go(func() { beside.execute(ctx) })
			t.suites = append(t.suites, beside)
		}
		s.execute(ctx)
		both.Wait()
		_, _ = shown.WriteTo(stdout)
		t.suites = append(t.suites, s)
	}
	if ctx.Err() == nil {
		t.retry(ctx, stdout)
	}
	t.took = time.Since(began)
	t.print(stdout)
	if !t.ok() {
		return 1
	}
	return 0
}

// watermillTag makes Watermill's test suite wait five times as long for its messages as the default 15 s and 45 s. On a
// machine with other work ElasticMQ took 55 s for 5,000 messages to fifty consumers. No other linked package has a file
// with the tag.
const watermillTag = "stress"

// onKafka matches the tests of adapters/kafka that use the Kafka that REDELIVER_TEST_KAFKA names.
const onKafka = "^TestOnKafka"

// packagesAtOnce is the same on every machine. With three packages at once, brokers on two cores stall for seconds.
const packagesAtOnce = "-p=2"

// atOnceInUnit overrides packagesAtOnce and the number of parallel tests of one package. The tests of unit wait most of
// their time, and no broker runs beside them.
var atOnceInUnit = []string{"-p=3", "-parallel=8"}

// shared are the packages whose goroutines share the most data: the engine, the decisions, and the conformance kit on
// both.
var shared = []string{
	"./internal/engine", "./redelivertest", ".", "./middleware", "./deadletter", "./delayqueue", "./simulate", "./observe/...",
}

// longestUnit are the packages of unit that take longest. They are named first, so that none of them runs alone at the
// end.
var longestUnit = []string{"./adapters/kafka", "./cmd/redeliver/internal/cli", "./adapters/sqs", "./adapters/pubsub"}

// suites returns the suites of the tier, in order.
func (o options) suites() ([]*suite, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding this program, which measures the tests' CPU seconds: %w", err)
	}
	if o.timeout == 0 {
		o.timeout = 20 * time.Minute
		if o.tier == "soak" {
			o.timeout = 6 * time.Hour
		}
	}
	tags := watermillTag
	if o.tier == "prove" || o.tier == "soak" {
		tags += ",prove"
	}
	// make lint runs vet.
	argv := []string{"go", "test", "-json", "-count=1", "-shuffle=on", "-vet=off", "-tags=" + tags, "-timeout=" + o.timeout.String(), packagesAtOnce}
	if o.run != "" {
		argv = append(argv, "-run", o.run)
	}
	argv = append(argv, "-exec", self+" "+meterVerb)
	known := newSuite("known faults", append(slices.Clone(argv), "-run", onExpectedFailures), packagesOf(expectedFailures))
	known.failing = expectedFailures
	if o.tier == "prove" || o.tier == "soak" {
		argv = append(argv, "-skip", onExpectedFailures)
	}
	race := append(slices.Clone(argv), "-race")

	unit := newSuite("unit", append(slices.Clone(argv), atOnceInUnit...), append(slices.Clone(longestUnit), "./...", "./observe/otel/...", "./cmd/redeliver/..."))
	raced := newSuite("race", append(slices.Clone(race), atOnceInUnit...), unit.names)
	if o.tier == "unit" || o.tier == "race" {
		if o.tier == "race" {
			unit = raced
		}
		unit.argv = append(unit.argv, "-skip", onKafka)
		return []*suite{unit}, nil
	}
	packages, err := integration(tags)
	if err != nil {
		return nil, err
	}
	switch o.tier {
	case "test":
		raced.names = shared
		unit.beside = raced // the tests of unit that use Kafka wait most of their time
		return []*suite{unit, newSuite("integration", argv, append(packages, breaking[0], breaking[2]))}, nil
	case "prove":
		all := []*suite{raced, newSuite("integration", race, packages), newSuite("loss", argv, breaking)}
		if o.run == "" && len(expectedFailures) > 0 {
			all = append(all, known)
		}
		return all, nil
	case "soak":
		return []*suite{newSuite("integration", argv, packages), newSuite("loss", argv, breaking)}, nil
	default:
		return nil, fmt.Errorf("there is no tier %q; name unit, race, test, prove or soak", o.tier)
	}
}

// breaking are the packages that kill processes and brokers and check the result. In prove they run alone, because they
// would miss their deadlines beside other packages. test has the short form of the first and the last one.
var breaking = []string{"./integration/loss", "./integration/chaos", "./integration/worlds"}

// longest are the packages of integration/ that take longest, with no two consecutive ones at the same broker. go test
// runs packages in the order in which they are named. If one of these ran alone at the end, a core would be idle.
var longest = []string{
	"./integration/amqp", "./integration/kafka", "./integration/sqs", "./integration/examples", "./integration/command",
}

// integration lists the packages of integration/ that have tests with the tags, except breaking, the longest first.
func integration(tags string) ([]string, error) {
	out, err := exec.CommandContext(context.Background(), "go", "list", "-tags="+tags, "./integration/...").Output()
	if err != nil {
		return nil, fmt.Errorf("listing the packages of integration/: %w", err)
	}
	packages := slices.Clone(longest)
	for path := range strings.FieldsSeq(string(out)) {
		p := "./" + strings.TrimPrefix(path, "github.com/redeliver/redeliver/")
		if !slices.Contains(longest, p) && !slices.Contains(breaking, p) {
			packages = append(packages, p)
		}
	}
	return packages, nil
}

// execute runs the suite, prints its output in go test's normal form and counts the results.
func (s *suite) execute(ctx context.Context) {
	fmt.Fprintf(s.out, "=== %s\n", s.name)
	began := time.Now()
	defer func() { s.took = time.Since(began) }()

	argv := append(slices.Clone(s.argv), s.names...)
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	// The suite handles the signal itself, which takes a while. Only then is it killed.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = time.Minute
	cmd.Stderr = s.errOut
	cmd.Env = append(os.Environ(), "GOFLAGS="+withoutSymbols(os.Getenv("GOFLAGS")), "GORACE="+withoutSleep(os.Getenv("GORACE")))
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		s.err = fmt.Errorf("running %s: %w", s.name, err)
		return
	}
	s.read(out)
	if err := cmd.Wait(); err != nil {
		s.err = fmt.Errorf("%s: %w", filepath.Base(argv[0]), err)
	}
	s.cpu = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	if len(s.failing) > 0 {
		s.expectFailures()
	}
}

// withoutSymbols adds to GOFLAGS that programs are linked without debug information. Tests build about thirty programs,
// and each link takes twice as long with it. go test does the same for its own.
func withoutSymbols(flags string) string {
	if strings.Contains(flags, "-ldflags") {
		return flags
	}
	return strings.TrimSpace(flags + " -ldflags=-s")
}

// withoutSleep adds to GORACE that a program with the race detector exits at once. By default it sleeps for a second
// first, to find races of remaining goroutines, in each of forty packages and in each process that a test starts.
func withoutSleep(options string) string {
	if strings.Contains(options, "atexit_sleep_ms") {
		return options
	}
	return strings.TrimSpace(options + " atexit_sleep_ms=0")
}
