//go:build prove

package dropin_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/amqp"
	"github.com/redeliver/redeliver/adapters/kafka"
	"github.com/redeliver/redeliver/adapters/sqs"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/integration/brokers"
	"github.com/redeliver/redeliver/mq"
)

// The load of TestBatchesKeepKeysOverKills.
const (
	batchMessages = 1_000
	batchKeys     = 5
	batchSize     = 10
	batchRetries  = 4
	batchKills    = 3
)

// batchService is what a killed and restarted process does. It is passed in the environment.
type batchService struct {
	Broker      string          `json:"broker"`
	URL         string          `json:"url"`
	Topic       string          `json:"topic"`
	Addrs       []string        `json:"addrs"`
	Order       redeliver.Order `json:"order"`
	Own         bool            `json:"own"` // each message has an answer of its own
	Concurrency int             `json:"concurrency"`
	Log         string          `json:"log"` // the file of runs
}

const envBatchService = "REDELIVER_TEST_BATCH_SERVICE"

func (s batchService) policy() redeliver.Policy {
	return redeliver.Policy{
		MaxRetries: batchRetries, Backoff: redeliver.Fixed(200 * time.Millisecond), Levels: []time.Duration{200 * time.Millisecond},
		Order: s.Order, MaxCrashes: 100, Outage: redeliver.Outage{Off: true},
	}
}

// batchFails reports whether a message fails in an attempt: 1 % of them always, 5 % twice.
func batchFails(id string, attempt int) bool {
	n, _ := strconv.Atoi(id)
	return n%100 == 7 || n%20 == 3 && attempt <= 2
}

// batchMember is a message of a batch, on any broker.
type batchMember struct {
	id     string
	state  redeliver.State
	answer func(error) bool
}

// handle is the batch function. It logs each run before it answers.
func (s batchService) handle(log *os.File, all []batchMember) error {
	var lines strings.Builder
	for _, m := range all {
		fmt.Fprintf(&lines, "%s %d %t %d\n", m.id, m.state.Attempt(), !batchFails(m.id, m.state.Attempt()), os.Getpid())
	}
	if _, err := log.WriteString(lines.String()); err != nil { // one write, which appends
		return err
	}
	var failed error
	for _, m := range slices.Backward(all) {
		var err error
		if batchFails(m.id, m.state.Attempt()) {
			err = fmt.Errorf("message %s fails", m.id)
			failed = err
		}
		if s.Own {
			m.answer(err)
		}
	}
	if s.Own {
		return nil
	}
	return failed
}

// TestBatchService is the process that TestBatchesKeepKeysOverKills starts.
func TestBatchService(t *testing.T) {
	text := os.Getenv(envBatchService)
	if text == "" {
		return
	}
	var s batchService
	must(t, json.Unmarshal([]byte(text), &s))
	log, err := os.OpenFile(s.Log, os.O_APPEND|os.O_WRONLY, 0)
	must(t, err)
	ctx, stop := signal.NotifyContext(t.Context(), syscall.SIGTERM)
	defer stop()
	switch s.Broker {
	case "kafka":
		client, err := sarama.NewClient(s.Addrs, kafkaClientConfig())
		must(t, err)
		defer client.Close()
		batch := redeliver.BatchConfig{Size: batchSize, Timeout: 200 * time.Millisecond, Concurrency: s.Concurrency}
		must(t, kafka.ConsumeBatch(ctx, client, kafka.Config{Group: s.Topic, Policy: s.policy()}, []string{s.Topic}, batch, func(_ context.Context, b *kafka.Batch) error {
			var all []batchMember
			for _, m := range b.Messages {
				all = append(all, batchMember{string(m.Record.Value), m.State(), m.Answer})
			}
			return s.handle(log, all)
		}))
	case "rabbitmq":
		batch := redeliver.BatchConfig{Size: batchSize, Timeout: 200 * time.Millisecond, Concurrency: s.Concurrency}
		cfg := amqp.Config{URLs: []string{s.URL}, Policy: s.policy(), Key: amqp.KeyHeader("key")}
		must(t, amqp.ConsumeBatch(ctx, cfg, []string{s.Topic}, batch, func(_ context.Context, b *amqp.Batch) error {
			var all []batchMember
			for _, m := range b.Messages {
				all = append(all, batchMember{string(m.Record.Body), m.State(), m.Answer})
			}
			return s.handle(log, all)
		}))
	default:
		batch := redeliver.BatchConfig{Size: batchSize, Timeout: 200 * time.Millisecond, Concurrency: s.Concurrency}
		must(t, sqs.ConsumeBatch(ctx, s.sqs(), []string{s.Topic}, batch, func(_ context.Context, b *sqs.Batch) error {
			var all []batchMember
			for _, m := range b.Messages {
				all = append(all, batchMember{aws.ToString(m.Record.Body), m.State(), m.Answer})
			}
			return s.handle(log, all)
		}))
	}
}

func kafkaClientConfig() *sarama.Config {
	cfg := sarama.NewConfig()
	cfg.Consumer.Offsets.Initial = sarama.OffsetOldest
	cfg.Consumer.Group.Session.Timeout, cfg.Consumer.Group.Heartbeat.Interval = 6*time.Second, time.Second
	cfg.Producer.Return.Successes = true
	return cfg
}

func (s batchService) sqs() sqs.Config {
	cfg := awsConfig()
	return sqs.Config{AWS: &cfg, Endpoint: s.URL, Policy: s.policy(), VisibilityTimeout: 5 * time.Second}
}

func awsConfig() aws.Config {
	return aws.Config{Region: "eu-west-1", Credentials: credentials.NewStaticCredentialsProvider("x", "x", "")}
}

// A thousand messages of five keys, in batches of ten. Some fail twice, some always. Three processes are killed. The log of runs,
// which no part of redeliver writes, shows the order of each key, how often each message ran, and the DLQ has those that always fail.
func TestBatchesKeepKeysOverKills(t *testing.T) {
	t.Parallel()
	for _, s := range []batchService{
		{Broker: "kafka", Order: redeliver.OrderFirstAttempts}, {Broker: "kafka", Order: redeliver.OrderThroughRetries},
		{Broker: "rabbitmq", Order: redeliver.OrderThroughRetries}, {Broker: "sqs", Order: redeliver.OrderFirstAttempts},
	} {
		for concurrency, own := range map[int]bool{1: true, 4: false} {
			s.Concurrency, s.Own = concurrency, own
			t.Run(fmt.Sprintf("%s/%s/%d at once", s.Broker, s.Order, concurrency), func(t *testing.T) {
				t.Parallel()
				s.run(t)
			})
		}
	}
}

func (s batchService) run(t *testing.T) {
	s.Log = filepath.Join(t.TempDir(), "runs")
	must(t, os.WriteFile(s.Log, nil, 0o644))
	s.Topic = "batch-kills-" + strings.ToLower(rand.Text()[:8])
	if s.Broker == "sqs" {
		s.Topic += ".fifo"
	}
	s.put(t)
	began := time.Now()
	p := s.start(t)
	for kill := range batchKills {
		s.awaitRuns(t, (kill+1)*batchMessages/(batchKills+2))
		must(t, p.Process.Kill())
		_ = p.Wait()
		p = s.start(t)
	}
	s.awaitEnd(t)
	must(t, p.Process.Signal(syscall.SIGTERM))
	if err := p.Wait(); err != nil {
		t.Errorf("the last process: %v", err)
	}
	t.Logf("report: %d runs of %d messages in %s", len(s.runs(t)), batchMessages, time.Since(began).Round(100*time.Millisecond))
	s.check(t)
}

// batchRun is a line of the log.
type batchRun struct {
	id      string
	attempt int
	ok      bool
}

func (s batchService) runs(t *testing.T) (all []batchRun) {
	t.Helper()
	text, err := os.ReadFile(s.Log)
	must(t, err)
	for line := range strings.Lines(string(text)) {
		var r batchRun
		var pid int
		if _, err := fmt.Sscanf(line, "%s %d %t %d\n", &r.id, &r.attempt, &r.ok, &pid); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		all = append(all, r)
	}
	return all
}

func (s batchService) awaitRuns(t *testing.T, n int) {
	t.Helper()
	await(t, fmt.Sprintf("%d runs", n), func() bool { return len(s.runs(t)) >= n })
}

// awaitEnd waits until each message has succeeded in its last run or is in the DLQ.
func (s batchService) awaitEnd(t *testing.T) {
	t.Helper()
	await(t, "all messages end", func() bool {
		last := map[string]bool{}
		for _, r := range s.runs(t) {
			last[r.id] = r.ok
		}
		ended := 0
		for _, ok := range last {
			if ok {
				ended++
			}
		}
		return ended >= batchMessages*99/100 // those that always fail end in the DLQ
	})
	await(t, "the DLQ has the messages that always fail", func() bool { return len(s.dead(t)) >= batchMessages/100 })
}

func await(t *testing.T, what string, done func() bool) {
	t.Helper()
	late := time.After(5 * time.Minute)
	for !done() {
		select {
		case <-late:
			t.Fatalf("not within 5m: %s", what)
		case <-time.After(300 * time.Millisecond):
		}
	}
}

// check reads the log.
func (s batchService) check(t *testing.T) {
	keeps := s.Order == redeliver.OrderThroughRetries || s.Broker == "sqs" // later messages of a key wait for one that has failed
	runs := map[string]int{}
	var last [batchKeys]int // the position of the last success of each key
	position := map[string]int{}
	for i, r := range s.runs(t) {
		runs[r.id]++
		if r.ok {
			position[r.id] = i
		}
	}
	for n := range batchMessages {
		id := strconv.Itoa(n)
		always := n%100 == 7
		most := batchRetries + 1 + 2*batchKills
		if keeps {
			most += 2 * (batchRetries + 1) // runs in vain, with earlier messages of its key that failed
		}
		if runs[id] == 0 || runs[id] > most {
			t.Errorf("message %s ran %d times, want 1 to %d", id, runs[id], most)
		}
		if always || !keeps && (!s.Own || batchFails(id, 1)) { // a message that has failed is overtaken
			continue
		}
		if at, ok := position[id]; !ok || at < last[n%batchKeys] {
			t.Errorf("message %s succeeded last at %d, an earlier one of its key at %d", id, at, last[n%batchKeys])
		}
		last[n%batchKeys] = max(last[n%batchKeys], position[id])
	}
	dead := s.dead(t)
	for n := range batchMessages {
		if id := strconv.Itoa(n); dead[id] != (n%100 == 7) {
			t.Errorf("message %s is in the DLQ: %t", id, dead[id])
		}
	}
}

func (s batchService) start(t *testing.T) *exec.Cmd {
	t.Helper()
	text, err := json.Marshal(s)
	must(t, err)
	c := exec.Command(os.Args[0], "-test.run", "^TestBatchService$", "-test.timeout", "10m")
	c.Env = append(os.Environ(), envBatchService+"="+string(text))
	c.Stdout, c.Stderr = os.Stdout, os.Stderr
	must(t, c.Start())
	t.Cleanup(func() { _ = c.Process.Kill() })
	return c
}

// put creates the topic or queue and writes the messages.
func (s *batchService) put(t *testing.T) {
	t.Helper()
	switch s.Broker {
	case "kafka":
		s.Addrs = brokers.RequireKafka(t)
		admin, err := sarama.NewClusterAdmin(s.Addrs, kafkaClientConfig())
		must(t, err)
		defer admin.Close()
		must(t, admin.CreateTopic(s.Topic, &sarama.TopicDetail{NumPartitions: 2, ReplicationFactor: 1}, false))
		producer, err := sarama.NewSyncProducer(s.Addrs, kafkaClientConfig())
		must(t, err)
		defer producer.Close()
		var all []*sarama.ProducerMessage
		for n := range batchMessages {
			all = append(all, &sarama.ProducerMessage{Topic: s.Topic, Key: sarama.StringEncoder(key(n)), Value: sarama.StringEncoder(strconv.Itoa(n))})
		}
		must(t, producer.SendMessages(all))
	case "rabbitmq":
		s.URL = brokers.RequireRabbitMQ(t).URL()
		conn, err := amqp091.Dial(s.URL)
		must(t, err)
		defer conn.Close()
		ch, err := conn.Channel()
		must(t, err)
		_, err = ch.QueueDeclare(s.Topic, true, false, false, false, amqp091.Table{
			amqp091.QueueTypeArg: amqp091.QueueTypeQuorum, amqp091.SingleActiveConsumerArg: true, "x-delivery-limit": int32(1_000_000),
		})
		must(t, err)
		must(t, ch.Confirm(false))
		var last *amqp091.DeferredConfirmation
		for n := range batchMessages {
			last, err = ch.PublishWithDeferredConfirm("", s.Topic, true, false, amqp091.Publishing{
				Body: []byte(strconv.Itoa(n)), DeliveryMode: amqp091.Persistent, Headers: amqp091.Table{"key": key(n)},
			})
			must(t, err)
		}
		if !last.Wait() {
			t.Fatal("the broker refused a message")
		}
	default:
		s.URL = brokers.RequireSQS(t)
		api := awssqs.NewFromConfig(awsConfig(), func(o *awssqs.Options) { o.BaseEndpoint = &s.URL })
		out, err := api.CreateQueue(t.Context(), &awssqs.CreateQueueInput{QueueName: &s.Topic, Attributes: map[string]string{"FifoQueue": "true"}})
		must(t, err)
		for n := 0; n < batchMessages; n += 10 {
			var entries []types.SendMessageBatchRequestEntry
			for i := n; i < n+10; i++ {
				id := strconv.Itoa(i)
				entries = append(entries, types.SendMessageBatchRequestEntry{
					Id: aws.String("m" + id), MessageBody: &id, MessageGroupId: aws.String(key(i)), MessageDeduplicationId: &id,
				})
			}
			sent, err := api.SendMessageBatch(t.Context(), &awssqs.SendMessageBatchInput{QueueUrl: out.QueueUrl, Entries: entries})
			must(t, err)
			if len(sent.Failed) > 0 {
				t.Fatal(errors.New("SQS refused a message"))
			}
		}
	}
}

func key(n int) string { return "key-" + strconv.Itoa(n%batchKeys) }

var deadMu sync.Mutex // clients that read a DLQ open one after another

// dead returns the messages in the DLQ.
func (s batchService) dead(t *testing.T) map[string]bool {
	t.Helper()
	deadMu.Lock()
	defer deadMu.Unlock()
	q, end := s.openDead(t)
	defer end()
	defer func() { _ = q.Close() }()
	found := map[string]bool{}
	for m, err := range deadletter.Browse(t.Context(), q, deadletter.Filter{}) {
		must(t, err)
		found[string(m.Body)] = true
	}
	return found
}

// openDead opens the DLQ. end closes its client.
func (s batchService) openDead(t *testing.T) (q deadletter.Queue, end func()) {
	t.Helper()
	switch s.Broker {
	case "kafka":
		c, err := kafka.Open(t.Context(), kafka.Config{Brokers: s.Addrs, Group: s.Topic, Policy: s.policy()})
		must(t, err)
		q, err = c.Operations().DeadLetters(t.Context(), mq.DeadLetterConfig{Topic: s.Topic})
		must(t, err)
		return q, func() { _ = c.Close(context.Background()) }
	case "rabbitmq":
		c, err := amqp.Open(t.Context(), amqp.Config{URLs: []string{s.URL}})
		must(t, err)
		q, err = c.Operations().DeadLetters(t.Context(), mq.DeadLetterConfig{Topic: s.Topic})
		must(t, err)
		return q, func() { _ = c.Close(context.Background()) }
	default:
		c, err := sqs.Open(t.Context(), s.sqs())
		must(t, err)
		q, err = c.Operations().DeadLetters(t.Context(), mq.DeadLetterConfig{Topic: s.Topic})
		must(t, err)
		return q, func() { _ = c.Close(context.Background()) }
	}
}
