// Command withbrokers runs a command beside real brokers:
//
//	go run ./integration/cmd/withbrokers --kafka --rabbitmq -- go test ./integration/...
//
// It starts the brokers that are asked for (or takes those that the environment gives), tells their addresses to the
// command in the environment, passes its input and output through, stops the brokers when it has ended, and exits as
// it did: with its status, or 128 and the signal's number. Its own failures are exit status 1, a wrong call 2.
//
// "go run" reports every failure as 1 and does not pass SIGTERM on; scripts build the program first, as make does.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"syscall"
)

const (
	exitFailed = 1
	exitUsage  = 2
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("withbrokers: ")
	os.Exit(run(os.Args[1:], os.Stderr))
}

func run(args []string, stderr io.Writer) int {
	r, err := parse(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		fmt.Fprintf(stderr, "withbrokers: %v\n", err)
		return exitUsage
	}

	// From here on a signal ends things in order. While the brokers start it cancels that; later it goes to the
	// command, whose end stops them.
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(signals)

	ctx, cancel := context.WithCancelCause(context.Background()) // the brokers' life
	defer cancel(nil)
	started, err := start(ctx, cancel, signals, r)
	if err != nil {
		log.Print(err)
		return exitFailed
	}
	env := os.Environ()
	for _, b := range started {
		env = append(env, b.env...)
	}
	code, err := command(r.command, env, signals)
	if err != nil {
		log.Print(err)
	}
	if code != 0 {
		for _, b := range started {
			b.KeepLog()
		}
	}
	if err := stop(started); err != nil {
		log.Print(err)
		code = max(code, exitFailed)
	}
	return code
}
