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
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver/adapters/kafka"
	"github.com/redeliver/redeliver/examples/internal/demo"
	"github.com/redeliver/redeliver/examples/internal/screen"
	"github.com/redeliver/redeliver/internal/brokerurl"
	"github.com/redeliver/redeliver/mq"
)

const (
	ledgerTopic = "demo-ledger"

	// maxWait bounds each wait for the broker. After a kill a real broker waits for the session timeout before it
	// removes the member.
	maxWait       = time.Minute
	topicDelay    = 10 * time.Second // bounds the time until all nodes of a cluster have a new topic
	pollInterval  = 100 * time.Millisecond
	orderInterval = 150 * time.Millisecond // between two orders
)

// environment has what the service and the demonstration need.
type environment struct {
	brokers []string
	sarama  *sarama.Config
	bank    *bank
	screen  *screen.Screen
	log     watermill.LoggerAdapter

	client *mq.Client // publishes orders
	books  *books
	close  []func() // in the order of creation
}

// runDemo starts the service, places orders, waits until each is done or dead, and counts them.
func runDemo(serve func(context.Context, *environment) error) {
	code := 1
	defer func() { os.Exit(code) }()
	began := time.Now()
	flags := flag.NewFlagSet("quickstart", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	broker := flags.String("broker", os.Getenv(brokerurl.Env), "`URL` of a real Kafka, kafka://host:9092 (default $"+brokerurl.Env+", else a Kafka in this process)")
	fresh := flags.Bool("fresh", false, "remove the data that the Kafka in this process has kept")
	err := flags.Parse(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "usage: quickstart [--broker URL | --fresh]")
		flags.SetOutput(os.Stderr)
		flags.PrintDefaults()
		code = 0
		return
	}
	if err == nil && (flags.NArg() > 0 || *fresh && *broker != "") {
		err = errors.New("give --broker URL or --fresh, and nothing else: --fresh removes only the data of the Kafka in this process")
	}
	s := &environment{brokers: nil, sarama: brokerurl.URL{}.Sarama(), screen: screen.New(os.Stdout, began, topic+"."+group)}
	if err == nil && *broker != "" {
		var u brokerurl.URL
		if u, err = brokerurl.Parse(*broker, brokerurl.Kafka); err == nil {
			s.brokers, s.sarama = u.Hosts, u.Sarama()
		}
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "quickstart: %v\n", err)
		code = 2
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends it at once
	defer s.closeAll()
	if err := s.start(ctx, *fresh); err != nil {
		fmt.Fprintf(os.Stderr, "quickstart: %v\n", err)
		return
	}
	all, err := s.run(ctx, serve)
	if err != nil {
		fmt.Fprintf(os.Stderr, "quickstart: %v\n", err)
	} else if all {
		code = 0
	}
}

// start starts and creates everything that the service needs.
func (s *environment) start(ctx context.Context, fresh bool) error {
	s.screen.Sayf("redeliver quickstart: a service charges orders at an unreliable bank.")
	if s.brokers == nil {
		k, err := startKafka(fresh)
		if err != nil {
			return err
		}
		s.close = append(s.close, k.close)
		s.brokers = k.brokers()
		s.screen.Sayf("Kafka runs in this process at %s and keeps its data in %s.", s.brokers[0], k.dir)
	} else {
		s.screen.Sayf("Kafka is at %s; the topics begin with demo-.", strings.Join(s.brokers, ","))
	}
	s.log = watermill.NewSlogLogger(slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})))

	var err error
	s.client, err = kafka.Open(ctx, kafka.Config{Brokers: s.brokers, Group: group, Policy: policy, Sarama: s.sarama, Sink: s.screen})
	if err != nil {
		return err
	}
	s.close = append(s.close, func() { _ = s.client.Close(context.Background()) })
	cfg := *s.sarama
	cfg.Metadata.AllowAutoTopicCreation = false
	cfg.Consumer.MaxWaitTime = pollInterval
	cfg.Producer.RequiredAcks = sarama.WaitForAll
	cfg.Producer.Return.Successes = true
	client, err := sarama.NewClient(s.brokers, &cfg)
	if err != nil {
		return err
	}
	s.close = append(s.close, func() { _ = client.Close() })
	admin, err := sarama.NewClusterAdminFromClient(client)
	if err != nil {
		return err
	}
	if err := makeTopics(admin); err != nil {
		return err
	}
	ledger, err := sarama.NewSyncProducer(s.brokers, &cfg) // with its own connections, because a fetch delays writes
	if err != nil {
		return err
	}
	s.close = append(s.close, func() { _ = ledger.Close() })
	s.bank = &bank{ledger: ledger, known: map[string]bool{}, repeated: s.screen.Repeat}

	var plan *mq.Plan
	if err := retryUntilSuccess(ctx, func() (err error) { plan, err = s.client.Plan(ctx, topic); return err }); err != nil {
		return err
	}
	s.books = &books{client: client, admin: admin, groupTopics: []string{topic}}
	var delays []string
	for _, t := range plan.Places {
		switch t.Kind {
		case "dlq":
			s.books.dlq = t.Name
		case "delay":
			if !t.OnDemand && !t.Old { // levels for longer waits are created when they are needed
				delays = append(delays, strings.TrimPrefix(t.Name, topic+"."+group+".retry."))
			}
			fallthrough
		default:
			s.books.groupTopics = append(s.books.groupTopics, t.Name)
		}
	}
	s.screen.Sayf("Orders come from %s; those that wait are on %s.%s.retry.{%s}.\n", topic, topic, group, strings.Join(delays, ","))
	return nil
}

