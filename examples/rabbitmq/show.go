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
	local    = "amqp://guest:guest@localhost:5672/" //nolint:gosec // every new RabbitMQ has this user, for localhost alone
	patience = time.Minute                          // for the last order
	pace     = 150 * time.Millisecond               // between two orders
)

const noBroker = `
This needs a RabbitMQ, 3.10 or newer. To start one, either
    docker run --rm -p 5672:5672 rabbitmq:4
or, on Debian and Ubuntu,
    sudo apt-get install rabbitmq-server
and then run this again. With --broker URL it takes another one.
`

// show publishes orders to the shop, waits until each has found its end, and
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
		fmt.Fprintf(os.Stderr, "rabbitmq: %v\n", err)
		os.Exit(2)
	}
	s := &stage{url: u, screen: screen.New(os.Stdout, began, queue), ends: newEnds()}
	if err := s.play(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "rabbitmq: %v\n", err)
		if _, unanswered := errors.AsType[*net.OpError](err); unanswered {
			fmt.Fprint(os.Stderr, noBroker)
		}
		os.Exit(1)
	}
}

func parse(args []string) (brokerurl.URL, error) {
	flags := flag.NewFlagSet("rabbitmq", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	from := cmp.Or(os.Getenv(brokerurl.Env), local)
	broker := flags.String("broker", from, "`URL` of a RabbitMQ, amqp://user:password@host:5672/vhost or amqps://")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			flags.Lookup("broker").DefValue = redeliver.Redact(from)
			fmt.Fprintln(os.Stderr, "usage: rabbitmq [--broker URL]")
			flags.SetOutput(os.Stderr)
			flags.PrintDefaults()
		}
		return brokerurl.URL{}, err
	}
	if flags.NArg() > 0 {
		return brokerurl.URL{}, errors.New("there is --broker URL, and nothing else")
	}
	return brokerurl.Parse(*broker, brokerurl.RabbitMQ)
}

// stage is what stands around the shop.
type stage struct {
	url    brokerurl.URL
	screen *screen.Screen
	ends   *ends
}

func (s *stage) play(ctx context.Context) error {
	s.screen.Sayf("redeliver on RabbitMQ: a shop charges orders at a bank that has a bad day.")
	urls := s.url.AMQP()
	log := watermill.NewSlogLogger(slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})))
	shop, err := open(ctx, urls, redeliver.Sinks(s.screen, s.ends), log)
	if err != nil {
		return err
	}
	defer func() { _ = shop.close(context.WithoutCancel(ctx)) }() // where something went wrong before
	plan, err := shop.client.Plan(ctx, queue)
	if err != nil {
		return err
	}
	var levels []string
	for _, q := range plan.Queues {
		if q.Kind == "delay" {
			levels = append(levels, strings.TrimPrefix(q.Name, queue+".retry."))
		}
	}
	s.screen.Sayf("%s is at %s. Exchange %s is bound to queue %s;\nwhat waits is on %s.retry.{%s}, what has failed for good on %s.dlq.\n",
		plan.Server, strings.Join(s.url.Hosts, ","), exchange, queue, queue, strings.Join(levels, ","), queue)

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
	return s.summary(placed, urls, ctx.Err() != nil)
}

// act publishes orders, the last of them poison, and waits for their ends, or for
// the end of ctx. It returns how many were published.
func (s *stage) act(ctx context.Context, shop *shop, served <-chan error) (placed int, err error) {
	orders := demo.NewOrders(time.Now())
	keys := []string{"order.placed.eu", "order.placed.us", "order.changed.eu"}
	for i, o := range append(orders, demo.Order{ID: strings.TrimSuffix(orders[0].ID, "01") + "xx"}) {
		key, what := keys[i%len(keys)], o.String()
		body, err := json.Marshal(o)
		if err != nil {
			return placed, err
		}
		if i == len(orders) {
			body, what = []byte("<order/>"), "a poison message: no JSON"
		}
		s.screen.Placed(o.ID, fmt.Sprintf("%-16s  %s", key, what))
		s.ends.expect(o.ID)
		if err := shop.place(key, o.ID, body); err != nil {
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
