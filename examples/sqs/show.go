package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/examples/internal/brokerurl"
	"github.com/redeliver/redeliver/examples/internal/demo"
	"github.com/redeliver/redeliver/examples/internal/screen"
)

const (
	local    = "sqs+http://localhost:9324"
	patience = time.Minute            // for the last order
	pace     = 150 * time.Millisecond // between two orders
)

const noBroker = `
This needs SQS, or a server that stands for it. To start ElasticMQ,
    docker run --rm -p 9324:9324 softwaremill/elasticmq
and then run this again; or take AWS, with the keys of your environment or profile:
    go run ./examples/sqs --broker sqs://eu-central-1
`

// show sends orders to the shop, waits until each has found its end, and
// counts them.
func show() {
	began := time.Now()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends it at once
	u, err := parse(os.Args[1:])
	switch {
	case errors.Is(err, flag.ErrHelp):
		os.Exit(0)
	case err != nil:
		fmt.Fprintf(os.Stderr, "sqs: %v\n", err)
		os.Exit(2)
	}
	s := &stage{url: u, screen: screen.New(os.Stdout, began, queue), ends: newEnds()}
	if err := s.play(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "sqs: %v\n", err)
		if _, unanswered := errors.AsType[*net.OpError](err); unanswered {
			fmt.Fprint(os.Stderr, noBroker)
		}
		os.Exit(1)
	}
}

func parse(args []string) (brokerurl.URL, error) {
	flags := flag.NewFlagSet("sqs", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	from := cmp.Or(os.Getenv(brokerurl.Env), local)
	broker := flags.String("broker", from, "`URL` of SQS, sqs://region, or of a server that stands for it, sqs+http://host:9324")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			flags.Lookup("broker").DefValue = redeliver.Redact(from)
			fmt.Fprintln(os.Stderr, "usage: sqs [--broker URL]")
			flags.SetOutput(os.Stderr)
			flags.PrintDefaults()
		}
		return brokerurl.URL{}, err
	}
	if flags.NArg() > 0 {
		return brokerurl.URL{}, errors.New("there is --broker URL, and nothing else")
	}
	return brokerurl.Parse(*broker, brokerurl.SQS)
}

// stage is what stands around the shop.
type stage struct {
	url    brokerurl.URL
	screen *screen.Screen
	ends   *ends
}

func (s *stage) play(ctx context.Context) error {
	s.screen.Sayf("redeliver on SQS: a shop charges orders at a bank that has a bad day.")
	cfg, err := s.url.AWS(ctx)
	if err != nil {
		return err
	}
	log := watermill.NewSlogLogger(slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})))
	shop, err := open(ctx, cfg, s.url.Endpoint(), redeliver.Sinks(s.screen, s.ends), log)
	if err != nil {
		return err
	}
	defer func() { _ = shop.close(context.WithoutCancel(ctx)) }() // where something went wrong before
	if err := shop.client.Subscriber().SubscribeInitialize(queue); err != nil {
		return err
	}
	plan, err := shop.client.Plan(ctx, queue)
	if err != nil {
		return err
	}
	s.screen.Sayf("The queue is %s.\nWhat waits is in it, delayed by SQS; what has failed for good is in %s-dlq.\n", plan.URL, queue)

	served := make(chan error, 1)
	go func() { served <- shop.router.Run(ctx) }()
	select {
	case <-shop.router.Running():
	case err := <-served:
		return err
	}
	placed, err := s.act(ctx, shop, served)
	if err != nil {
		return err
	}
	// The shop ends before the count: it acks what it has done.
	if err := shop.close(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	return s.summary(context.WithoutCancel(ctx), cfg, placed, ctx.Err() != nil)
}

// act sends orders, the last of them poison, and waits for their ends, or for
// the end of ctx. It returns how many were sent.
func (s *stage) act(ctx context.Context, shop *shop, served <-chan error) (placed int, err error) {
	orders := demo.NewOrders(time.Now())
	kinds := []string{"web", "phone", "shop"}
	for i, o := range append(orders, demo.Order{ID: strings.TrimSuffix(orders[0].ID, "01") + "xx"}) {
		kind, what := kinds[i%len(kinds)], o.String()
		body, err := json.Marshal(o)
		if err != nil {
			return placed, err
		}
		if i == len(orders) {
			body, what = []byte("<order/>"), "a poison message: no JSON"
		}
		s.screen.Placed(o.ID, fmt.Sprintf("%-5s  %s", kind, what))
		s.ends.expect(o.ID)
		if err := shop.place(kind, o.ID, body); err != nil {
			return placed, err
		}
		placed++
		select {
		case <-time.After(pace):
		case <-ctx.Done():
			return placed, nil
		}
	}
	select {
	case <-s.ends.all():
	case <-ctx.Done():
	case err := <-served:
		if ctx.Err() == nil {
			return placed, cmp.Or(err, errors.New("the shop has ended by itself"))
		}
	case <-time.After(patience):
		return placed, fmt.Errorf("not all orders have found their end within %s: does another program read %s?", patience, queue)
	}
	return placed, nil
}
