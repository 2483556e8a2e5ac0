// Command bench compares redeliver with its peers on one real Kafka, one real RabbitMQ and one ElasticMQ, and prints what
// it measured:
//
//	make bench
//	make bench ARGS='--only subscribe,router --runs 7 --json bench.json'
//	bin/withbrokers --rabbitmq -- bin/bench --only rabbit-subscribe,rabbit-fail-all --scale 0.05 --runs 1
//
// The brokers are those that REDELIVER_TEST_KAFKA, REDELIVER_TEST_RABBITMQ and REDELIVER_TEST_SQS name, if a row needs
// them. A row against RocketMQ starts one for itself, or uses that of REDELIVER_TEST_ROCKETMQ. Every side of every run is
// a process of its own, in which this program starts itself again (see child.go). So CPU time and memory are those of one
// side. This process writes the messages and reads the DLQs, with franz-go, bare amqp091-go or the bare AWS SDK.
// docs/evidence/benchmarks.md says what each row does.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
)

const (
	exitFailed = 1
	exitUsage  = 2
)

// options are the flags.
type options struct {
	only     []string
	runs     int
	scale    float64
	json     string
	markdown string
	svg      string
	profile  string
	inFlight int
	list     bool
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == childCommand {
		os.Exit(childMain(os.Stdin, os.Stdout, os.Stderr))
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	switch err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); {
	case err == nil, errors.Is(err, flag.ErrHelp):
	case errors.Is(err, errUsage):
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(exitUsage) //nolint:gocritic // The deferred stop only unregisters signals.
	default:
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(exitFailed)
	}
}

var errUsage = errors.New("usage")

func parse(args []string, stderr io.Writer) (options, error) {
	o := options{}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Func("only", "the rows to run, `NAME,...`; share- is all whose names begin so (default all; see --list)", func(s string) error {
		for name := range strings.SplitSeq(s, ",") {
			if some := beginning(name); len(some) > 0 {
				o.only = append(o.only, some...)
				continue
			}
			if find(name) == nil {
				return fmt.Errorf("no row is called %q; see --list", name)
			}
			o.only = append(o.only, name)
		}
		return nil
	})
	flags.IntVar(&o.runs, "runs", 5, "runs of each side; an additional first one is discarded")
	flags.Float64Var(&o.scale, "scale", 1, "factor for message counts and durations, for quick trials")
	flags.StringVar(&o.json, "json", "", "also write everything that was measured to `FILE`")
	flags.StringVar(&o.markdown, "markdown", "", "also write the table for docs/evidence/benchmarks.md to `FILE`")
	flags.StringVar(&o.svg, "svg", "", "also draw each grow row into a file in `DIR`: grow-waiting.svg and so on")
	flags.StringVar(&o.profile, "profile", "", "write CPU and allocation profiles of every side to `DIR`")
	flags.IntVar(&o.inFlight, "in-flight", 0, "MaxInFlight of our side in all rows (default: each row's own)")
	flags.BoolVar(&o.list, "list", false, "list the rows and run nothing")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return o, err
		}
		return o, fmt.Errorf("%w: %w", errUsage, err)
	}
	switch {
	case flags.NArg() > 0:
		return o, fmt.Errorf("%w: unexpected %q", errUsage, flags.Arg(0))
	case o.runs < 1:
		return o, fmt.Errorf("%w: --runs %d: must be at least 1", errUsage, o.runs)
	case o.scale <= 0 || o.scale > 10:
		return o, fmt.Errorf("%w: --scale %g: must be above 0 and at most 10", errUsage, o.scale)
	}
	return o, nil
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	if o.list {
		for _, r := range rows {
			fmt.Fprintf(stdout, "%-27s %s; target: %s\n", r.name, r.what, r.target)
		}
		return nil
	}
	for _, dir := range []string{o.profile, o.svg} {
		if dir == "" {
			continue
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	opened, err := connect(ctx, o)
	if err != nil {
		return err
	}
	defer func() {
		for _, b := range opened {
			b.close()
		}
	}()

	report := report{Machine: describeMachine(ctx, opened), Runs: o.runs, Scale: o.scale, Began: time.Now().UTC()}
	report.head(stdout)
	var failed []string
	for i := range rows {
		r := &rows[i]
		if !o.selected(r.name) {
			continue
		}
		e := &experiment{row: r, options: o, system: r.system, broker: opened[r.system], progress: stderr, result: &rowResult{Name: r.name, What: r.what, Target: r.target}}
		e.cluster, _ = e.broker.(*cluster)
		began := time.Now()
		err := r.run(ctx, e)
		e.result.Took = time.Since(began).Seconds()
		if err != nil {
			e.problemf("%v", err)
		}
		if len(e.result.Problems) > 0 {
			failed = append(failed, r.name)
		}
		e.result.finish()
		report.Rows = append(report.Rows, e.result)
		e.result.print(stdout)
		// After each row, so that a long run keeps its results if it is cut short.
		if err := report.save(o); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return fmt.Errorf("interrupted in row %s", r.name)
		}
	}
	if len(failed) > 0 {
		return fmt.Errorf("rows with problems: %s", strings.Join(failed, ", "))
	}
	return nil
}

func (o options) selected(name string) bool { return len(o.only) == 0 || slices.Contains(o.only, name) }
