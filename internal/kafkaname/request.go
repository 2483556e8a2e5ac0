package kafkaname

import (
	"errors"
	"fmt"
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

// Place returns what the request is about, as a text.
func (r Request) Place() string { return r.Kind + " " + r.Of }

// deniedError is the error of a request whose user lacks a right.
type deniedError struct {
	request Request
	err     error
}

func (e *deniedError) Error() string {
	return fmt.Sprintf("%v; grant %s on %s", e.err, e.request.Right, e.request.Place())
}

func (e *deniedError) Unwrap() error { return e.err }

// Denied adds to the error of a request which right the user lacks, unless the error says that already.
func (r Request) Denied(err error) error {
	if _, is := errors.AsType[*deniedError](err); is {
		return err
	}
	return &deniedError{r, err}
}
