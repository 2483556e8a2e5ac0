// Package publish lets programs publish messages over HTTP, and has what redeliver publish shares with that.
package publish

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka"
	"github.com/redeliver/redeliver/adapters/kafkashare"
	"github.com/redeliver/redeliver/internal/brokerurl"
)

// Message is what is published.
type Message struct {
	Topic string
	// ID is the message's id. Default: a new one.
	ID string
	// Key is the key of a Kafka record, or the message group of SQS. Nil for none.
	Key []byte
	// Headers are the message's own.
	Headers map[string]string
	// Attributes are those of a CloudEvent, without a prefix. Nil for a message that is none.
	Attributes  map[string]string
	ContentType string
	// Delay is how long the message waits before it is delivered, and Expires the time from which no attempt begins.
	Delay   time.Duration
	Expires time.Time
	Body    []byte
	// Null makes a Kafka record without a value.
	Null bool
}

// Target is where a message goes.
type Target struct {
	Broker brokerurl.Broker
	// Publisher is that of a client.
	Publisher message.Publisher
	// Delays reports that the client has the group and the policy whose levels delayed messages wait on.
	Delays bool
}

// InvalidError reports a message that the broker cannot have. Nothing was written.
type InvalidError struct{ Text string }

func (e *InvalidError) Error() string { return e.Text }

func invalid(format string, args ...any) error { return &InvalidError{fmt.Sprintf(format, args...)} }

// Publish returns the id of a message when the broker has confirmed it. After an error that is no [InvalidError] the
// broker may have it all the same: publish it again with the same id.
func (t Target) Publish(m *Message) (id string, err error) {
	m.ID = cmp.Or(m.ID, watermill.NewUUID())
	if err := t.check(m); err != nil {
		return "", err
	}
	if key := m.Attributes["partitionkey"]; key != "" && m.Key == nil && t.isKafka() { // as in CloudEvents' binding of Kafka
		m.Key = []byte(key)
	}
	msg := message.NewMessage(m.ID, m.Body)
	if m.Null {
		msg.Payload = nil
	}
	maps.Copy(msg.Metadata, m.Headers)
	for name, value := range m.Attributes {
		msg.Metadata[eventPrefixes[t.Broker]+name] = value
	}
	if !m.Expires.IsZero() {
		redeliver.SetExpires(msg.Metadata, m.Expires)
	}
	if m.Delay > 0 {
		delay.Message(msg, delay.For(m.Delay))
	}
	t.setProperties(msg, m)
	switch err = t.Publisher.Publish(m.Topic, msg); {
	case err == nil:
		return m.ID, nil
	case errors.Is(err, redeliver.ErrConfig) || isUnschedulable(err):
		return "", &InvalidError{err.Error()}
	default:
		return "", err
	}
}

func isUnschedulable(err error) bool {
	_, ok := errors.AsType[*redeliver.UnschedulableError](err)
	return ok
}

// eventPrefixes are the prefixes of a CloudEvent's attributes in the bindings of the brokers. SQS has no binding.
var eventPrefixes = map[brokerurl.Broker]string{
	brokerurl.Kafka: "ce_", brokerurl.KafkaShare: "ce_", brokerurl.RabbitMQ: "cloudEvents:", brokerurl.SQS: "ce_",
}

// headerContentType is the header with the content type on brokers whose messages have no property for it.
const headerContentType = "content-type"

// setProperties sets what is not in the metadata of a message.
func (t Target) setProperties(msg *message.Message, m *Message) {
	if t.Broker == brokerurl.RabbitMQ {
		setExtra(msg, extra{contentType: m.ContentType})
		return
	}
	if m.ContentType != "" {
		msg.Metadata[headerContentType] = m.ContentType
	}
	if m.Key == nil {
		return
	}
	switch t.Broker {
	case brokerurl.SQS:
		setExtra(msg, extra{messageGroup: string(m.Key)})
	case brokerurl.KafkaShare:
		kafkashare.SetKey(msg, m.Key)
	default:
		kafka.SetKey(msg, m.Key)
	}
}

// The limits of SQS: ten attributes, of which redeliver needs three.
const maxAttributes = 7

var attributeName = regexp.MustCompile(`^[A-Za-z0-9_-][A-Za-z0-9_.-]{0,127}$`)

func (t Target) isKafka() bool {
	return t.Broker == brokerurl.Kafka || t.Broker == brokerurl.KafkaShare
}

// check checks what would be lost or changed on the broker.
func (t Target) check(m *Message) error {
	switch {
	case m.Delay < 0 || m.Delay > redeliver.MaxWait:
		return invalid("the delay is %s: must be from 0 to %s", m.Delay, redeliver.MaxWait)
	case m.Delay > 0 && !t.Delays:
		return invalid("a delay needs the group and the policy of the topic's consumer, on whose levels the message waits, and none is known for %s", m.Topic)
	case m.Null && (!t.isKafka() || len(m.Body) > 0):
		return invalid("a message without a value is a Kafka record without a body")
	case m.Key != nil && t.Broker == brokerurl.RabbitMQ:
		return invalid("a RabbitMQ message has no key: send a header, and name it in --key-header")
	}
	for name, value := range m.Headers {
		switch {
		case name == "":
			return invalid("a header has no name")
		case strings.HasPrefix(strings.ToLower(name), "redeliver-") || strings.HasPrefix(name, "_watermill_"):
			return invalid("the header %q is one of redeliver's: they cannot be set", name)
		case t.Broker == brokerurl.RabbitMQ && len(name) > 255:
			return invalid("the header %.40q... is longer than 255 bytes", name)
		case t.Broker == brokerurl.SQS && (!attributeName.MatchString(name) || value == "" || !utf8.ValidString(value)):
			return invalid("the header %q: SQS takes names of letters, digits and _ - . and values that are not empty", name)
		}
	}
	for name := range m.Attributes {
		if strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789") != "" {
			return invalid("the attribute %q of the CloudEvent: names have lower-case letters and digits", name)
		}
	}
	for _, name := range []string{"id", "source", "type"} {
		if m.Attributes != nil && m.Attributes[name] == "" {
			return invalid("the CloudEvent has no %s", name)
		}
	}
	if t.Broker != brokerurl.SQS {
		return nil
	}
	n := len(m.Headers) + len(m.Attributes)
	if m.ContentType != "" {
		n++
	}
	switch {
	case n > maxAttributes:
		return invalid("the message has %d headers, with the content type: SQS has room for %d", n, maxAttributes)
	case len(m.Body) == 0 || !utf8.Valid(m.Body):
		return invalid("the body must be text that is not empty, because SQS takes nothing else")
	}
	return nil
}

// Event makes the message a CloudEvent.
func (m *Message) Event(kind, source string) {
	m.ID = cmp.Or(m.ID, watermill.NewUUID())
	m.Attributes = map[string]string{
		"specversion": "1.0", "id": m.ID, "source": source, "type": kind, "time": time.Now().UTC().Format(time.RFC3339Nano),
	}
}
