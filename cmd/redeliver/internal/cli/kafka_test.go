package cli_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka"
	"github.com/redeliver/redeliver/driver"
	"github.com/redeliver/redeliver/internal/kafkatest"
)

// The DLQ of most tests, and the retry topic of its group.
const (
	dlq  = "orders.billing.dlq"
	back = "orders.billing.retry"
)

// maxWait is the timeout for what must happen eventually. No test depends on how soon.
const maxWait = time.Minute

// day is when everything in the tests failed. The topics have no retention limit.
var day = time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)

// testKafka is an in-process Kafka with an origin, the retry topic of its group and a DLQ. Each topic has two
// partitions.
type testKafka struct {
	t      *testing.T
	url    string
	broker *kfake.Cluster
	cl     *kgo.Client
	adm    *kadm.Client
}

func newTestKafka(t *testing.T, opts ...kfake.Opt) *testKafka {
	t.Helper()
	c, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(1)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	addrs := c.ListenAddrs()
	cl, err := kgo.NewClient(kgo.SeedBrokers(addrs...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	s := &testKafka{t, "kafka://" + strings.Join(addrs, ","), c, cl, kadm.NewClient(cl)}
	s.topics("orders", back, dlq)
	return s
}

func (s *testKafka) topics(names ...string) {
	s.t.Helper()
	forever := "-1" // some records are years old
	for _, name := range names {
		if _, err := s.adm.CreateTopic(s.t.Context(), 2, 1, map[string]*string{"retention.ms": &forever}, name); err != nil {
			s.t.Fatal(err)
		}
	}
}

func (s *testKafka) put(recs ...*kgo.Record) {
	s.t.Helper()
	if err := s.cl.ProduceSync(s.t.Context(), recs...).FirstErr(); err != nil {
		s.t.Fatal(err)
	}
}

// dead returns a dead letter as the adapter would have written it.
func dead(n int, partition int32, st redeliver.State, headers ...kgo.RecordHeader) *kgo.Record {
	failed := day.Add(time.Duration(n) * time.Minute)
	st.Origin, st.Group, st.ID = "orders", "billing", fmt.Sprintf("order-%04d", n)
	st.Attempts, st.FirstFailed, st.LastFailed = 4, failed.Add(-7*time.Second), failed
	st.Source = redeliver.Source{Known: true, Partition: partition, Offset: int64(n), Timestamp: failed.Add(-8 * time.Second)}
	rec := &kgo.Record{
		Topic: dlq, Partition: partition, Key: fmt.Appendf(nil, "customer-%d", n%3), Value: fmt.Appendf(nil, `{"order":%d,"sum":12345678901234567890}`, n), Timestamp: failed,
		Headers: append(headers, kgo.RecordHeader{Key: kafka.UUIDHeader, Value: []byte(st.ID)}),
	}
	for _, h := range driver.AppendStateHeaders(st, nil) {
		rec.Headers = append(rec.Headers, kgo.RecordHeader{Key: h.Name, Value: []byte(h.Value)})
	}
	return rec
}

var (
	declined = redeliver.State{Reason: redeliver.ReasonExhausted, Error: "card 4711 declined", ErrorType: "*bank.Error", FirstError: "the bank is down"}
	noCard   = redeliver.State{Reason: redeliver.ReasonPermanent, Error: "no such card", ErrorType: "*bank.NotFoundError"}
)

// fill writes five dead letters of two causes to the DLQ.
func (s *testKafka) fill() {
	s.t.Helper()
	tenant := kgo.RecordHeader{Key: "tenant", Value: []byte("acme")}
	third := declined
	third.Error = "card 0815 declined"
	s.put(dead(1, 0, declined, tenant), dead(2, 1, declined), dead(3, 0, third), dead(4, 1, noCard, tenant), dead(5, 0, noCard))
}

// ids reads n records from the start of a topic, and counts them by id.
func (s *testKafka) ids(topic string, n int) map[string]int {
	s.t.Helper()
	seen := make(map[string]int)
	for _, r := range s.records(topic, n) {
		for _, h := range r.Headers {
			if h.Key == redeliver.HeaderID {
				seen[string(h.Value)]++
			}
		}
	}
	return seen
}

func (s *testKafka) records(topic string, n int) []*kgo.Record {
	s.t.Helper()
	recs, err := kafkatest.ReadFirst(s.t.Context(), s.cl.OptValue(kgo.SeedBrokers).([]string), topic, n)
	if err != nil {
		s.t.Fatal(err)
	}
	return recs
}

// written returns how many records were ever written to a topic, 0 if it does not exist.
func (s *testKafka) written(topic string) (n int64) {
	s.t.Helper()
	ends, err := s.adm.ListEndOffsets(s.t.Context(), topic)
	if err != nil {
		s.t.Fatal(err)
	}
	ends.Each(func(o kadm.ListedOffset) { n += max(0, o.Offset) })
	return n
}

// onWrite calls do before the broker handles any write to a topic.
func (s *testKafka) onWrite(do func(topic string)) {
	s.broker.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
		s.broker.KeepControl()
		for _, t := range req.(*kmsg.ProduceRequest).Topics {
			do(t.Topic)
		}
		return nil, nil, false
	})
}

// run runs the command on this Kafka.
func (s *testKafka) run(args ...string) ending { return s.with(call{}, args...) }

func (s *testKafka) with(c call, args ...string) ending {
	s.t.Helper()
	return c.run(s.t, append(args, "--broker", s.url)...)
}
