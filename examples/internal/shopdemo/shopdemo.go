// Package shopdemo runs a demonstration of a shop: it places orders, waits until each is done or dead, and counts them.
// The demonstrations of brokers share it.
package shopdemo

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/examples/internal/screen"
	"github.com/redeliver/redeliver/internal/brokerurl"
)

// Demo is one demonstration.
type Demo struct {
	// Program is the directory in examples/, and the name of the binary.
	Program string
	// On is the name of the broker for people.
	On string
	// Broker is the required kind of broker, Local the default URL, and Usage an example of a URL.
	Broker       brokerurl.Broker
	Local, Usage string
	// Missing describes how to start a broker if none answers.
	Missing string
	// Look describes how to see the queues afterwards.
	Look string
	// Queue is the queue that the shop reads.
	Queue string
	// Kinds are the kinds of orders that are placed, in turn.
	Kinds []string
	// Open starts the shop.
	Open func(ctx context.Context, u brokerurl.URL, sink redeliver.Sink, log watermill.LoggerAdapter) (*Shop, error)
}

// Shop is the service of the demonstration.
type Shop struct {
	Router *message.Router
	// Place sends an order of a kind.
	Place func(kind, id string, body []byte) error
	// Close ends the shop gracefully. It may be called twice.
	Close func(context.Context) error
	// Describe lists the queues, before the first order.
	Describe func(context.Context) (string, error)
	// DeadLetters reads the DLQ with any client. It may return only some of the dead letters, at least MaxShown of
	// them. title describes them.
	DeadLetters func(context.Context) (title string, letters []DeadLetter, err error)
}

// DeadLetter is a dead letter with redeliver's description, from headers or JSON.
type DeadLetter struct {
	ID      string `json:"id"`
	Reason  string `json:"reason"`
	Attempt string `json:"attempt"`
	Error   string `json:"error"`
}

// MaxShown is the number of dead letters that are shown.
const MaxShown = 8

// run is one run of a demonstration.
type run struct {
	Demo
	url      brokerurl.URL
	screen   *screen.Screen
	outcomes *outcomes
}

// Main runs a demonstration and exits.
func (s Demo) Main() {
	began := time.Now()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends it at once
	u, err := s.parse(os.Args[1:])
	switch {
	case errors.Is(err, flag.ErrHelp):
		os.Exit(0)
	case err != nil:
		fmt.Fprintf(os.Stderr, "%s: %v\n", s.Program, err)
		os.Exit(2)
	}
	r := &run{Demo: s, url: u, screen: screen.New(os.Stdout, began, s.Queue), outcomes: newOutcomes()}
	if err := r.run(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", s.Program, err)
		if _, unanswered := errors.AsType[*net.OpError](err); unanswered {
			fmt.Fprint(os.Stderr, s.Missing)
		}
		os.Exit(1)
	}
}

func (s Demo) parse(args []string) (brokerurl.URL, error) {
	flags := flag.NewFlagSet(s.Program, flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	from := cmp.Or(os.Getenv(brokerurl.Env), s.Local)
	broker := flags.String("broker", from, s.Usage)
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			flags.Lookup("broker").DefValue = redeliver.Redact(from)
			fmt.Fprintf(os.Stderr, "usage: %s [--broker URL]\n", s.Program)
			flags.SetOutput(os.Stderr)
			flags.PrintDefaults()
		}
		return brokerurl.URL{}, err
	}
	if flags.NArg() > 0 {
		return brokerurl.URL{}, errors.New("there is --broker URL, and nothing else")
	}
	return brokerurl.Parse(*broker, s.Broker)
}
