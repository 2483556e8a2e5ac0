package sidecar

import (
	"reflect"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	amqp091 "github.com/rabbitmq/amqp091-go"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/redeliver/redeliver"
)

// A program receives each broker's data of a message.
func TestMessages(t *testing.T) {
	state := redeliver.State{ID: "a", Attempts: 1, Origin: "orders", Group: "billing"}
	for name, c := range map[string]struct{ got, want *Message }{
		"Kafka": {
			fromKafka(state, &sarama.ConsumerMessage{
				Topic: "orders", Partition: 3, Offset: 17, Timestamp: noon, Key: []byte{0, 255}, Value: []byte("body"),
				Headers: []*sarama.RecordHeader{{Key: []byte("two"), Value: []byte("1")}, nil, {Key: []byte("two"), Value: []byte{0}}, {}},
			}),
			&Message{
				State: state, Key: []byte{0, 255}, Body: []byte("body"), Timestamp: noon, Headers: []Header{{"two", "1"}, {"two", "\x00"}, {"", ""}},
				Properties: []Header{{"Partition", "3"}, {"Offset", "17"}},
			},
		},
		"Kafka without a value": {
			fromKafka(state, &sarama.ConsumerMessage{Key: []byte("k")}),
			&Message{State: state, Key: []byte("k"), Null: true, Properties: []Header{{"Partition", "0"}, {"Offset", "0"}}},
		},
		"a share group of Kafka": {
			fromKafkaShare(state, &kgo.Record{
				Topic: "orders", Partition: 3, Offset: 17, Timestamp: noon, Key: []byte{0, 255}, Value: []byte("body"),
				Headers: []kgo.RecordHeader{{Key: "two", Value: []byte("1")}, {Key: "two", Value: []byte{0}}, {}},
			}),
			&Message{
				State: state, Key: []byte{0, 255}, Body: []byte("body"), Timestamp: noon, Headers: []Header{{"two", "1"}, {"two", "\x00"}, {"", ""}},
				Properties: []Header{{"Partition", "3"}, {"Offset", "17"}},
			},
		},
		"a share group of Kafka, without a value": {
			fromKafkaShare(state, &kgo.Record{Key: []byte("k")}),
			&Message{State: state, Key: []byte("k"), Null: true, Properties: []Header{{"Partition", "0"}, {"Offset", "0"}}},
		},
		"RabbitMQ": {
			fromRabbitMQ(state, &amqp091.Delivery{
				Exchange: "shop", RoutingKey: "orders.new", MessageId: "m-1", CorrelationId: "c", Type: "order", ContentType: "application/json", Priority: 9, Timestamp: noon, Body: []byte("body"),
				Headers: amqp091.Table{
					"b": true, "i": int32(-7), "s": "text", "raw": []byte{0, 255}, "t": noon, "nil": nil, "f": 0.5,
					"list": []any{"a", int64(1), amqp091.Table{"x": "y"}}, "table": amqp091.Table{"count": int64(2)},
				},
			}),
			&Message{
				State: state, Body: []byte("body"), Timestamp: noon, ContentType: "application/json",
				Headers: []Header{
					{"b", "true"}, {"f", "0.5"}, {"i", "-7"}, {"list", `["a",1,{"x":"y"}]`}, {"nil", ""}, {"raw", "\x00\xff"}, {"s", "text"},
					{"t", "2026-01-31T12:00:00Z"}, {"table", `{"count":2}`},
				},
				Properties: []Header{
					{"Exchange", "shop"}, {"Routing-Key", "orders.new"}, {"Message-Id", "m-1"}, {"Correlation-Id", "c"}, {"Type", "order"}, {"Priority", "9"},
				},
			},
		},
		"SQS": {
			fromSQS(state, &types.Message{
				MessageId: aws.String("m-1"), Body: aws.String("body"),
				Attributes: map[string]string{"SentTimestamp": "1769860800000", "MessageGroupId": "o-1", "ApproximateReceiveCount": "3"},
				MessageAttributes: map[string]types.MessageAttributeValue{
					"z": {DataType: aws.String("Number"), StringValue: aws.String("7")}, "a": {DataType: aws.String("Binary"), BinaryValue: []byte{0}},
				},
			}),
			&Message{
				State: state, Body: []byte("body"), Timestamp: noon, Headers: []Header{{"a", "\x00"}, {"z", "7"}},
				Properties: []Header{{"Message-Id", "m-1"}, {"Message-Group-Id", "o-1"}},
			},
		},
	} {
		if !c.got.Timestamp.Equal(c.want.Timestamp) {
			t.Errorf("%s: %s", name, c.got.Timestamp)
		}
		c.got.Timestamp, c.want.Timestamp = time.Time{}, time.Time{}
		if !reflect.DeepEqual(c.got, c.want) {
			t.Errorf("%s: %+v\nwant %+v", name, c.got, c.want)
		}
	}
}
