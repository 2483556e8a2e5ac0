package console_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka"
	"github.com/redeliver/redeliver/console"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/driver"
	"github.com/redeliver/redeliver/integration/brokers"
	"github.com/redeliver/redeliver/internal/kafkatest"
	"github.com/redeliver/redeliver/mq"
)

// shop is a DLQ on the Kafka of the run, and a console that shows it.
type shop struct {
	t      *testing.T
	topic  string
	dlq    string
	cl     *kgo.Client
	client *mq.Client
	queue  *flaky

	console *console.Console
	url     string
	server  *http.Server
	streams atomic.Int32 // pages that are kept up to date
	n       int          // dead letters that were written
}

// flaky is a DLQ whose broker can be made not to answer.
type flaky struct {
	deadletter.Queue
	silent atomic.Bool
}

// waiting is a DLQ whose group is paused and for which some messages wait, with commands about them.
type waiting struct{ *flaky }

func (waiting) Waiting(context.Context) ([]console.Level, error) {
	return []console.Level{{Name: "10s", Count: 31, Late: -1}, {Name: "10m", Count: 412, Late: -1}, {Name: "2h", Count: 1208, Late: -1, Overdue: 3 * time.Minute}}, nil
}

func (waiting) SendCommand(context.Context, deadletter.Command) (deadletter.Command, error) {
	return deadletter.Command{}, errSilent
}

func (waiting) Commands(context.Context) ([]deadletter.Command, error) {
	return []deadletter.Command{{
		ID: "7f3a", Kind: deadletter.CommandRelease, Who: "ann@ops", Why: "the bank is back, INC-1207",
		Created: time.Now().Add(-2 * time.Minute), Expires: time.Now().Add(deadletter.CommandLife), Filter: deadletter.WaitingFilter{Levels: []string{"2h"}},
	}}, nil
}

func (waiting) Pause(context.Context, string) error { return errSilent }

func (waiting) Resume(context.Context) error { return errSilent }

func (waiting) Paused(context.Context) (*redeliver.PauseMark, error) {
	return &redeliver.PauseMark{By: "ann@ops", At: time.Now().Add(-2 * time.Minute), Reason: "the bank is closed, INC-1207"}, nil
}

var errSilent = errors.New("dial tcp 10.0.0.7:9092: connect: connection refused")

func (f *flaky) Count(ctx context.Context) (int64, bool, error) {
	if f.silent.Load() {
		return 0, false, errSilent
	}
	return f.Queue.Count(ctx)
}

// newShop creates an empty DLQ. Tests open a console themselves.
func newShop(t *testing.T) *shop {
	t.Helper()
	return newShopOn(t, brokers.RequireKafka(t), "web-"+strings.ToLower(rand.Text()[:10]))
}

func newShopOn(t *testing.T, addrs []string, topic string) *shop {
	t.Helper()
	s := &shop{t: t, topic: topic}
	s.dlq = s.topic + ".billing.dlq"
	var err error
	if s.cl, err = kgo.NewClient(kgo.SeedBrokers(addrs...), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.UnknownTopicRetries(50), kgo.MetadataMinAge(20*time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.cl.Close)
	adm := kadm.NewClient(s.cl)
	topics := []string{s.topic, s.topic + ".billing.retry", s.dlq}
	forever, large := "-1", "2097152" // as redeliver makes those of its own
	for _, name := range topics {
		settings := map[string]*string{"retention.ms": &forever, "retention.bytes": &forever, "max.message.bytes": &large}
		if name == s.topic {
			settings = nil
		}
		kafkatest.MakeTopic(t, adm, 2, settings, name)
	}
	t.Cleanup(func() { _, _ = adm.DeleteTopics(context.WithoutCancel(t.Context()), append(topics, s.dlq+".state")...) })
	s.await("the topics have leaders", func() bool {
		ends, err := adm.ListEndOffsets(t.Context(), topics...)
		return err == nil && ends.Error() == nil && len(ends) == len(topics)
	})
	client, err := kafka.Open(t.Context(), kafka.Config{Brokers: addrs, Group: "billing", Sink: redeliver.SinkFunc(func(redeliver.Event) {})})
	if err != nil {
		t.Fatal(err)
	}
	s.client = client
	t.Cleanup(func() {
		if err := client.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	q, err := client.Operations().DeadLetters(t.Context(), mq.DeadLetterConfig{Topic: s.topic})
	if err != nil {
		t.Fatal(err)
	}
	s.queue = &flaky{Queue: q}
	t.Cleanup(func() { _ = q.Close() })
	return s
}

// open opens the console and serves it.
func (s *shop) open(cfg console.Config) *shop {
	s.t.Helper()
	cfg.Queues = append([]console.Queue{{Queue: s.queue}}, cfg.Queues...)
	cfg.Refresh = time.Second
	if cfg.Audit == nil {
		cfg.Audit = io.Discard
	}
	c, err := console.New(cfg)
	if err != nil {
		s.t.Fatal(err)
	}
	s.console = c
	s.t.Cleanup(c.Close)
	s.listen("127.0.0.1:0")
	s.t.Cleanup(func() { _ = s.server.Close() })
	return s
}

// listen serves the console until close.
func (s *shop) listen(address string) {
	s.t.Helper()
	ln, err := (&net.ListenConfig{}).Listen(s.t.Context(), "tcp", address)
	if err != nil {
		s.t.Fatal(err)
	}
	s.url = "http://" + ln.Addr().String() + "/"
	s.server = &http.Server{ReadHeaderTimeout: maxWait, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/events" {
			s.streams.Add(1)
			defer s.streams.Add(-1)
		}
		s.console.ServeHTTP(w, r)
	})}
	server := s.server
	go func() { _ = server.Serve(ln) }()
}

