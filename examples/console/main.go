// Command console is a demonstration of the web console: a Kafka in this process, a shop whose services fail in several
// ways, and their dead-letter queues in the browser.
//
//	go run ./examples/console                        # and open the address that it prints
//	go run ./examples/console --address localhost:0  # at any free port
//
// This file shows how a service mounts the console. shop.go has the services that fail.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/redeliver/redeliver/console"
	"github.com/redeliver/redeliver/mq"
)

func main() {
	address := flag.String("address", console.DefaultAddress, "`host:port` at which the console listens; loopback addresses only")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends it at once
	if err := run(ctx, *address); err != nil {
		fmt.Fprintf(os.Stderr, "console: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, address string) (err error) {
	shop, err := openShop(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, shop.close(context.WithoutCancel(ctx))) }()

	// The console needs the DLQs of the service's clients, and who may do what.
	var queues []console.Queue
	for _, s := range shop.services {
		q, err := s.client.Operations().DeadLetters(ctx, mq.DeadLetterConfig{Topic: s.topic})
		if err != nil {
			return err
		}
		defer q.Close()
		queues = append(queues, console.Queue{Queue: q})
	}
	web, err := console.New(console.Config{
		Queues: queues,
		Title:  "The shop's dead letters",
		Audit:  os.Stderr, // who did what, one JSON line each
		// Auth: console.Basic(users...), or a function of the service's own. Without it the console serves this machine
		// only.
	})
	if err != nil {
		return err
	}
	defer web.Close()

	go repair(ctx, shop, os.Stdin)
	return web.ListenAndServe(ctx, console.ServeConfig{Address: address, Ready: func(url string) {
		fmt.Println("The console is at", url)
		fmt.Println("Press Enter to fix the shop's services, and again to break them. Ctrl-C ends it, and its messages are gone.")
	}})
	// A service that has its own server mounts the console there instead:
	//	mux.Handle("/dead-letters/", http.StripPrefix("/dead-letters", web))
}

// repair fixes or breaks the services at each line of input.
func repair(ctx context.Context, s *shop, in io.Reader) {
	for lines := bufio.NewScanner(in); lines.Scan() && ctx.Err() == nil; {
		fixed := !s.fixed.Load()
		s.fixed.Store(fixed)
		slog.Info("the services of the shop", "fixed", fixed)
	}
}
