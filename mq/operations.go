package mq

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/doctor"
)

// ErrUnsupported is the error of an operation that a broker does not support. The error that wraps it says why.
var ErrUnsupported = errors.New("not supported")

// Operations are what an operator needs. An operation that the broker does not support returns an error that wraps [ErrUnsupported].
// Operations are safe for concurrent use.
type Operations struct{ client *Client }

// DeadLetterConfig names a DLQ. Fields that a broker does not have are refused.
type DeadLetterConfig struct {
	// Topic is the topic or queue whose messages failed. On SQS it is a name, a URL or an ARN. Required.
	Topic string
	// Group is the group that failed them. Kafka only. Default: the client's.
	Group string
	// DLQ is a topic or queue that another program fills for this group and Topic: Spring Kafka, Watermill's poison queue, Kafka
	// Connect, Kafka Streams, RabbitMQ's dead-letter exchange, or a RedrivePolicy of SQS. On Kafka its settled records are not
	// deleted, because others may read it. Default: the DLQ of redeliver.
	DLQ string
	// ReplayTo is the destination of a replay if the group is not redeliver's: Spring's retry topic, which only that group reads, or
	// the origin, which every group reads. It must exist. It is allowed only if another program fills DLQ. Kafka only. Default: the
	// retry topic.
	ReplayTo string
	// ReadBy is a group that reads DLQ. Records that it has committed are left out, because it has handled them. Use it for a retry
	// topic of Spring's when a group moves to redeliver: Spring names that group after the listener's group and the topic's suffix,
	// "billing-retry". Each scan reads its offsets, so stop the group first. A group is refused if it has committed nothing in a DLQ
	// that is not empty, or more than the DLQ has. It is allowed only if another program fills DLQ. Kafka only. Default: none, so no
	// record is left out.
	ReadBy string
	// Lease is how long a claim lasts without being renewed. It is renewed three times in that time. On SQS it is how long a message
	// that was read stays hidden if its process dies, in whole seconds, up to 10 min; the locks of that process then block others
	// for up to twice that time. Kafka and SQS only. Default 30 s.
	Lease time.Duration
	// DeliveryLimit is the number of deliveries at which RabbitMQ removes a message of a DLQ that redeliver does not fill. Each look
	// is a delivery. A look is refused from half of the limit on, a replay or a purge from two below it. RabbitMQ only. Default: the
	// limit that the management API reports; without that API 20, RabbitMQ 4's default. The limit of redeliver's own DLQ is out of
	// reach.
	DeliveryLimit int
}

// Unused returns a problem for each of the named fields that is set. An adapter calls it with the fields that its broker does not have.
// why ends the rule.
func (c *DeadLetterConfig) Unused(why string, fields ...string) (problems []redeliver.Problem) {
	values := map[string]any{"Group": c.Group, "ReplayTo": c.ReplayTo, "ReadBy": c.ReadBy, "Lease": c.Lease, "DeliveryLimit": c.DeliveryLimit}
	for _, f := range fields {
		if v := values[f]; v != "" && v != 0 && v != time.Duration(0) {
			problems = append(problems, redeliver.Problem{Field: f, Value: v, Rule: "must not be set: " + why})
		}
	}
	return problems
}

// DeadLetterer is a [Broker] with DLQs.
type DeadLetterer interface {
	DeadLetters(ctx context.Context, cfg DeadLetterConfig) (deadletter.Queue, error)
	DeadLetterQueues(ctx context.Context) ([]deadletter.Info, error)
}

// Pauser is a [Broker] that can pause a group.
type Pauser interface {
	Pause(ctx context.Context, topic, reason string) error
	Resume(ctx context.Context, topic string) error
	Paused(ctx context.Context, topic string) (*redeliver.PauseMark, error)
}

// NewPauser is a [Broker] that can pause first deliveries only.
type NewPauser interface {
	PauseNew(ctx context.Context, topic, reason string) error
}

// Examiner is a [Broker] that can look for what is wrong with a subscription.
type Examiner interface {
	Doctor(ctx context.Context, topic string, how doctor.Examination) (*doctor.Diagnosis, error)
}

// LevelCounter is a [Broker] that can count waiting messages.
type LevelCounter interface {
	WaitingLevels(ctx context.Context, topic string) ([]deadletter.WaitingLevel, error)
}

// Waiter is a [Broker] that shows waiting messages.
type Waiter interface {
	Waiting(ctx context.Context, cfg WaitingConfig) (Waiting, error)
}

// Releaser is a [Broker] that can make waiting messages run now.
type Releaser interface {
	Release(ctx context.Context, cfg ReleaseConfig) (released int64, err error)
}

// DeadLetters opens a DLQ. It must exist. Its companion, which has the state of tasks, is created with the first write to it. Keep the
// client open while you use the queue, and close the queue.
func (o *Operations) DeadLetters(ctx context.Context, cfg DeadLetterConfig) (deadletter.Queue, error) {
	b, ok := o.client.broker.(DeadLetterer)
	if !ok {
		return nil, o.unsupported("DeadLetters")
	}
	return b.DeadLetters(ctx, cfg)
}

// DeadLetterQueues lists the DLQs of all topics and groups. On RabbitMQ it needs Config.ManagementURL.
func (o *Operations) DeadLetterQueues(ctx context.Context) ([]deadletter.Info, error) {
	b, ok := o.client.broker.(DeadLetterer)
	if !ok {
		return nil, o.unsupported("DeadLetterQueues")
	}
	return b.DeadLetterQueues(ctx)
}

