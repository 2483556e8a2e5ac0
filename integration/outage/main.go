// Command outage runs services on a real Kafka, a real RabbitMQ and an ElasticMQ while their dependency fails, and
// reports what happened to every message:
//
//	make outage                         # all brokers, two minutes of load each; writes docs/evidence/outage-run.md and its charts
//	make outage ARGS='--scale 0.17'     # a trial of 20 s each; its figures mean little
//	bin/withbrokers --kafka -- bin/outage --brokers kafka --scale 0.17
//
// On each broker the same load is written for several services at once, each with a topic or queue and a dependency of
// its own. The dependency answers within milliseconds, slowly for a moment, not at all for a while (every call fails),
// slowly again, and then as before. The services are redeliver's Router with one policy or another, and Watermill's
// Retry inside its PoisonQueue. Clients that neither side uses write their messages and read their DLQs.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

const (
	exitFailed = 1
	exitUsage  = 2
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	switch err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); {
	case err == nil, errors.Is(err, flag.ErrHelp):
	case errors.Is(err, errUsage):
		fmt.Fprintln(os.Stderr, "outage:", err)
		os.Exit(exitUsage) //nolint:gocritic // The deferred stop only unregisters signals.
	default:
		fmt.Fprintln(os.Stderr, "outage:", err)
		os.Exit(exitFailed)
	}
}

var errUsage = errors.New("usage")

// options are the flags.
type options struct {
	brokers []string
	scale   float64
	out     string
}

func parse(args []string, stderr io.Writer) (options, error) {
	var o options
	var list string
	flags := flag.NewFlagSet("outage", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&list, "brokers", strings.Join(brokerNames(), ","), "the brokers to run on, `NAME,...`")
	flags.Float64Var(&o.scale, "scale", 1, "factor for all durations of the load, for quick trials")
	flags.StringVar(&o.out, "out", "", "write outage-run.md and its charts to `DIR` (default: the page to standard output)")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return o, err
		}
		return o, fmt.Errorf("%w: %w", errUsage, err)
	}
	o.brokers = strings.Split(list, ",")
	for _, name := range o.brokers {
		if !slices.Contains(brokerNames(), name) {
			return o, fmt.Errorf("%w: no broker is called %q; there are %s", errUsage, name, strings.Join(brokerNames(), ", "))
		}
	}
	switch {
	case flags.NArg() > 0:
		return o, fmt.Errorf("%w: unexpected %q", errUsage, flags.Arg(0))
	case o.scale < 0.02 || o.scale > 10:
		return o, fmt.Errorf("%w: --scale %g: must be from 0.02 to 10", errUsage, o.scale)
	}
	return o, nil
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	p := page{Scale: o.scale, Began: time.Now().UTC(), Machine: machine(), Libraries: libraries(), Services: services()}
	for _, name := range o.brokers {
		r, err := runBroker(ctx, name, services(), o.scale, stderr)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		p.Results = append(p.Results, r)
	}
	if o.out == "" {
		return p.write(stdout)
	}
	var text strings.Builder
	if err := p.write(&text); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(o.out, "outage-run.md"), []byte(text.String()), 0o600); err != nil {
		return err
	}
	for _, r := range p.Results {
		if err := os.WriteFile(filepath.Join(o.out, r.Chart()), r.svg(), 0o600); err != nil {
			return err
		}
	}
	return nil
}
