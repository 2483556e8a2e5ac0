// Command capacity reckons what a load takes from what docs/evidence/benchmarks.md has measured, and writes docs/evidence/capacity.md:
//
//	go run ./integration/capacity --write
//	go run ./integration/capacity --retries 2000 --groups 40 --waiting 5e6 --wait 6h
//
// It runs in the root of the tree, and measures nothing.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"text/tabwriter"
	"time"
)

// Where the figures come from, and where they go.
const (
	measuredPage = "docs/evidence/benchmarks.md"
	capacityPage = "docs/evidence/capacity.md"
)

// large is the load of the page.
func large() load {
	return load{Retries: 100_000, Groups: 1_000, Waiting: 1e9, Wait: 24 * time.Hour, Replicas: 3, Share: 0.5}
}

func main() {
	switch err := run(os.Args[1:], os.Stdout, os.Stderr); {
	case err == nil, errors.Is(err, flag.ErrHelp):
	default:
		fmt.Fprintln(os.Stderr, "capacity:", err)
		os.Exit(1)
	}
}

func run(args []string, stdout, stderr io.Writer) error {
	l := large()
	flags := flag.NewFlagSet("capacity", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Float64Var(&l.Retries, "retries", l.Retries, "retries a second, in all groups together")
	flags.IntVar(&l.Groups, "groups", l.Groups, "consumer groups, each with one origin")
	flags.Float64Var(&l.Waiting, "waiting", l.Waiting, "messages that wait at one time")
	flags.DurationVar(&l.Wait, "wait", l.Wait, "how long each of them waits")
	flags.IntVar(&l.Replicas, "replicas", l.Replicas, "replicas of topics and queues")
	flags.Float64Var(&l.Share, "share", l.Share, "the share of what was measured that is planned with, above 0 and at most 1")
	write := flags.Bool("write", false, "write "+capacityPage+", which is about the default load")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if err := l.check(flags.NArg()); err != nil {
		return err
	}
	measured, err := os.ReadFile(measuredPage)
	if err != nil {
		return fmt.Errorf("reading what was measured, in the root of the tree: %w", err)
	}
	f, err := read(string(measured))
	if err != nil {
		return err
	}
	if *write {
		text, err := page(large(), f)
		if err != nil {
			return err
		}
		return os.WriteFile(capacityPage, []byte(text), 0o644) //nolint:gosec // The name is a constant; what was read is the text.
	}
	return reckon(l, f).print(stdout)
}

func (l load) check(unexpected int) error {
	switch {
	case unexpected > 0:
		return errors.New("it takes flags alone")
	case l.Retries <= 0 || l.Groups < 1 || l.Waiting <= 0 || l.Wait <= 0:
		return errors.New("--retries, --groups, --waiting and --wait must be above 0")
	case l.Replicas < 1:
		return fmt.Errorf("--replicas %d: must be at least 1", l.Replicas)
	case l.Share <= 0 || l.Share > 1:
		return fmt.Errorf("--share %g: must be above 0 and at most 1", l.Share)
	default:
		return nil
	}
}

func (r reckoning) print(to io.Writer) error {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	for _, t := range []struct {
		title string
		lines []line
	}{{"retries on Kafka", r.Rate}, {"groups on Kafka", r.Group}, {"waiting on Kafka", r.Wait}, {"RabbitMQ", r.Rabbit}, {"SQS", r.SQS}} {
		fmt.Fprintf(w, "%s\n", t.title)
		for _, l := range t.lines {
			fmt.Fprintf(w, "  %s\t%s\t%s\n", l.What, l.Result, l.How)
		}
	}
	fmt.Fprintln(w, "Arithmetic upon "+measuredPage+", not a measurement: "+capacityPage+" says what it takes for granted.")
	return w.Flush()
}