// Pause pauses a topic for all processes of the group, until [Operations.Resume]: nothing new begins, neither first attempts nor
// retries. Running attempts continue. Each process follows within some seconds, and one that starts later begins nothing. The reason
// is shown to others. A second pause replaces the first one. The topic must exist.
func (o *Operations) Pause(ctx context.Context, topic, reason string) error {
	b, ok := o.client.broker.(Pauser)
	if !ok {
		return o.unsupported("Pause")
	}
	return b.Pause(ctx, topic, reason)
}

// PauseNew is Pause, but retries that fall due continue.
func (o *Operations) PauseNew(ctx context.Context, topic, reason string) error {
	b, ok := o.client.broker.(NewPauser)
	if !ok {
		return o.unsupported("PauseNew")
	}
	return b.PauseNew(ctx, topic, reason)
}

// Resume ends a pause. It does nothing if there is none.
func (o *Operations) Resume(ctx context.Context, topic string) error {
	b, ok := o.client.broker.(Pauser)
	if !ok {
		return o.unsupported("Resume")
	}
	return b.Resume(ctx, topic)
}

// Paused returns by whom, when and why a topic was paused for the group, or nil.
func (o *Operations) Paused(ctx context.Context, topic string) (*redeliver.PauseMark, error) {
	b, ok := o.client.broker.(Pauser)
	if !ok {
		return nil, o.unsupported("Paused")
	}
	return b.Paused(ctx, topic)
}

// Doctor looks for what is wrong with a subscription, from outside. It changes nothing.
func (o *Operations) Doctor(ctx context.Context, topic string, how doctor.Examination) (*doctor.Diagnosis, error) {
	b, ok := o.client.broker.(Examiner)
	if !ok {
		return nil, o.unsupported("Doctor")
	}
	return b.Doctor(ctx, topic, how)
}

// WaitingLevels counts the messages that wait for a retry or for their time, by level. A depth of -1 is unknown.
func (o *Operations) WaitingLevels(ctx context.Context, topic string) ([]deadletter.WaitingLevel, error) {
	b, ok := o.client.broker.(LevelCounter)
	if !ok {
		return nil, o.unsupported("WaitingLevels")
	}
	return b.WaitingLevels(ctx, topic)
}

// WaitingConfig names waiting messages.
type WaitingConfig struct {
	// Topic is the topic that the messages came from. Required.
	Topic string
	// Group is the group for which they wait. Default: the client's.
	Group string
}

// Waiting are the waiting messages of a topic and a group, and the commands about them.
type Waiting interface {
	// Levels counts the messages by level.
	Levels(ctx context.Context) ([]deadletter.WaitingLevel, error)
	// Browse returns the messages that match a filter, level by level. An error, with an empty message, ends the sequence. Each loop
	// over it reads the messages again, until it ends: break it after as many as you need. A message stays valid after its iteration.
	Browse(ctx context.Context, f deadletter.WaitingFilter) iter.Seq2[deadletter.WaitingMessage, error]
	// Commands returns the commands that hold.
	Commands(ctx context.Context) ([]deadletter.Command, error)
	// SendCommand releases or cancels messages. The members of the group carry it out. It returns the command as they got it.
	SendCommand(ctx context.Context, asked deadletter.Command) (deadletter.Command, error)
	// Pause, PauseNew, Resume and Paused are those of Operations, for the group of the messages.
	Pause(ctx context.Context, reason string) error
	PauseNew(ctx context.Context, reason string) error
	Resume(ctx context.Context) error
	Paused(ctx context.Context) (*redeliver.PauseMark, error)
	// Close frees what Waiting has opened.
	Close() error
}

// Waiting opens the waiting messages of a topic. Keep the client open while you use them, and close them.
func (o *Operations) Waiting(ctx context.Context, cfg WaitingConfig) (Waiting, error) {
	b, ok := o.client.broker.(Waiter)
	if !ok {
		return nil, o.unsupported("Waiting")
	}
	return b.Waiting(ctx, cfg)
}

// ReleaseConfig names waiting messages for [Operations.Release].
type ReleaseConfig struct {
	// Topic is the topic that the messages came from. Required.
	Topic string
	// Levels are the waits of the levels whose messages are released. Default: all levels.
	Levels []time.Duration
	// Reason is shown with the command to the members. Kafka only. Default: "released".
	Reason string
	// Moved, if not nil, is called after each step with the queue and the number of messages that were moved from it. RabbitMQ only.
	Moved func(queue string, n int)
}

// Release makes the messages of whole levels run now, and returns their number. RabbitMQ moves them. On Kafka the members are told
// to run the messages that wait now, and do so in the background; [redeliver.OrderThroughRetries] refuses that.
func (o *Operations) Release(ctx context.Context, cfg ReleaseConfig) (released int64, err error) {
	b, ok := o.client.broker.(Releaser)
	if !ok {
		return 0, o.unsupported("Release")
	}
	return b.Release(ctx, cfg)
}

func (o *Operations) unsupported(operation string) error {
	why := o.client.options.Unsupported[operation]
	if why == "" {
		why = "the adapter does not implement it"
	}
	return fmt.Errorf("%s: %s is %w: %s", o.client.options.Name, operation, ErrUnsupported, why)
}
