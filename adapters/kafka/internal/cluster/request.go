package cluster

import (
	"errors"

	"github.com/IBM/sarama"

	"github.com/redeliver/redeliver/internal/engine"
	"github.com/redeliver/redeliver/internal/kafkaname"
)

// Request is one kind of request about a topic or a group.
type Request = kafkaname.Request

// ToTopic returns a kind of request about a topic, which needs a right.
func ToTopic(name, right, topic string) Request { return kafkaname.ToTopic(name, right, topic) }

// ToGroup returns a kind of request about a group, which needs a right.
func ToGroup(name, right, group string) Request { return kafkaname.ToGroup(name, right, group) }

// IsDenied reports whether err says that the user lacks a right.
func IsDenied(err error) bool {
	return errors.Is(err, sarama.ErrTopicAuthorizationFailed) || errors.Is(err, sarama.ErrGroupAuthorizationFailed) || errors.Is(err, sarama.ErrClusterAuthorizationFailed)
}

// Explain returns the error of a request, or nil. If the user lacks a right, it says which one.
func Explain(r Request, err error) error {
	if !IsDenied(err) {
		return err
	}
	return r.Denied(err)
}

// Observed returns a whose requests record their results in ops.
func (a Admin) Observed(ops *engine.Operations) Admin {
	a.Client = observedClient{a.Client, ops}
	return a
}

// Unobserved returns a whose requests record nothing: those that the subscription can do without.
func (a Admin) Unobserved() Admin {
	if c, ok := a.Client.(observedClient); ok {
		a.Client = c.Client
	}
	return a
}

// observedClient is a client whose requests record their results.
type observedClient struct {
	sarama.Client
	ops *engine.Operations
}

// GetOffset implements [sarama.Client].
func (c observedClient) GetOffset(topic string, partition int32, at int64) (int64, error) {
	offset, err := c.Client.GetOffset(topic, partition, at)
	return offset, Done(c, ToTopic("ListOffsets", "Describe", topic), err)
}

// Done records the result of a request, if the client is observed. It returns the error with an explanation.
func Done(client sarama.Client, r Request, err error) error {
	err = Explain(r, err)
	if c, ok := client.(observedClient); ok && !errors.Is(err, sarama.ErrClosedClient) {
		c.ops.Record(engine.Operation{Name: r.Name, Place: r.Place()}, err, IsDenied(err), r.Name == commitRequest)
	}
	return err
}
