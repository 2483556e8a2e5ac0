// Command suites runs the tests and tells how they went: the output of go test, then a table with the seconds, the CPU
// seconds and the verdict of every package.
//
//	suites [-race] [-gently] [-run REGEXP] [-timeout D] unit|adapters|integration|loss...
//
// unit is the root module and the command, which need no broker; adapters is those of its tests that take a real broker in the place
// of the one in the process, and unit leaves them out when both are named; integration is every package of integration/
// but loss and chaos, which are the suite loss. All three run beside the brokers that withbrokers starts. They run one after
// another, but for adapters, most of which is waiting, beside unit. Where CI is set, it goes gently, each alone and with a
// package less at a time: a machine that is shared has taken most of its cores away for minutes from who wanted all of
// them, and brokers stand still then. It is run from the repository's root. It fails when a test fails, when a suite has
// no tests at all, and when a test is skipped that is not among the explained.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

type options struct {
	race    bool
	gently  bool
	run     string
	timeout time.Duration
	names   []string
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
	flags.BoolVar(&o.race, "race", false, "run the integration tests with the race detector, too")
	flags.BoolVar(&o.gently, "gently", os.Getenv("CI") != "", "a package less at a time, and no suite beside another; by default where CI is set")
	flags.StringVar(&o.run, "run", "", "only tests that match `regexp`")
	flags.DurationVar(&o.timeout, "timeout", 40*time.Minute, "the longest that one package may take")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	o.names = flags.Args()
	if len(o.names) == 0 {
		fmt.Fprintln(stderr, "suites: name at least one suite: unit, adapters, integration, loss")
		return 2
	}

	// The first signal ends the suite that runs (it got the signal, too); then the table is still printed.
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	began := time.Now()
	commands := make(map[string][]string)
	for _, name := range o.names {
		argv, err := o.command(name)
		if err != nil {
			fmt.Fprintf(stderr, "suites: %v\n", err)
			return 2
		}
		commands[name] = argv
	}
	var t table
	for _, names := range groups(o.names, o.gently) {
		t.suites = append(t.suites, runGroup(ctx, names, commands, stdout, stderr)...)
		if ctx.Err() != nil {
			break
		}
	}
	t.took = time.Since(began)
	t.print(stdout)
	if !t.ok() {
		return 1
	}
	return 0
}

// shared are the brokers that the tests of the suite integration find running: what brokers.RequireKafka, RequireRabbitMQ,
// RequireRabbitMQ4, RequireSQS, RequireMoto and RequireRedis give. A broker for a new suite is added here.
var shared = []string{"--kafka", "--rabbitmq", "--rabbitmq4", "--sqs", "--moto", "--redis"}

// lossShared are those of them that integration/loss shares. It kills most of its brokers, and starts them itself.
var lossShared = []string{"--kafka", "--sqs"}

// patient has Watermill's suite wait five times as long for its messages as the 15 s and 45 s it does by itself, and use
// twice the processors; no other package that is linked has a file for the tag. On a machine with other work ElasticMQ took
// 55 s for 5,000 messages to fifty consumers.
const patient = "-tags=stress"

// onKafka are the tests of adapters/kafka that run on the Kafka that REDELIVER_TEST_KAFKA names, and on the one in the
// process where there is none.
const onKafka = "^TestOnKafka"

