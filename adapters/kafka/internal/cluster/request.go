package cluster

import (
	"errors"
	"fmt"

	"github.com/IBM/sarama"

	"github.com/redeliver/redeliver/internal/engine"
)

// Request is one kind of request about a topic or a group.
type Request struct {
	Name  string // of Kafka's protocol
	Right string // that the user needs, as kafka-acls.sh names it
	Kind  string // "topic" or "group"
	Of    string // the topic or the group
}

// ToTopic returns a kind of request about a topic.
func ToTopic(name, right, topic string) Request { return Request{name, right, "topic", topic} }

// ToGroup returns a kind of request about a group.
func ToGroup(name, right, group string) Request { return Request{name, right, "group", group} }

// Operation returns the request as it is reported.
func (r Request) Operation() engine.Operation {
	return engine.Operation{Name: r.Name, Place: r.Kind + " " + r.Of}
}

// IsDenied reports whether err says that the user lacks a right.
func IsDenied(err error) bool {
	return errors.Is(err, sarama.ErrTopicAuthorizationFailed) || errors.Is(err, sarama.ErrGroupAuthorizationFailed) || errors.Is(err, sarama.ErrClusterAuthorizationFailed)
}

// deniedError is the error of a request whose user lacks a right.
type deniedError struct {
	request Request
	err     error
}

func (e *deniedError) Error() string {
	return fmt.Sprintf("%v; grant %s on %s %s", e.err, e.request.Right, e.request.Kind, e.request.Of)
}

func (e *deniedError) Unwrap() error { return e.err }

// Explain returns the error of a request, or nil. If the user lacks a right, it says which one.
func (r Request) Explain(err error) error {
	if _, is := errors.AsType[*deniedError](err); is || !IsDenied(err) {
		return err
	}
	return &deniedError{r, err}
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
	err = r.Explain(err)
	if c, ok := client.(observedClient); ok && !errors.Is(err, sarama.ErrClosedClient) {
		c.ops.Record(r.Operation(), err, IsDenied(err), r.Name == commitRequest)
	}
	return err
}
