package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	wmiddleware "github.com/ThreeDotsLabs/watermill/message/router/middleware"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/wirename"
	"github.com/redeliver/redeliver/middleware"
)

// service is one of the services that run at the same time.
type service struct {
	Name   string
	About  string           // a sentence or two for the page
	short  string           // part of its topic's name
	policy redeliver.Policy // of ours
	peer   bool             // Watermill's Retry inside its PoisonQueue
}

// services are the services that are compared. Each policy of redeliver is an entry.
func services() []service {
	return []service{
		{
			Name: "redeliver, default policy", short: "default",
			About: "Watermill's Router, `middleware.Retry()`, the adapter's defaults (`MaxInFlight` 100):\n" +
				"  3 retries after 1, 2 and 4 s plus jitter, which do not outlast the outage",
		},
		{
			Name: "redeliver, 10 retries", short: "patient", policy: redeliver.Policy{MaxRetries: 10},
			About: "the same with `Policy{MaxRetries: 10}`: after 1, 2, 4 ... 60 s plus jitter",
		},
		{
			Name: "redeliver, outage detection", short: "detection", policy: redeliver.Policy{Outage: redeliver.DefaultOutage()},
			About: "the default policy with `Outage: redeliver.DefaultOutage()`:\n" +
				"  in an outage redeliver waits, probes with single messages and dead-letters nothing",
		},
		{
			Name: "Watermill Retry + PoisonQueue", short: "watermill", peer: true,
			About: "Watermill's Router with `Retry` (3 retries, from 100 ms, as in its example) inside `PoisonQueue`",
		},
	}
}

// setup has the clients of a service on its broker.
type setup struct {
	sub      message.Subscriber
	pub      message.Publisher // of the peer's poison queue
	readers  int               // handlers that read the queue beside each other; 0 for one
	settings string
	close    func()
}

// start begins to consume. stop ends that.
func (s service) start(b broker, topic string, a *account) (stop func(), settings string, err error) {
	var on setup
	if s.peer {
		on, err = b.peer(topic)
	} else {
		on, err = b.ours(topic, s.policy, redeliver.SinkFunc(func(e redeliver.Event) {
			if dead, ok := e.(redeliver.DeadLettered); ok {
				if id, err := idOf(dead.State.ID); err == nil {
					a.addDeadLetter(id)
				}
			}
		}))
	}
	if err != nil {
		return nil, "", err
	}
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: 20 * time.Second}, watermill.NopLogger{})
	if err != nil {
		on.close()
		return nil, "", err
	}
	if s.peer {
		poison, err := wmiddleware.PoisonQueue(countingPublisher{on.pub, a}, poisonOf(topic))
		if err != nil {
			on.close()
			return nil, "", err
		}
		// These are the values in Watermill's documentation and basic example.
		router.AddMiddleware(poison, wmiddleware.Retry{MaxRetries: 3, InitialInterval: 100 * time.Millisecond, Logger: watermill.NopLogger{}}.Middleware)
	} else {
		router.AddMiddleware(middleware.Retry())
	}
	for n := range max(1, on.readers) {
		router.AddConsumerHandler("pay-"+strconv.Itoa(n), topic, on.sub, a.handle)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	var why error // is set when ended is closed
	go func() {
		defer close(ended)
		why = router.Run(ctx)
	}()
	stop = func() {
		cancel()
		<-ended
		on.close()
	}
	select {
	case <-router.Running():
		return stop, on.settings, nil
	case <-ended:
		cancel()
		on.close()
		return nil, "", fmt.Errorf("the router ended unexpectedly: %w", why)
	}
}

func (a *account) handle(msg *message.Message) error {
	id, err := idOf(msg.UUID)
	if err != nil {
		return err
	}
	if err := a.call.call(msg.Context()); err != nil {
		return err
	}
	a.succeed(id)
	return nil
}

// countingPublisher is a publisher that records which messages the peer has published to its poison queue.
type countingPublisher struct {
	message.Publisher
	account *account
}

// Publish implements [message.Publisher].
func (b countingPublisher) Publish(topic string, msgs ...*message.Message) error {
	if err := b.Publisher.Publish(topic, msgs...); err != nil {
		return err
	}
	for _, msg := range msgs {
		if id, err := idOf(msg.UUID); err == nil {
			b.account.addDeadLetter(id)
		}
	}
	return nil
}

func poisonOf(topic string) string { return topic + "-poison" }

// deadOf returns the name of a service's DLQ.
func (s service) deadOf(b broker, topic string) string {
	if s.peer {
		return poisonOf(topic)
	}
	return b.dlq(topic)
}

// uuidHeader is the header with the message's UUID, which all services read.
const uuidHeader = wirename.WatermillUUID

const uuidPrefix = "be9c4000-0000-4000-8000-"

func uuidOf(id int) string { return fmt.Sprintf("%s%012d", uuidPrefix, id) }

func idOf(uuid string) (int, error) {
	text, ok := strings.CutPrefix(uuid, uuidPrefix)
	if !ok {
		return 0, fmt.Errorf("%q is not an id of this run", uuid)
	}
	return strconv.Atoi(text)
}

// body returns the value of a message: a small order.
func body(id int) []byte {
	return fmt.Appendf(nil, `{"order":%d,"customer":"c-%02d","amount":%d,"note":"%s"}`, id, id%keys, 100+id%900, strings.Repeat("x", 150))
}
