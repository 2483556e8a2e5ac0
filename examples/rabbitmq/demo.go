package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/ThreeDotsLabs/watermill"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/examples/internal/shopdemo"
	"github.com/redeliver/redeliver/internal/brokerurl"
)

const (
	local = "amqp://guest:guest@localhost:5672/"                                    //nolint:gosec // every new RabbitMQ has this user, for localhost alone
	usage = "`URL` of a RabbitMQ, amqp://user:password@host:5672/vhost or amqps://" //nolint:gosec // the URL is an example
)

const noBroker = `
This needs a RabbitMQ, 3.10 or newer. To start one, either
    docker run --rm -p 5672:5672 rabbitmq:4
or, on Debian and Ubuntu,
    sudo apt-get install rabbitmq-server
and then run this again. With --broker URL it takes another one.
`

func runDemo() {
	shopdemo.Demo{
		Program: "rabbitmq", On: "RabbitMQ",
		Broker: brokerurl.RabbitMQ, Local: local, Usage: usage,
		Missing: noBroker, Look: "rabbitmqctl list_queues name messages",
		Queue: queue, Kinds: []string{"order.placed.eu", "order.placed.us", "order.changed.eu"},
		Open: func(ctx context.Context, u brokerurl.URL, sink redeliver.Sink, log watermill.LoggerAdapter) (*shopdemo.Shop, error) {
			s, err := open(ctx, u.AMQP(), sink, log)
			if err != nil {
				return nil, err
			}
			return &shopdemo.Shop{
				Router: s.router, Place: s.place, Close: s.close,
				Describe:    func(ctx context.Context) (string, error) { return s.describe(ctx, u.Hosts) },
				DeadLetters: func(context.Context) (string, []shopdemo.DeadLetter, error) { return deadLetters(u.AMQP()[0]) },
			}, nil
		},
	}.Main()
}

// describe lists the queues that redeliver has added to the shop's.
func (s *shop) describe(ctx context.Context, hosts []string) (string, error) {
	plan, err := s.client.Plan(ctx, queue)
	if err != nil {
		return "", err
	}
	var levels []string
	for _, q := range plan.Places {
		if q.Kind == "delay" {
			levels = append(levels, strings.TrimPrefix(q.Name, queue+".retry."))
		}
	}
	return fmt.Sprintf("%s is at %s. Exchange %s is bound to queue %s;\nwaiting messages are on %s.retry.{%s}, dead letters on %s.dlq.",
		plan.Server, strings.Join(hosts, ","), exchange, queue, queue, strings.Join(levels, ","), queue), nil
}

// deadLetters reads the DLQ, which any client can do.
func deadLetters(url string) (title string, letters []shopdemo.DeadLetter, err error) {
	conn, err := amqp.Dial(url)
	if err != nil {
		return "", nil, err
	}
	defer conn.Close() // returns all messages, because none is acked
	ch, err := conn.Channel()
	if err != nil {
		return "", nil, err
	}
	dlq := queue + ".dlq"
	for {
		d, ok, err := ch.Get(dlq, false)
		if err != nil {
			return "", nil, err
		}
		if !ok {
			return fmt.Sprintf("The end of %s, which holds %d messages", dlq, len(letters)), letters, nil
		}
		header := func(name string) string { return fmt.Sprint(d.Headers[name]) }
		letters = append(letters, shopdemo.DeadLetter{
			ID: header(redeliver.HeaderID), Reason: header(redeliver.HeaderReason), Attempt: header(redeliver.HeaderAttempt), Error: header(redeliver.HeaderError),
		})
	}
}
