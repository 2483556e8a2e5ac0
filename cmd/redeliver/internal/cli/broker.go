package cli

import (
	"context"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/delayqueue"
	"github.com/redeliver/redeliver/internal/brokerurl"
)

// broker is all that the verbs need of one. A nil function is what this command
// cannot do there yet.
type broker struct {
	kind brokerurl.Broker
	// queues lists the DLQs, whatever their group.
	queues func(ctx context.Context) ([]deadletter.Info, error)
	// whose reads from a DLQ's name whose it is.
	whose func(ctx context.Context, dlq string) (topic, group string, err error)
	// dlq opens one.
	dlq func(ctx context.Context, s subject) (deadletter.Queue, error)
	// plan says how a subscription of the topic would wait.
	plan func(ctx context.Context, topic string) (*planned, error)
	// doctor looks at a subscription from outside.
	doctor func(ctx context.Context, topic string, how delayqueue.Examination) (*delayqueue.Diagnosis, error)
	// old finds the levels that older policies have left; nil where there are none.
	old *oldLevels
	// waiting opens what waits for a topic and a group.
	waiting func(ctx context.Context, s subject) (*waiting, error)
	from    connection // how it was reached
	plain   []string   // warnings of passwords that are sent as they are
	// close lets go of the connections.
	close func(ctx context.Context) error
}

// subject is which DLQ is meant.
type subject struct {
	dlq          string // its name, where that was given
	topic, group string // of RabbitMQ and SQS, topic is the queue and there is no group
	back, readBy string // of Kafka, where somebody else fills the DLQ
	lease        time.Duration
}

// setup is what a broker is opened for.
type setup struct {
	group     string           // empty where it does not matter
	api       string           // the management API of RabbitMQ; empty for none
	policy    redeliver.Policy // of plan
	elsewhere bool             // of plan: who asks makes nothing, and who makes it does so without redeliver
}

// open connects to the broker that the flags name. A broker that the command learns
// to work with is one case more.
func (a *app) open(ctx context.Context, s setup) (*broker, error) {
	u, err := a.conn.url(a.Env)
	if err != nil {
		return nil, err
	}
	if s.api, err = a.conn.managementURL(a.Env, u); err != nil {
		return nil, err
	}
	var b *broker
	switch u.Broker {
	case brokerurl.RabbitMQ:
		b, err = openRabbitMQ(ctx, u, s)
	case brokerurl.SQS:
		b, err = openSQS(ctx, u, s)
	default:
		b, err = openKafka(ctx, u, s)
	}
	if err != nil {
		return nil, a.conn.at(err)
	}
	b.from, b.plain = a.conn, plainPasswords(u, s.api)
	return b, nil
}

// with runs a verb on the broker, and closes it.
func (a *app) with(ctx context.Context, s setup, do func(*broker) error) (err error) {
	b, err := a.open(ctx, s)
	if err != nil {
		return err
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
		defer cancel()
		if bad := b.close(closing); err == nil && bad != nil {
			err = bad
		}
	}()
	return do(b)
}

// patience bounds the end of a command.
var patience = 5 * time.Second

// notThere is what a verb says of a broker that it cannot work with yet.
func (b *broker) notThere(verb string) error {
	return failed(codeFailed, "%s is not there yet on %s", verb, called(b.kind))
}

// called is a broker's name for people.
func called(kind brokerurl.Broker) string {
	switch kind {
	case brokerurl.RabbitMQ:
		return "RabbitMQ"
	case brokerurl.SQS:
		return "SQS"
	default:
		return "Kafka"
	}
}

// silence is for what an adapter tells of subscriptions: there are none.
var silence = redeliver.SinkFunc(func(redeliver.Event) {})