// retryUntilSuccess calls do until it succeeds, for at most topicDelay: not all nodes of a cluster have a new topic at once.
func retryUntilSuccess(ctx context.Context, do func() error) error {
	ctx, cancel := context.WithTimeout(ctx, topicDelay)
	defer cancel()
	for {
		err := do()
		if err == nil {
			return nil
		}
		select {
		case <-time.After(pollInterval):
		case <-ctx.Done():
			return err
		}
	}
}

// closeAll closes everything, in reverse order.
func (s *environment) closeAll() {
	for _, c := range slices.Backward(s.close) {
		c()
	}
}

// run runs the service until each order is done or dead, or ctx ends. all is false if one is lost.
func (s *environment) run(ctx context.Context, serve func(context.Context, *environment) error) (all bool, err error) {
	var before *account
	if err := retryUntilSuccess(ctx, func() (err error) { before, err = s.books.balance(); return err }); err != nil {
		return false, err
	}
	for id := range before.charged {
		s.bank.known[id] = true
	}
	run, end := context.WithCancel(ctx)
	defer end()
	served := make(chan error, 1)
	go func() { served <- serve(run, s) }()

	placed, err := s.placeOrders(run, served, before)
	end()
	// End the service before the last count, so that it commits what it has done.
	if serr := <-served; err == nil && !(ctx.Err() != nil && errors.Is(serr, context.Canceled)) {
		err = serr
	}
	if err != nil {
		return false, err
	}
	var after *account
	if err := retryUntilSuccess(context.WithoutCancel(ctx), func() (err error) { after, err = s.books.balance(); return err }); err != nil {
		return false, err
	}
	s.summary(after, placed, ctx.Err() != nil)
	return len(after.lost) == 0 && (ctx.Err() != nil || len(after.waiting) == 0), nil
}

// placeOrders waits for the orders of earlier runs while the service runs, and then places new ones. It returns the number of
// orders that were placed.
func (s *environment) placeOrders(ctx context.Context, served chan error, before *account) (placed int, err error) {
	hint := time.AfterFunc(2*time.Second, func() {
		s.screen.Sayf("Waiting for the group: Kafka notices a kill after up to 10 s.\n")
	})
	err = s.await(ctx, served, s.screen.Reading)
	hint.Stop()
	if err != nil || ctx.Err() != nil {
		return 0, err
	}
	if n := len(before.waiting); n > 0 {
		s.screen.Sayf("%d orders of an earlier run still wait: they come first.\n", n)
	}
	settled := func() (bool, error) {
		uncommitted, err := s.books.uncommitted()
		return err == nil && len(uncommitted) == 0, err
	}
	if err := s.await(ctx, served, settled); err != nil || ctx.Err() != nil {
		return 0, err
	}
	for _, o := range demo.NewOrders(time.Now()) {
		if err := s.place(o); err != nil {
			return placed, err
		}
		placed++
		select {
		case <-time.After(orderInterval):
		case <-ctx.Done():
			return placed, nil
		}
	}
	return placed, s.await(ctx, served, settled)
}

// place sends an order to the service.
func (s *environment) place(o demo.Order) error {
	body, err := json.Marshal(o)
	if err != nil {
		return err
	}
	s.screen.Placed(o.ID, o.String())
	msg := message.NewMessage(o.ID, body)
	kafka.SetKey(msg, []byte(o.Customer))
	return s.client.Publisher().Publish(topic, msg)
}

// await calls done until it returns true, ctx ends, the service ends, or maxWait is over.
func (s *environment) await(ctx context.Context, served chan error, done func() (bool, error)) error {
	late := time.After(maxWait)
	for {
		ok, err := done()
		if ok {
			return nil
		}
		select {
		case err := <-served:
			served <- err // run reads it again
			select {
			case <-ctx.Done(): // ctx and the service have ended
				return nil
			default:
				return cmp.Or(err, errors.New("the service has ended unexpectedly"))
			}
		case <-late:
			return cmp.Or(err, fmt.Errorf("not all orders have ended within %s; the next start continues", maxWait))
		case <-time.After(pollInterval):
		case <-ctx.Done():
			return nil // an interruption is no failure
		}
	}
}
