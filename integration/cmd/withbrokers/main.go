// Command withbrokers runs a command beside real brokers:
//
//	go run ./integration/cmd/withbrokers --kafka --rabbitmq -- go test ./integration/...
//
// It starts the requested brokers (or uses those from the environment), passes their addresses to the command in the
// environment, and forwards input and output. When the command has ended, it stops the brokers and exits with the
// command's status, or with 128 and the number of the signal. The exit status of its own failures is 1, and of wrong
// arguments 2.
//
// "go run" reports every failure as 1 and does not forward SIGTERM. Scripts build the program first, as make does.
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

	// From here on a signal ends everything gracefully. While the brokers start, it cancels the start. Later it goes to
	// the command, and the brokers are stopped after the command's end.
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(signals)

	ctx, cancel := context.WithCancelCause(context.Background()) // ends the brokers
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