// letter is a dead letter to write.
type letter struct {
	id, key, body string
	kind, text    string // of the error
	reason        redeliver.Reason
	group         string // that its headers name; of this DLQ where it is empty
	ago           time.Duration
	attempts      int
	headers       []kgo.RecordHeader
	trace         string // traceparent of the last attempt
}

// put writes dead letters into the DLQ, as the adapter would.
func (s *shop) put(letters ...letter) {
	s.t.Helper()
	var recs []*kgo.Record
	for _, l := range letters {
		failed := time.Now().UTC().Add(-l.ago).Truncate(time.Millisecond)
		st := redeliver.State{
			ID: l.id, Origin: s.topic, Group: "billing", Attempts: max(1, l.attempts), Reason: l.reason, Error: l.text, ErrorType: l.kind, Trace: l.trace,
			FirstFailed: failed.Add(-time.Minute), LastFailed: failed,
			Source: redeliver.Source{Known: true, Partition: 1, Offset: int64(1000 + s.n), Timestamp: failed.Add(-time.Minute - time.Second)},
		}
		if l.group != "" {
			st.Group = l.group
		}
		if st.Reason == "" {
			st.Reason = redeliver.ReasonExhausted
		}
		rec := &kgo.Record{Topic: s.dlq, Partition: int32(s.n % 2), Key: []byte(l.key), Value: []byte(l.body), Timestamp: failed}
		rec.Headers = append(rec.Headers, l.headers...)
		rec.Headers = append(rec.Headers, kgo.RecordHeader{Key: kafka.UUIDHeader, Value: []byte(l.id)})
		for _, h := range driver.AppendStateHeaders(st, nil) {
			rec.Headers = append(rec.Headers, kgo.RecordHeader{Key: h.Name, Value: []byte(h.Value)})
		}
		recs = append(recs, rec)
		s.n++
	}
	if err := s.cl.ProduceSync(s.t.Context(), recs...).FirstErr(); err != nil {
		s.t.Fatal(err)
	}
}

// orders returns dead letters of two causes: n of one and a single one of the other.
func orders(n int) (letters []letter) {
	for i := range n {
		letters = append(letters, letter{
			id: fmt.Sprintf("o-%d", i), key: fmt.Sprintf("customer-%d", i%3), body: fmt.Sprintf(`{"order":%d,"sum":12345678901234567890}`, i),
			kind: "*bank.Error", text: fmt.Sprintf("card %d declined", 4711+i), attempts: 4, ago: time.Duration(n-i) * time.Minute,
		})
	}
	return append(letters, letter{id: "o-last", key: "customer-9", body: "{}", kind: "*bank.NotFoundError", text: "no such card", reason: redeliver.ReasonPermanent})
}

// await waits for a condition outside the browser.
func (s *shop) await(what string, ok func() bool) {
	s.t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.After(maxWait); !ok(); {
		select {
		case <-tick.C:
		case <-deadline:
			s.t.Fatalf("never: %s", what)
		}
	}
}

// page returns the address of a page about the DLQ.
func (s *shop) page(name string, more string) string {
	return s.url + name + "?dlq=" + s.dlq + more
}

// page2 returns the address of a page about the DLQ in another console.
func (s *shop) page2(of *shop, name string) string { return of.url + name + "?dlq=" + s.dlq }
