package kafka

import (
	"context"
	"slices"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver/adapters/kafka/internal/record"
	"github.com/redeliver/redeliver/internal/engine"
	"github.com/redeliver/redeliver/internal/wirename"
)

// UUIDHeader carries a Watermill message's UUID, as in watermill-kafka.
const UUIDHeader = wirename.WatermillUUID

// Marshaler turns Kafka records into Watermill messages and back. It must be safe for concurrent use.
type Marshaler interface {
	// Unmarshal makes the message that the handler gets. It must not change the record, and the message must not share
	// its bytes. After an error or a panic, the record goes to the DLQ as it is, undecodable.
	Unmarshal(rec *sarama.ConsumerMessage) (*message.Message, error)
	// Marshal makes the record of a message for publishing.
	Marshal(topic string, msg *message.Message) (*sarama.ProducerMessage, error)
}

// DefaultMarshaler uses watermill-kafka's format: the UUID is a header, each metadata entry is a
// header, and the payload is the value. A nil payload is a null value (a tombstone), an empty one
// is an empty value. The key is that of SetKey, or else null. If a header appears twice, the
// metadata has the last one; RecordFromContext shows all.
type DefaultMarshaler struct{}

// Unmarshal implements [Marshaler].
func (DefaultMarshaler) Unmarshal(rec *sarama.ConsumerMessage) (*message.Message, error) {
	// Cloned, so that a handler that writes into its payload does not change the retry.
	msg := message.NewMessage("", slices.Clone(rec.Value))
	for _, h := range rec.Headers {
		if h == nil {
			continue
		}
		if string(h.Key) == UUIDHeader {
			msg.UUID = string(h.Value)
			continue
		}
		msg.Metadata[string(h.Key)] = string(h.Value)
	}
	if msg.UUID == "" {
		msg.UUID = record.ID(rec)
	}
	return msg, nil
}

// Marshal implements [Marshaler].
func (DefaultMarshaler) Marshal(topic string, msg *message.Message) (*sarama.ProducerMessage, error) {
	m := &sarama.ProducerMessage{Topic: topic, Headers: make([]sarama.RecordHeader, 0, len(msg.Metadata)+1)}
	if key := keyOf(msg.Context()); key != nil {
		m.Key = sarama.ByteEncoder(key)
	}
	if msg.Payload != nil {
		m.Value = sarama.ByteEncoder(msg.Payload)
	}
	m.Headers = append(m.Headers, sarama.RecordHeader{Key: []byte(UUIDHeader), Value: []byte(msg.UUID)})
	for k, v := range msg.Metadata {
		if k != UUIDHeader {
			m.Headers = append(m.Headers, sarama.RecordHeader{Key: []byte(k), Value: []byte(v)})
		}
	}
	return m, nil
}

// RecordFromContext returns the Kafka record of the message whose handler got ctx. It is as it was in its origin: key,
// headers with their order, duplicates and bytes, topic, partition, offset and timestamp. The result is nil for any
// other context. The record must not be changed.
func RecordFromContext(ctx context.Context) *sarama.ConsumerMessage {
	if d := engine.FromContext(ctx); d != nil {
		if r, ok := d.Record().(*sarama.ConsumerMessage); ok {
			return r
		}
	}
	return nil
}

type recordKeyKey struct{}

// SetKey gives a message the key under which it is published.
func SetKey(msg *message.Message, key []byte) {
	msg.SetContext(context.WithValue(msg.Context(), recordKeyKey{}, key))
}

func keyOf(ctx context.Context) []byte {
	key, _ := ctx.Value(recordKeyKey{}).([]byte)
	return key
}
