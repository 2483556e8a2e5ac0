package amqp

import (
	"cmp"
	"fmt"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver/adapters/amqp/internal/layout"
	"github.com/redeliver/redeliver/internal/check"
)

// Topology says which queue a subscriber of a topic reads, and where a publisher publishes a topic:
// a set-up of watermill-amqp, or your own. The zero Topology is [Queue]. Missing queues,
// exchanges and bindings are created, durable. Existing ones are used as they are.
type Topology struct {
	// Queue names the queue that Subscribe(topic) reads. Default: the topic.
	Queue func(topic string) string
	// Exchange names the exchange to which Publish(topic) publishes and the
	// queue is bound. Default: the default exchange, which needs no binding.
	Exchange func(topic string) string
	// Kind is the type of the exchange: "fanout" (default), "direct", "topic"
	// or "headers".
	Kind string
	// RoutingKey is the routing key with which Publish(topic) publishes. Default: the queue's name
	// on the default exchange, the topic on any other.
	RoutingKey func(topic string) string
	// BindingKeys are the keys with which the queue is bound. Default: RoutingKey(topic).
	BindingKeys func(topic string) []string
	// BindingArgs are the arguments of the bindings of a headers exchange.
	BindingArgs amqp091.Table
	// QueueArgs are the arguments of the queue if it is created. Default: a quorum queue that
	// dead-letters to redeliver's DLQ at the broker's own limits.
	QueueArgs amqp091.Table
	// Existing creates no queue, exchange or binding: they must exist.
	Existing bool
}

// Queue uses one durable queue for each topic, of the topic's name, and publishes to it through the
// default exchange, as watermill-amqp's NewDurableQueueConfig does.
func Queue() Topology { return Topology{} }

// ExistingQueue reads the queue of the topic's name, which must exist, and
// publishes to it through the default exchange.
func ExistingQueue() Topology { return Topology{Existing: true} }

// PubSub uses one fanout exchange for each topic, of the topic's name, and a queue
// "<topic>_<group>" bound to it, as watermill-amqp's NewDurablePubSubConfig with
// GenerateQueueNameTopicNameWithSuffix does.
func PubSub(group string) Topology {
	return Topology{
		Queue:    func(topic string) string { return topic + "_" + group },
		Exchange: func(topic string) string { return topic },
		Kind:     amqp091.ExchangeFanout,
		// A fanout exchange ignores it.
		RoutingKey: func(string) string { return "" },
	}
}

// TopicExchange publishes to one topic exchange and binds one queue to it with the topic as routing
// and binding key, as watermill-amqp's NewDurableTopicConfig does.
func TopicExchange(exchange, queue string) Topology {
	return bound(exchange, queue, amqp091.ExchangeTopic)
}

// DirectExchange is TopicExchange with a direct exchange.
func DirectExchange(exchange, queue string) Topology {
	return bound(exchange, queue, amqp091.ExchangeDirect)
}

func bound(exchange, queue, kind string) Topology {
	return Topology{
		Queue:    func(string) string { return queue },
		Exchange: func(string) string { return exchange },
		Kind:     kind,
	}
}

func (t Topology) queue(topic string) string {
	if t.Queue != nil {
		return t.Queue(topic)
	}
	return topic
}

func (t Topology) exchange(topic string) string {
	if t.Exchange != nil {
		return t.Exchange(topic)
	}
	return ""
}

func (t Topology) kind() string { return cmp.Or(t.Kind, amqp091.ExchangeFanout) }

func (t Topology) routingKey(topic string) string {
	switch {
	case t.RoutingKey != nil:
		return t.RoutingKey(topic)
	case t.exchange(topic) == "":
		return t.queue(topic)
	default:
		return topic
	}
}

func (t Topology) bindingKeys(topic string) []string {
	if t.BindingKeys != nil {
		return t.BindingKeys(topic)
	}
	return []string{t.routingKey(topic)}
}

func (t Topology) check(ps *check.Problems) {
	switch t.kind() {
	case amqp091.ExchangeDirect, amqp091.ExchangeFanout, amqp091.ExchangeTopic, amqp091.ExchangeHeaders:
	default:
		ps.Add("Topology.Kind", t.Kind, "must be direct, fanout, topic or headers")
	}
}

// newLayout returns the queues of a topic's subscription, or an error with all problems.
func newLayout(cfg *Config, topic string) (*layout.Layout, error) {
	t, queue := cfg.Topology, cfg.Topology.queue(topic)
	var ps check.Problems
	layout.CheckQueue(&ps, fmt.Sprintf("queue of topic %q", topic), queue)
	cfg.names().Check(&ps, queue)
	policy, _ := cfg.policy(queue)
	checkTimeout(&ps, cfg, queue, policy)
	checkOrder(&ps, cfg, queue, policy)
	if err := ps.Err(); err != nil {
		return nil, fmt.Errorf("amqp: %w", err)
	}
	return layout.New(layout.Options{
		Topic: topic, Queue: queue, Policy: policy, Names: cfg.names(), DeadLetters: cfg.DLQ, QueueArgs: t.QueueArgs, Existing: t.Existing,
		Binding: layout.Binding{Exchange: t.exchange(topic), Kind: t.kind(), Keys: t.bindingKeys(topic), Args: t.BindingArgs},
	}), nil
}
