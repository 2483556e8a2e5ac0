package cli

import (
	"context"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/doctor"
	"github.com/redeliver/redeliver/internal/brokerurl"
)

// broker has the functions of a broker that verbs need. A nil function is not supported.
type broker struct {
	kind brokerurl.Broker
	// queues lists the DLQs of all groups. It is nil if the broker cannot list them.
	queues func(ctx context.Context) ([]deadletter.Info, error)
	// ownerOf derives the topic and the group from the name of a DLQ.
	ownerOf func(ctx context.Context, dlq string) (topic, group string, err error)
	// dlq opens a DLQ.
	dlq func(ctx context.Context, s subject) (deadletter.Queue, error)
	// plan describes how a subscription of the topic would retry.
	plan func(ctx context.Context, topic string) (*planned, error)
	// doctor inspects a subscription from outside.
	doctor func(ctx context.Context, topic string, how doctor.Examination) (*doctor.Diagnosis, error)
	// pauser pauses subscriptions.
	pauser pauser
	// waiting opens the waiting messages of a topic and a group.
	waiting func(ctx context.Context, s subject) (*waiting, error)
	conn    connection // how the broker was reached
	// close closes the connections.
	close func(ctx context.Context) error
}

// subject names a DLQ.
type subject struct {
	dlq              string // its name, if given
	topic, group     string // on RabbitMQ and SQS topic is the queue, and group is empty
	replayTo, readBy string // Kafka, if another framework fills the DLQ
	lease            time.Duration
}

// reader returns the name of the topic's reader for display.
func (s *subject) reader() string {
	if s.group == "" {
		return "queue " + s.topic
	}
	return "group " + s.group + " of " + s.topic
}

// setup configures how a broker is opened.
type setup struct {
	group            string           // empty if irrelevant
	api              string           // URL of RabbitMQ's management API; empty for none
	policy           redeliver.Policy // of the subscription; zero for a verb that does not need it
	forAdministrator bool             // only plan: an administrator creates the topics or queues without redeliver
}

// open connects to the broker that the flags name.
func (a *app) open(ctx context.Context, s setup) (*broker, error) {
	u, err := a.conn.url(a.Env)
	if err != nil {
		return nil, err
	}
	if s.api, err = a.conn.managementURL(a.Env, u); err != nil {
		return nil, err
	}
	for _, warning := range plainPasswords(u, s.api) {
		a.sayf("warning: %s", warning)
	}
	var b *broker
	switch u.Broker {
	case brokerurl.RabbitMQ:
		b, err = openRabbitMQ(ctx, u, s)
	case brokerurl.SQS:
		b, err = openSQS(ctx, u, s)
	case brokerurl.KafkaShare:
		b, err = openKafkaShare(ctx, u, s)
	default:
		b, err = openKafka(ctx, u, s)
	}
	if err != nil {
		return nil, a.conn.withAddress(err)
	}
	b.conn = a.conn
	return b, nil
}

// withBroker calls do with the broker that the flags name, and closes the broker.
func (a *app) withBroker(ctx context.Context, s setup, do func(*broker) error) (err error) {
	b, err := a.open(ctx, s)
	if err != nil {
		return err
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.maxClose())
		defer cancel()
		if bad := b.close(closing); err == nil && bad != nil {
			err = bad
		}
	}()
	return do(b)
}

// errUnlisted reports that a broker cannot list its queues.
var errUnlisted = usagef("AMQP cannot list queues: give --management-url http://host:15672, or name a DLQ")

// displayName returns a broker's display name.
func displayName(kind brokerurl.Broker) string {
	switch kind {
	case brokerurl.RabbitMQ:
		return "RabbitMQ"
	case brokerurl.SQS:
		return "SQS"
	case brokerurl.KafkaShare:
		return "share groups of Kafka"
	default:
		return "Kafka"
	}
}

// discardEvents discards the events of subscriptions. The verbs do not need them.
var discardEvents = redeliver.SinkFunc(func(redeliver.Event) {})
