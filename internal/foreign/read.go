// Package foreign reads and writes the headers of other programs that fill dead-letter queues: Spring Kafka, Kafka
// Connect, Kafka Streams, share groups, Watermill, RabbitMQ and SQS. It turns their description of a failure into the state of a
// message, and removes it from the message's headers.
package foreign

import (
	"cmp"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/internal/limits"
)

// The headers of other programs that fill DLQs. Spring Kafka's are in spring.go. Kafka Connect writes numbers as text.
const (
	connectPrefix = "__connect.errors."
	streamsPrefix = "__streams.errors." // of Kafka Streams, KIP-1034
	sharePrefix   = "__dlq.errors."     // of the broker, for a share group: KIP-1191

	rabbitDeath = "x-death" // adapters write it as JSON
	rabbitFirst = "x-first-death-"
	rabbitLast  = "x-last-death-"
	sqsSource   = "DeadLetterQueueSourceArn"

	watermillReason     = "reason_poisoned"
	watermillTopic      = "topic_poisoned"
	watermillHandler    = "handler_poisoned"
	watermillSubscriber = "subscriber_poisoned"
)

// writerOf returns the program that writes a header of that name.
func writerOf(name string) deadletter.Writer {
	switch {
	case isSpring(name):
		return deadletter.WriterSpring
	case strings.HasPrefix(name, connectPrefix):
		return deadletter.WriterConnect
	case strings.HasPrefix(name, streamsPrefix):
		return deadletter.WriterStreams
	case strings.HasPrefix(name, sharePrefix):
		return deadletter.WriterShareGroup
	case name == rabbitDeath, strings.HasPrefix(name, rabbitFirst), strings.HasPrefix(name, rabbitLast):
		return deadletter.WriterRabbitMQ
	case name == sqsSource:
		return deadletter.WriterSQS
	case name == watermillReason || name == watermillTopic || name == watermillHandler || name == watermillSubscriber:
		return deadletter.WriterWatermill
	default:
		return deadletter.WriterUnknown
	}
}

// Read reads the headers of another program into m.State, and moves them from m.Headers to m.Foreign, so that a replay sends the
// original message. If there are headers of several programs, the first counts, but isWeakSpringHeader headers count least.
func Read(m *deadletter.Message, info deadletter.Info) {
	for _, h := range m.Headers {
		f := writerOf(h.Name)
		if f == deadletter.WriterUnknown {
			continue
		}
		m.Writer = f
		if !isWeakSpringHeader(h.Name) {
			break
		}
	}
	m.State.Group, m.State.Origin = info.Group, info.Origin
	m.State.LastFailed = m.Time
	if m.Writer == deadletter.WriterUnknown {
		return
	}
	values := make(map[string][]byte)
	users := make([]deadletter.Header, 0, len(m.Headers))
	for _, h := range m.Headers {
		if writerOf(h.Name) != m.Writer && (m.Writer != deadletter.WriterSpring || h.Name != springDelivery) {
			users = append(users, h)
			continue
		}
		m.Foreign = append(m.Foreign, h)
		// A later failure is appended: its error is the latest, and its origin may be a retry topic.
		if _, again := values[h.Name]; !again || !IsSpringOriginal(h.Name) {
			values[h.Name] = h.Value
		}
	}
	m.Headers = users
	text := func(name string) string {
		return redeliver.Redact(limits.Cut(string(values[name]), limits.MaxErrorText))
	}
	switch m.Writer {
	case deadletter.WriterSpring:
		readSpring(m, info, values, text)
	case deadletter.WriterConnect:
		readConnect(m, info, values, text)
	case deadletter.WriterStreams:
		readStreams(m, info, values, text)
	case deadletter.WriterShareGroup:
		readShareGroup(m, info, values, text)
	case deadletter.WriterRabbitMQ:
		readRabbit(m, info, values, text)
	case deadletter.WriterSQS:
		source := text(sqsSource)
		m.State.Reason = redeliver.ReasonExhausted // received as often as the RedrivePolicy allows
		m.State.Error = "SQS moved it here: it was received too often"
		m.CheckSubscription(info, "", source[strings.LastIndexByte(source, ':')+1:])
	case deadletter.WriterWatermill:
		m.State.Error = text(watermillReason)
		m.Handler = text(watermillHandler)
		m.CheckSubscription(info, "", text(watermillTopic))
		m.State.Reason = redeliver.ReasonExhausted // a middleware before Watermill's poison queue has retried it in vain
	default:
	}
}

