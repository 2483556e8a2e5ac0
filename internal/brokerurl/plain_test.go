package brokerurl

import "testing"

// PlainPassword finds passwords that would be sent over plain connections.
func TestPlainPassword(t *testing.T) {
	for raw, want := range map[string]bool{
		"kafka://ann:secret@kafka:9092?sasl=plain":                true,
		"kafka://ann:secret@127.0.0.1:9092,kafka:9092?sasl=plain": true,
		"kafka://ann:secret@localhost:9092?sasl=plain":            false,
		"kafka://ann:secret@kafka:9092?sasl=scram-sha-512":        false,
		"kafka+tls://ann:secret@kafka:9092?sasl=plain":            false,
		"kafka://kafka:9092":                                      false,
		"kafka+share://ann:secret@kafka:9092":                     true,
		"kafka+share://ann:secret@kafka:9092?sasl=scram-sha-256":  false,
		"kafka+share+tls://ann:secret@kafka:9092":                 false,
		"amqp://ann:secret@rabbit":                                true,
		"amqp://ann:secret@[::1]:5672":                            false,
		"amqps://ann:secret@rabbit":                               false,
		"sqs+http://key:secret@sqs:9324":                          false,
	} {
		u, err := Parse(raw, Kafka, KafkaShare, RabbitMQ, SQS)
		if err != nil {
			t.Errorf("%s: %v", raw, err)
		} else if got := u.PlainPassword(); got != want {
			t.Errorf("%s: %v", u, got)
		}
	}
}
