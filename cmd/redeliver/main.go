// Command redeliver inspects the dead-letter queues of a broker, sends messages back to the group that failed them,
// and describes how a policy would retry.
//
//	redeliver dlq list --broker kafka://localhost:9092
//	redeliver dlq groups orders.billing.dlq --broker kafka://localhost:9092
//	redeliver dlq replay orders.billing.dlq --fingerprint 6f1d... --canary 1,10,100 --note 'the bank is back' ...
//
// See docs/reference/command.md.
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
	context.AfterFunc(ctx, stop) // a second signal ends the process immediately
	os.Exit(cli.Run(ctx, os.Args[1:], cli.Streams{
		In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Env: os.Getenv,
		InTerminal: isTerminal(os.Stdin), OutTerminal: isTerminal(os.Stdout), ErrTerminal: isTerminal(os.Stderr), Screen: screen{},
	}))
}

func isTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }

// screen is the terminal of stdin and stdout.
type screen struct{}

// Size implements [cli.Screen].
func (screen) Size() (width, height int) {
	width, height, err := term.GetSize(int(os.Stdout.Fd()))
	if err != nil || width <= 0 || height <= 0 {
		return 80, 24
	}
	return width, height
}

// Raw implements [cli.Screen].
func (screen) Raw() (restore func(), err error) {
	in := int(os.Stdin.Fd())
	before, err := term.MakeRaw(in)
	if err != nil {
		return nil, err
	}
	return func() { _ = term.Restore(in, before) }, nil
}