func readConnect(m *deadletter.Message, info deadletter.Info, values map[string][]byte, text func(string) string) {
	st := &m.State
	st.Error = text(connectPrefix + "exception.message")
	st.ErrorType = text(connectPrefix + "exception.class.name")
	m.Handler = text(connectPrefix + "connector.name")
	st.Reason = redeliver.ReasonExhausted
	if stage := text(connectPrefix + "stage"); strings.HasSuffix(stage, "_CONVERTER") {
		st.Reason = redeliver.ReasonUndecodable
	}
	readTextPlace(m, info, values, text, connectPrefix)
}

// readTextPlace reads a topic, a partition and an offset that are written as text.
func readTextPlace(m *deadletter.Message, info deadletter.Info, values map[string][]byte, text func(string) string, prefix string) {
	partition, err1 := strconv.ParseInt(string(values[prefix+"partition"]), 10, 32)
	offset, err2 := strconv.ParseInt(string(values[prefix+"offset"]), 10, 64)
	setPlace(&m.State, partition, err1 == nil, offset, err2 == nil)
	m.CheckSubscription(info, "", text(prefix+"topic"))
}

// readStreams reads the headers of Kafka Streams. Its exception header has a class name followed by the message.
func readStreams(m *deadletter.Message, info deadletter.Info, values map[string][]byte, text func(string) string) {
	st := &m.State
	st.Error = text(streamsPrefix + "message")
	st.ErrorType, _, _ = strings.Cut(text(streamsPrefix+"exception"), ": ")
	st.Reason = redeliver.ReasonExhausted
	if strings.HasSuffix(strings.ToLower(st.ErrorType), "serializationexception") {
		st.Reason = redeliver.ReasonUndecodable
	}
	readTextPlace(m, info, values, text, streamsPrefix)
}

// readShareGroup reads the headers of a Kafka broker. Several share groups may have one DLQ.
func readShareGroup(m *deadletter.Message, info deadletter.Info, values map[string][]byte, text func(string) string) {
	st := &m.State
	st.Error = cmp.Or(text(sharePrefix+"message"), "Kafka dead-lettered it: the share group did not accept it")
	st.Reason = redeliver.ReasonExhausted
	if n, err := strconv.Atoi(text(sharePrefix + "delivery.count")); err == nil && n > 0 && n <= limits.MaxAttempts {
		st.Attempts = n
	}
	readTextPlace(m, info, values, text, sharePrefix)
	m.CheckSubscription(info, text(sharePrefix+"group"), "")
}

// rabbitDeaths is an entry of x-death: how often a message was dead-lettered from one queue for one reason.
type rabbitDeaths struct {
	Count  int64     `json:"count"`
	Reason string    `json:"reason"`
	Queue  string    `json:"queue"`
	Time   time.Time `json:"time"`
}

// readRabbit reads the headers that RabbitMQ wrote when it dead-lettered a message. The latest entry of x-death comes
// first.
func readRabbit(m *deadletter.Message, info deadletter.Info, values map[string][]byte, text func(string) string) {
	st := &m.State
	origin := text(rabbitFirst + "queue")
	reason := cmp.Or(text(rabbitLast+"reason"), text(rabbitFirst+"reason"))
	if origin == info.ReplayTo || strings.HasPrefix(origin, info.ReplayTo+".") {
		origin = info.Origin // it was dead-lettered from the retry queue or a level
	}
	var deaths []rabbitDeaths
	if json.Unmarshal(values[rabbitDeath], &deaths) == nil && len(deaths) > 0 {
		latest, earliest := &deaths[0], &deaths[len(deaths)-1]
		reason = cmp.Or(latest.Reason, reason)
		origin = cmp.Or(origin, earliest.Queue)
		st.FirstFailed, st.LastFailed = earliest.Time.UTC(), latest.Time.UTC()
		for _, d := range deaths {
			if d.Queue == origin && d.Count > 0 {
				st.Attempts = int(min(int64(st.Attempts)+d.Count, 1<<31-1))
			}
		}
	}
	switch reason {
	case "rejected":
		st.Reason = redeliver.ReasonRejected
	case "expired":
		st.Reason = redeliver.ReasonExpired
	case "delivery_limit":
		st.Reason = redeliver.ReasonExhausted
	default: // maxlen says nothing about the message
	}
	st.ErrorType = reason
	st.Error = "RabbitMQ dead-lettered it: " + cmp.Or(reason, "it does not say why")
	m.CheckSubscription(info, "", origin)
}

// setPlace sets the partition and the offset in the origin, if both are known and valid.
func setPlace(st *redeliver.State, partition int64, ok1 bool, offset int64, ok2 bool) {
	if ok1 && ok2 && partition >= 0 && partition <= 1<<31-1 && offset >= 0 {
		st.Source.Known, st.Source.Partition, st.Source.Offset = true, int32(partition), offset
	}
}
