package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka"
	"github.com/redeliver/redeliver/middleware"
	"github.com/redeliver/redeliver/mq"
)

const (
	initialOrders = 400
	orderInterval = 3 * time.Second // between later orders
)

// shop has three services that read the same orders.
type shop struct {
	kafka    *kfake.Cluster
	services []*service
	fixed    atomic.Bool

	cancel context.CancelFunc
	wg     sync.WaitGroup
	orders atomic.Int64
}

// service is one consumer group.
type service struct {
	topic  string
	client *mq.Client
}

// order is the content of a message.
type order struct {
	ID       int64       `json:"id"`
	Customer string      `json:"customer"`
	Sum      json.Number `json:"sum"`
	Card     int64       `json:"card"`
	Items    []string    `json:"items"`
}

// openShop starts a Kafka in this process, and services that fail.
func openShop(ctx context.Context) (s *shop, err error) {
	s = &shop{}
	s.kafka, err = kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(4, "orders", "invoices"),
		kfake.BrokerConfigs(map[string]string{"group.initial.rebalance.delay.ms": "0"}))
	if err != nil {
		return nil, fmt.Errorf("starting a Kafka in this process: %w", err)
	}
	run, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s.cancel = cancel
	for _, row := range []struct {
		topic, group string
		handle       func(*order) error
	}{
		{"orders", "billing", s.charge},
		{"orders", "shipping", s.pack},
		{"invoices", "mailing", s.mail},
	} {
		if err := s.serve(run, row.topic, row.group, row.handle); err != nil {
			return nil, errors.Join(err, s.close(ctx))
		}
	}
	s.wg.Go(func() { s.place(run) })
	return s, nil
}

func (s *shop) serve(ctx context.Context, topic, group string, handle func(*order) error) error {
	client, err := kafka.Open(ctx, kafka.Config{
		Brokers: s.kafka.ListenAddrs(), Group: group,
		Policy: redeliver.Policy{MaxRetries: 1, Backoff: redeliver.Steps(time.Second)},
		Sink:   redeliver.SinkFunc(func(redeliver.Event) {}), // discards the events
	})
	if err != nil {
		return err
	}
	s.services = append(s.services, &service{topic, client})
	router, err := message.NewRouter(message.RouterConfig{}, watermill.NewSlogLogger(slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))))
	if err != nil {
		return err
	}
	router.AddMiddleware(middleware.Retry())
	router.AddConsumerHandler(group, topic, client.Subscriber(), func(msg *message.Message) error {
		if s.fixed.Load() {
			return nil
		}
		var o order
		if err := json.Unmarshal(msg.Payload, &o); err != nil {
			return redeliver.Permanent(fmt.Errorf("reading an order: %w", err))
		}
		return handle(&o)
	})
	s.wg.Go(func() {
		if err := router.Run(ctx); err != nil {
			slog.Error("a service of the shop has ended", "group", group, "error", err)
		}
	})
	select {
	case <-router.Running():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// close ends the services, and then the Kafka.
func (s *shop) close(ctx context.Context) error {
	s.cancel()
	s.wg.Wait()
	var errs []error
	for _, service := range s.services {
		errs = append(errs, service.client.Close(ctx))
	}
	s.kafka.Close()
	return errors.Join(errs...)
}

// place sends orders until ctx ends.
func (s *shop) place(ctx context.Context) {
	for range initialOrders {
		s.placeOne()
	}
	tick := time.NewTicker(orderInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			s.placeOne()
		case <-ctx.Done():
			return
		}
	}
}

func (s *shop) placeOne() {
	n := s.orders.Add(1)
	o := order{
		ID: 9007199254740993 + n, Customer: []string{"Ada", "Grace", "Barbara", "Edsger", "Leslie"}[n%5],
		Sum: json.Number(fmt.Sprintf("%d.10", n)), Card: 4000_0000_0000_0000 + n, Items: []string{"book", "<b>text</b>"},
	}
	body, err := json.Marshal(o)
	if err != nil {
		return
	}
	if n%40 == 7 {
		body = []byte{0xff, 0xd8, 0xff, 0xe0, 0x00, 0x10, 'J', 'F', 'I', 'F', 0x00} // the beginning of a JPEG
	}
	topic := "orders"
	if n%9 == 3 {
		topic = "invoices"
	}
	msg := message.NewMessage(fmt.Sprintf("o-%d", n), body)
	msg.Metadata.Set("tenant", []string{"acme", "globex"}[n%2])
	kafka.SetKey(msg, []byte(o.Customer))
	if err := s.services[0].client.Publisher().Publish(topic, msg); err != nil && !errors.Is(err, sarama.ErrClosedClient) {
		slog.Error("placing an order", "error", err)
	}
}

// The services, and how they fail.

// BankError is an answer of the bank.
type BankError struct{ Text string }

func (e *BankError) Error() string { return e.Text }

func (s *shop) charge(o *order) error {
	switch o.ID % 7 {
	case 1, 2:
		return &BankError{fmt.Sprintf("card %d declined: limit of %s EUR is exceeded", o.Card, o.Sum)}
	case 3:
		return fmt.Errorf("charging order %d: dial tcp 10.0.0.7:443: connection refused", o.ID)
	case 4:
		return redeliver.Permanent(&BankError{fmt.Sprintf("no such card: %d", o.Card)})
	default:
		return nil
	}
}

func (s *shop) pack(o *order) error {
	switch o.ID % 11 {
	case 5:
		return redeliver.Reject("the shelf of " + o.Items[0] + " is empty")
	case 6:
		panic(fmt.Sprintf("index out of range [%d] with length 2", o.ID%90))
	default:
		return nil
	}
}

func (s *shop) mail(o *order) error {
	if o.Customer == "Ada" || o.Customer == "Grace" {
		return fmt.Errorf("mail to %q: 550 <script>alert('an error is text')</script>", o.Customer)
	}
	return nil
}
