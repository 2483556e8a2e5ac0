// Command redeliver looks into the dead-letter queues of a broker, sends messages
// back to the group that failed them, and says how a policy would wait.
//
//	redeliver dlq list --broker kafka://localhost:9092
//	redeliver dlq groups orders.billing.dlq --broker kafka://localhost:9092
//	redeliver dlq replay orders.billing.dlq --fingerprint 6f1d... --canary 1,10,100 --note 'the bank is back' ...
//
// All of it is in docs/reference/command.md.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/term"

	"github.com/redeliver/redeliver/cmd/redeliver/internal/cli"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends it at once
	os.Exit(cli.Run(ctx, os.Args[1:], cli.Streams{
		In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Env: os.Getenv,
		InTerminal: terminal(os.Stdin), OutTerminal: terminal(os.Stdout), ErrTerminal: terminal(os.Stderr),
	}))
}

func terminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }
