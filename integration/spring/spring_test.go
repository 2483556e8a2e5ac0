//go:build prove

// Package spring_test runs a service in Java, with the real Spring Kafka, and redeliver on the same topics and DLQs.
package spring_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka"
	"github.com/redeliver/redeliver/integration/brokers"
	"github.com/redeliver/redeliver/integration/fidelity"
	"github.com/redeliver/redeliver/integration/programs"
	"github.com/redeliver/redeliver/internal/kafkatest"
	"github.com/redeliver/redeliver/mq"
)

var errDeclined = errors.New("declined by the bank")

// world is a broker, with topics and groups that only this test uses, and the command.
type world struct {
	addrs  []string
	name   string // begins every topic's
	group  string // of the service
	binary string
	kgo    *kgo.Client
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{addrs: brokers.RequireKafka(t), name: fidelity.Unique("spring")}
	w.group = w.name + "-billing"
	dir, err := programs.Build("", "./cmd/redeliver")
	if err != nil {
		t.Fatal(err)
	}
	w.binary = filepath.Join(dir, "redeliver")
	w.kgo = w.client(t)
	// Spring creates its retry topics, but not the recoverer's DLT.
	topics := []string{w.topic("retryable"), w.topic("plain"), w.topic("plain-dlt"), w.topic("moving"), w.topic("shared")}
	admin := kadm.NewClient(w.kgo)
	for _, topic := range topics {
		kafkatest.MakeTopic(t, admin, 2, nil, topic)
	}
	return w
}

func (w *world) topic(name string) string { return w.name + "-" + name }

func (w *world) client(t *testing.T, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append(opts, kgo.SeedBrokers(w.addrs...), kgo.UnknownTopicRetries(50), kgo.RecordPartitioner(kgo.ManualPartitioner()))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

// put writes orders, all of them to partition 1.
func (w *world) put(t *testing.T, topic string, ids ...string) {
	t.Helper()
	for _, id := range ids {
		rec := &kgo.Record{
			Topic: w.topic(topic), Partition: 1, Key: []byte("key " + id), Value: []byte("order " + id),
			Headers: []kgo.RecordHeader{{Key: "tenant", Value: []byte("acme")}},
		}
		if err := w.kgo.ProduceSync(t.Context(), rec).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
}

// awaitRecords waits until a topic has n records.
func (w *world) awaitRecords(t *testing.T, topic string, n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), maxWait)
	defer cancel()
	if _, err := kafkatest.ReadFirst(ctx, w.addrs, w.topic(topic), n); err != nil {
		t.Fatal(err)
	}
}

func (w *world) command(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), w.binary, args...)
	cmd.Env = append(os.Environ(), "REDELIVER_BROKER=kafka://"+strings.Join(w.addrs, ","))
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("redeliver %s: %v\nstdout: %s\nstderr: %s", strings.Join(args, " "), err, out.String(), errs.String())
	}
	return out.String()
}

// about returns the command's flags for a topic of Spring's.
func (w *world) about(verb, dlq, topic string, more ...string) []string {
	return append([]string{"dlq", verb, w.topic(dlq), "--topic", w.topic(topic), "--group", w.group}, more...)
}

// row has the fields of a dead letter in the command's output that the test checks.
type row struct {
	ID        string `json:"id"`
	Count     int    `json:"count"` // of a cause
	Origin    string `json:"origin"`
	Group     string `json:"group"`
	Reason    string `json:"reason"`
	ErrorType string `json:"error_type"`
	Error     string `json:"error"`
	Filler    string `json:"filler"`
	Attempts  int    `json:"attempts"`
	Replays   int    `json:"replays"`
	Mismatch  string `json:"mismatch"`
	BodyText  string `json:"body_text"`
	Source    struct {
		Partition int       `json:"partition"`
		Offset    int       `json:"offset"`
		Timestamp time.Time `json:"timestamp"`
	} `json:"source"`
	Headers []struct {
		Name string `json:"name"`
	} `json:"headers"`
}

// place returns the id of a record that came without one.
func (r *row) place(topic string) string {
	return fmt.Sprintf("%s/%d/%d@%d", topic, r.Source.Partition, r.Source.Offset, r.Source.Timestamp.UnixMilli())
}

func (w *world) rows(t *testing.T, args ...string) (all []row) {
	t.Helper()
	out := w.command(t, append(args, "--output", "json")...)
	if err := json.Unmarshal([]byte(out), &all); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return all
}

// redeliver runs beside a Java service that uses Spring Kafka, and then replaces it. All steps use one service, because
// it takes long to start.
func TestAServiceOfSpringKafkaSharesTopicsAndDLQs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ours := w.name + "-ours"
	client := w.open(t, kafka.Config{Group: ours, SpringHeaders: true})
	fidelity.Consume(t, w.topic("shared"), client.Subscriber(), client.Close, func(*message.Message) error {
		return redeliver.Permanent(errDeclined)
	})
	dlq := w.topic("shared") + "." + ours + ".dlq"
	s := start(t, "brokers="+strings.Join(w.addrs, ","), "group="+w.group, "ours="+dlq,
		"retryable="+w.topic("retryable"), "plain="+w.topic("plain"), "moving="+w.topic("moving"))
	w.put(t, "retryable", "a", "b")
	w.put(t, "plain", "c", "d")
	w.put(t, "moving", "e")
	w.put(t, "shared", "f", "g")

	t.Run("a listener reads our DLQ", func(t *testing.T) { w.isReadBySpring(t, s, ours, dlq) })
	t.Run("a DLT of RetryableTopic is understood", func(t *testing.T) {
		w.isUnderstood(t, "retryable-dlt", "retryable", 3, []string{"a", "b"})
	})
	t.Run("a DLT of the recoverer is understood", func(t *testing.T) {
		w.isUnderstood(t, "plain-dlt", "plain", 2, []string{"c", "d"})
	})
	t.Run("a replay to the retry topic that fails comes back as the same", func(t *testing.T) {
		w.comesBack(t, "retryable-dlt", "retryable", "retryable-retry")
	})
	t.Run("a replay to the origin that fails comes back as the same", func(t *testing.T) {
		w.comesBack(t, "plain-dlt", "plain", "plain")
	})
	w.awaitRecords(t, "moving-retry", 1)
	s.stopFailing(t)
	t.Run("a replay to the retry topic arrives", func(t *testing.T) {
		w.arrives(t, s, "retryable-dlt", "retryable", "retryable-retry", []string{"a", "b"})
	})
	t.Run("a replay to the origin arrives", func(t *testing.T) {
		w.arrives(t, s, "plain-dlt", "plain", "plain", []string{"c", "d"})
	})
	s.stop()
	t.Run("a group moves and takes its retries along", w.moves)
}

func (w *world) open(t *testing.T, cfg kafka.Config) *mq.Client {
	t.Helper()
	cfg.Brokers, cfg.Sink = w.addrs, redeliver.SinkFunc(func(redeliver.Event) {})
	client, err := kafka.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// isReadBySpring checks that a listener finds the same headers in our DLQ as in Spring's.
func (w *world) isReadBySpring(t *testing.T, s *service, group, dlq string) {
	for _, got := range s.await(t, "dead", 2) { // redeliver gives them up side by side
		i := strings.Index("fg", strings.TrimPrefix(got[0], "order "))
		id := string("fg"[max(i, 0)])
		timestamp := got[4]
		if len(timestamp) != len("1700000000000") {
			t.Errorf("%s was written at %s", id, timestamp)
		}
		want := []string{
			"order " + id, w.topic("shared"), "1", fmt.Sprint(i), timestamp, "NoTimestampType", group,
			"*errors.errorString", errDeclined.Error(), "*errors.errorString: " + errDeclined.Error(),
		}
		if fmt.Sprintf("%q", got) != fmt.Sprintf("%q", want) {
			t.Errorf("the listener got\n%q, want\n%q", got, want)
		}
	}
	for _, r := range w.rows(t, "dlq", "show", dlq) { // ours is ours, as without them
		if r.Filler != "redeliver" || r.Error != errDeclined.Error() || fmt.Sprint(r.Headers) != "[{tenant}]" {
			t.Errorf("the DLQ has %+v", r)
		}
	}
}

// isUnderstood checks that the command shows a DLT of Spring's like a DLQ of redeliver's.
func (w *world) isUnderstood(t *testing.T, dlq, topic string, attempts int, ids []string) {
	w.awaitRecords(t, dlq, len(ids))
	got := w.rows(t, w.about("show", dlq, topic)...)
	if len(got) != len(ids) {
		t.Fatalf("the DLT has %+v", got)
	}
	for _, r := range got {
		i := max(0, slices.Index(ids, strings.TrimPrefix(r.BodyText, "order ")))
		if r.Filler != "spring-kafka" || r.Origin != w.topic(topic) || r.Group != w.group || r.Mismatch != "" || r.Reason != "exhausted" ||
			r.ErrorType != "java.lang.IllegalStateException" || !strings.Contains(r.Error, "declined: order "+ids[i]) ||
			r.Attempts != attempts || r.Replays != 0 || r.Source.Partition != 1 || r.Source.Offset != i ||
			r.BodyText != "order "+ids[i] || fmt.Sprint(r.Headers) != "[{tenant}]" || r.ID != r.place(w.topic(topic)) {
			t.Errorf("order %s is %+v", ids[i], r)
		}
	}
	causes := w.rows(t, w.about("groups", dlq, topic)...)
	n := 0
	for _, c := range causes {
		n += c.Count
	}
	if n != len(ids) {
		t.Errorf("the causes are %+v", causes)
	}
}

// comesBack checks that the command recognises a message that was replayed too early and dead-lettered again.
func (w *world) comesBack(t *testing.T, dlq, topic, back string) {
	first := w.rows(t, w.about("show", dlq, topic)...)
	id := first[slices.IndexFunc(first, func(r row) bool { return r.Source.Offset == 0 })].ID
	w.command(t, w.about("replay", dlq, topic, "--replay-to", w.topic(back), "--id", id, "--note", "too early", "--yes")...)
	w.awaitRecords(t, dlq, 3)
	got := w.rows(t, w.about("show", dlq, topic, "--id", id)...)
	if len(got) != 1 || got[0].Replays != 1 || got[0].Mismatch != "" || got[0].Source.Offset != 0 || fmt.Sprint(got[0].Headers) != "[{tenant}]" {
		t.Errorf("it is %+v", got)
	}
	if n := len(w.rows(t, w.about("show", dlq, topic)...)); n != 2 {
		t.Errorf("%d are in the DLT, want 2", n)
	}
}

// arrives checks that the service gets replayed messages.
func (w *world) arrives(t *testing.T, s *service, dlq, topic, back string, ids []string) {
	w.command(t, w.about("replay", dlq, topic, "--replay-to", w.topic(back), "--canary", "1", "--watch", "1ms", "--note", "it is fixed", "--yes")...)
	handled := make(map[string]bool)
	for _, got := range s.await(t, "handled", len(ids)) {
		if got[0] != w.topic(back) || !strings.Contains(" "+got[3]+" ", " tenant ") || strings.Contains(got[3], "exception") {
			t.Errorf("handled %q", got)
		}
		handled[got[1]+" "+got[2]] = true
	}
	for _, id := range ids {
		if !handled[fmt.Sprintf("key %s order %s", id, id)] {
			t.Errorf("order %s was not handled: %v", id, handled)
		}
	}
	if got := w.rows(t, w.about("show", dlq, topic)...); len(got) != 0 {
		t.Errorf("the DLT has %+v", got)
	}
}

// moves replaces the service with redeliver, in the same group on the same topic. It replays the messages that wait on
// Spring's retry topic.
func (w *world) moves(t *testing.T) {
	client := w.open(t, kafka.Config{Group: w.group})
	handled := make(chan *message.Message, 10)
	fidelity.Consume(t, w.topic("moving"), client.Subscriber(), client.Close, func(msg *message.Message) error {
		handled <- msg
		return nil
	})
	w.put(t, "moving", "new")
	first := receive(t, handled)
	if string(first.Payload) != "order new" { // what Spring has committed is not read again
		t.Errorf("the first message is %q", first.Payload)
	}
	readBy := []string{"--read-by", w.group + "-retry"}
	got := w.rows(t, w.about("show", "moving-retry", "moving", readBy...)...)
	if len(got) != 1 || got[0].Attempts != 1 || got[0].Reason != "" || got[0].Mismatch != "" || !strings.Contains(got[0].Error, "declined: order e") {
		t.Fatalf("on the retry topic there are %+v", got)
	}
	w.command(t, w.about("replay", "moving-retry", "moving", append(readBy, "--note", "we move", "--yes")...)...)
	if msg := receive(t, handled); string(msg.Payload) != "order e" || fmt.Sprint(msg.Metadata) != "map[tenant:acme]" {
		t.Errorf("the handler gets %q with %v", msg.Payload, msg.Metadata)
	}
	if got := w.rows(t, w.about("show", "moving-retry", "moving", readBy...)...); len(got) != 0 {
		t.Errorf("on the retry topic there are still %+v", got)
	}
	// None of the messages that Spring has handled are left.
	if got := w.rows(t, w.about("show", "retryable-retry", "retryable", readBy...)...); len(got) != 0 {
		t.Errorf("on the other retry topic there are %+v", got)
	}
	if got := w.rows(t, w.about("show", "retryable-retry", "retryable")...); len(got) == 0 {
		t.Error("without --read-by nothing is on the other retry topic")
	}
}

func receive(t *testing.T, from <-chan *message.Message) *message.Message {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), maxWait)
	defer cancel()
	select {
	case msg := <-from:
		return msg
	case <-ctx.Done():
		t.Fatal("no message came")
		return nil
	}
}