// command returns what runs a suite.
func (o options) command(name string) ([]string, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding this program, which tells the CPU seconds of tests: %w", err)
	}
	// make lint vets.
	argv := []string{"go", "test", "-json", "-count=1", "-shuffle=on", "-vet=off", "-timeout=" + o.timeout.String(), "-exec", self + " " + meterVerb}
	if o.race || name == "unit" || name == "adapters" {
		argv = append(argv, "-race")
	}
	if name == "unit" && slices.Contains(o.names, "adapters") {
		argv = append(argv, "-skip", onKafka) // they are run there
	}
	run := o.run
	if run == "" && name == "adapters" {
		run = onKafka
	}
	if run != "" {
		argv = append(argv, "-run", run)
	}
	switch name {
	case "unit":
		// One package more than there are cores: adapters/kafka is one of them for long, and waits for most of that.
		return append(argv, o.packages(runtime.NumCPU()+1), "./...", "./cmd/redeliver/..."), nil
	case "adapters":
		return beside([]string{"--kafka"}, append(argv, "./adapters/kafka"))
	case "integration":
		// Two packages at a time, whatever the machine. With three, six brokers stand still for seconds where the machine's
		// cores are somebody else's now and then: RabbitMQ gives up what it was asked after 5 s.
		packages, err := integration()
		if err != nil {
			return nil, err
		}
		return beside(shared, append(append(argv, o.packages(2), patient), packages...))
	case "loss":
		return beside(lossShared, append(append(argv, o.packages(2)), breaking...))
	default:
		return nil, fmt.Errorf("there is no suite %q; there are unit, adapters, integration and loss", name)
	}
}

// breaking are the packages of the suite loss, which break their brokers. Beside each other they have the machine to
// themselves: each takes half of two cores, and others beside chaos miss their deadlines.
var breaking = []string{"./integration/loss", "./integration/chaos"}

// longest are the packages of integration/ that take a minute or about, no two in a row at the same broker. go test runs
// packages in the order in which they are named: one of these alone at the end leaves a core with nothing to do.
var longest = []string{
	"./integration/amqp", "./integration/kafka", "./integration/sqs", "./integration/command", "./integration/examples", "./integration/sqs/faults",
}

// integration lists the packages of integration/ but breaking, the longest first.
func integration() ([]string, error) {
	out, err := exec.CommandContext(context.Background(), "go", "list", "./integration/...").Output()
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

// beside has argv run beside real brokers.
func beside(brokers, argv []string) ([]string, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding withbrokers, which make builds beside this program: %w", err)
	}
	with := []string{filepath.Join(filepath.Dir(self), "withbrokers"), "--brief"}
	return append(append(append(with, brokers...), "--"), argv...), nil
}

// lean adds to GOFLAGS that programs are linked without what a debugger needs. Tests build some thirty of them, and each
// link takes twice as long with it; go test does the same for its own.
func lean(flags string) string {
	if strings.Contains(flags, "-ldflags") {
		return flags
	}
	return strings.TrimSpace(flags + " -ldflags=-s")
}

// prompt adds to GORACE that a program with the race detector ends when it ends. By itself it sleeps for a second first,
// for races of goroutines that are left: each of forty packages, and each process that a test starts.
func prompt(options string) string {
	if strings.Contains(options, "atexit_sleep_ms") {
		return options
	}
	return strings.TrimSpace(options + " atexit_sleep_ms=0")
}

// runSuite runs argv, shows its output in go test's normal form and returns what it counted.
func runSuite(ctx context.Context, name string, argv []string, stdout, stderr io.Writer) *suite {
	fmt.Fprintf(stdout, "=== %s\n", name)
	s := newSuite(name, stdout)
	began := time.Now()
	defer func() { s.took = time.Since(began) }()

	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	// The suite's own signal handling and its brokers' end take a while; only then is it killed.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = time.Minute
	cmd.Stderr = stderr
	cmd.Env = append(os.Environ(), "GOFLAGS="+lean(os.Getenv("GOFLAGS")), "GORACE="+prompt(os.Getenv("GORACE")))
	out, err := cmd.StdoutPipe()
	if err != nil {
		s.err = fmt.Errorf("running %s: %w", name, err)
		return s
	}
	if err := cmd.Start(); err != nil {
		s.err = fmt.Errorf("running %s: %w", name, err)
		return s
	}
	s.read(out)
	if err := cmd.Wait(); err != nil {
		s.err = fmt.Errorf("%s: %w", filepath.Base(argv[0]), err)
	}
	s.cpu = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	return s
}

// packages is how many go test runs at a time.
func (o options) packages(n int) string {
	if o.gently {
		n--
	}
	return "-p=" + strconv.Itoa(n)
}
