package sidecar

import (
	"encoding/json"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	amqp091 "github.com/rabbitmq/amqp091-go"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/bytetext"
)

// anyTexts returns texts with any bytes, some of them printable.
func anyTexts(r *rand.Rand, n int) (all []string) {
	for range n {
		b := make([]byte, r.IntN(8))
		for i := range b {
			if b[i] = byte('a' + r.IntN(26)); r.IntN(3) == 0 {
				b[i] = byte(r.IntN(256))
			}
		}
		all = append(all, string(b))
	}
	return all
}

// anyMessages returns messages with the same time, headers and key, as each broker has them.
func anyMessages(r *rand.Rand, at time.Time) map[string]*Message {
	state := redeliver.State{ID: "a", Attempts: 1, Origin: "orders", Group: "billing"}
	texts := anyTexts(r, 8)
	key := []byte(texts[0])
	table, attributes := amqp091.Table{}, map[string]types.MessageAttributeValue{}
	var records []*sarama.RecordHeader
	var shared []kgo.RecordHeader
	for i := 1; i+1 < len(texts); i += 2 {
		name, value := texts[i], texts[i+1]
		table[name] = []byte(value)
		attributes[name] = types.MessageAttributeValue{DataType: aws.String("Binary"), BinaryValue: []byte(value)}
		records = append(records, &sarama.RecordHeader{Key: []byte(name), Value: []byte(value)})
		shared = append(shared, kgo.RecordHeader{Key: name, Value: []byte(value)})
	}
	return map[string]*Message{
		"Kafka":         fromKafka(state, &sarama.ConsumerMessage{Key: key, Value: key, Timestamp: at, Headers: records}),
		"a share group": fromKafkaShare(state, &kgo.Record{Key: key, Value: key, Timestamp: at, Headers: shared}),
		"RabbitMQ":      fromRabbitMQ(state, &amqp091.Delivery{Body: key, Timestamp: at, Headers: table, Expiration: "1"}),
		"SQS": fromSQS(state, &types.Message{
			Body: aws.String("x"), MessageAttributes: attributes,
			Attributes: map[string]string{"SentTimestamp": strconv.FormatInt(at.UnixMilli(), 10)},
		}),
	}
}

var stamps = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$`)

// A program gets the bytes of every key and header, and no time that is not RFC 3339, which a CloudEvents SDK would refuse. AMQP has
// 64 bits of seconds, and Kafka 64 bits of milliseconds.
func TestAProgramGetsAnyMessage(t *testing.T) {
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 54))
		at := time.Unix(int64(r.Uint64())>>r.IntN(50), 0) // from milliseconds as seconds to what no program means
		for broker, m := range anyMessages(r, at) {
			post, event := requestHeader(m), eventHeader(m, "t")
			env, rest := environment(m)
			batch, err := json.Marshal(m.json())
			if err != nil {
				t.Fatal(err)
			}
			var line jsonMessage
			if err := json.Unmarshal(batch, &line); err != nil {
				t.Fatal(err)
			}
			ceTime := strings.Join(event["Ce-time"], "") //nolint:staticcheck // the sidecar writes it in this form
			times := []string{post.Get("Redeliver-Timestamp"), ceTime, event.Get("Redeliver-Timestamp"), line.Timestamp}
			for _, e := range env {
				if value, ok := strings.CutPrefix(e, "REDELIVER_TIMESTAMP="); ok {
					times = append(times, value)
				}
			}
			for _, text := range times {
				got, err := time.Parse(time.RFC3339, text)
				if text != "" && (err != nil || !stamps.MatchString(text) || !got.Equal(m.Timestamp.Truncate(time.Millisecond))) {
					t.Errorf("seed %d, %s: the time %s is written as %q", seed, broker, m.Timestamp, text)
				}
			}
			if year := m.Timestamp.UTC().Year(); year > 1 && year <= 9999 && slices.Contains(times, "") {
				t.Errorf("seed %d, %s: the time %s is missing in %q", seed, broker, m.Timestamp, times)
			}
			if m.Key != nil && unescape(t, post.Get(fieldKey)) != string(m.Key) {
				t.Errorf("seed %d, %s: the key %q is written as %q", seed, broker, m.Key, post.Get(fieldKey))
			}
			want := make(map[Header]int)
			for _, h := range m.Headers {
				want[Header{http.CanonicalHeaderKey(h.Name), h.Value}]++
			}
			posted, batched := make(map[Header]int), make(map[Header]int)
			for name, values := range post {
				if own, ok := strings.CutPrefix(name, ofHeader); ok {
					for _, value := range values {
						posted[Header{http.CanonicalHeaderKey(unescape(t, own)), unescape(t, value)}]++
					}
				}
			}
			for _, h := range line.Headers {
				name, err := bytetext.Parse(h.Name)
				if err != nil {
					t.Fatal(err)
				}
				value := string(h.Value)
				if h.Text != nil {
					value = *h.Text
				}
				batched[Header{http.CanonicalHeaderKey(string(name)), value}]++
			}
			if !maps.Equal(posted, want) || !maps.Equal(batched, want) {
				t.Errorf("seed %d, %s: the headers %+v are %+v in a post and %+v in a batch", seed, broker, want, posted, batched)
			}
			for _, e := range env {
				if strings.ContainsRune(e, 0) {
					t.Errorf("seed %d, %s: the environment has %q", seed, broker, e)
				}
			}
			if !json.Valid(rest) {
				t.Errorf("seed %d, %s: descriptor 3 has %q", seed, broker, rest)
			}
		}
	}
}

func unescape(t *testing.T, text string) string {
	t.Helper()
	plain, err := url.PathUnescape(text)
	if err != nil {
		t.Fatal(err)
	}
	return plain
}
