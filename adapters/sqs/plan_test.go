package sqs

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/sqs/internal/api"
	"github.com/redeliver/redeliver/deadletter"
)

var update = flag.Bool("update", false, "rewrite the golden texts")

// The test compares the texts of plans. The flag -update rewrites them.
func TestPlans(t *testing.T) {
	for name, c := range map[string]struct {
		topic  string
		cfg    Config
		before func(b *bubble)
	}{
		"new": {topic: "orders", cfg: Config{Policy: redeliver.Policy{MaxRetries: 5, Immediate: 1, Backoff: redeliver.Steps(500*time.Millisecond, 95*time.Second, 20*time.Minute, 2*time.Hour)}}},
		"own": {topic: "arn:aws:sqs:eu-west-1:1:orders", cfg: Config{}, before: func(b *bubble) {
			b.Create("orders", "RedrivePolicy", `{"deadLetterTargetArn":"arn:aws:sqs:eu-west-1:1:orders-failed","maxReceiveCount":"5"}`, "DelaySeconds", "10", "MaximumMessageSize", "1048576", "MessageRetentionPeriod", "345600")
			b.put("orders", "a", "v", "", nil)
		}},
		"fifo": {topic: "orders.fifo", cfg: Config{Policy: redeliver.Policy{Backoff: redeliver.RocketMQ()}}, before: func(b *bubble) {
			b.Create("orders.fifo", "MessageRetentionPeriod", "345600")
			b.Create("orders-dlq.fifo", "MessageRetentionPeriod", "345600")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bubble) {
				if c.before != nil {
					c.before(b)
				}
				client := b.client(b.T, c.cfg)
				before := len(b.Queues())
				plan, err := client.Plan(b.Context(), c.topic)
				if err != nil {
					b.Fatal(err)
				}
				if len(b.Queues()) != before {
					b.Error("the plan has created a queue")
				}
				if _, err := brokerOf(client).provisionedLayout(b.Context(), c.topic); err != nil {
					b.Fatal(err)
				}
				for _, q := range plan.Places {
					if b.Attributes(q.Name) == nil {
						b.Errorf("%s was planned and does not exist", q.Name)
					}
				}
				golden(b.T, "plan-"+name+".txt", plan.String())
			})
		})
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := errors.Join(os.MkdirAll("testdata", 0o755), os.WriteFile(file, []byte(got), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s:\n%s\nwant\n%s", name, got, want)
	}
}

// A queue is refused if it would cut retries short or lose waiting messages.
func TestUnsuitableQueuesAreRefused(t *testing.T) {
	redrive := func(to string, most string) string {
		return `{"deadLetterTargetArn":"arn:aws:sqs:eu-west-1:1:` + to + `","maxReceiveCount":` + most + `}`
	}
	for name, c := range map[string]struct {
		queue  string
		cfg    Config
		before func(b *bubble)
		want   []string
	}{
		"few receives":        {"orders", Config{}, func(b *bubble) { b.Create("orders", "RedrivePolicy", redrive("x", "2")) }, []string{"queue orders"}},
		"enough":              {"orders", Config{}, func(b *bubble) { b.Create("orders", "RedrivePolicy", redrive("x", "3")) }, nil},
		"few on FIFO":         {"orders.fifo", Config{}, func(b *bubble) { b.Create("orders.fifo", "RedrivePolicy", redrive("x.fifo", "6")) }, []string{"queue orders.fifo"}},
		"enough FIFO":         {"orders.fifo", Config{}, func(b *bubble) { b.Create("orders.fifo", "RedrivePolicy", redrive("x.fifo", "7")) }, nil},
		"another kind":        {"orders.fifo", Config{}, func(b *bubble) { b.Create("orders.fifo", "RedrivePolicy", redrive("x", "1000")) }, []string{"queue orders.fifo"}},
		"retention":           {"orders", Config{Policy: steps(1, time.Hour)}, func(b *bubble) { b.Create("orders", "MessageRetentionPeriod", "600") }, []string{"queue orders"}},
		"no hop is possible":  {"orders", Config{}, func(b *bubble) { b.Create("orders", "MessageRetentionPeriod", "59") }, []string{"queue orders"}},
		"retention of a FIFO": {"orders.fifo", Config{Policy: steps(3, time.Hour)}, func(b *bubble) { b.Create("orders.fifo", "MessageRetentionPeriod", "7200") }, []string{"queue orders.fifo"}},
		"a DLQ of 4 days":     {"orders", Config{}, func(b *bubble) { b.Create("orders-dlq", "MessageRetentionPeriod", "345600") }, nil},
		"as asked":            {"orders", Config{DLQ: deadletter.Config{Retention: 96 * time.Hour}}, func(b *bubble) { b.Create("orders-dlq", "MessageRetentionPeriod", "345600") }, nil},
		"not as asked":        {"orders", Config{DLQ: deadletter.Config{Retention: 24 * time.Hour}}, func(b *bubble) { b.Create("orders-dlq", "MessageRetentionPeriod", "345600") }, []string{"queue orders-dlq"}},
		"a small DLQ": {"orders", Config{}, func(b *bubble) {
			b.Create("orders", "MaximumMessageSize", "262144")
			b.Create("orders-dlq", "MaximumMessageSize", "1024")
		}, []string{"queue orders-dlq"}},
		"a DLQ's DLQ":    {"orders", Config{}, func(b *bubble) { b.Create("orders-dlq", "RedrivePolicy", redrive("x", "10")) }, []string{"queue orders-dlq"}},
		"notes of a DLQ": {"orders.fifo", Config{}, func(b *bubble) { b.Create("orders-place", "RedrivePolicy", redrive("x", "10")) }, []string{"queue orders-place"}},
		"missing":        {"orders", Config{NoProvisioning: true}, func(b *bubble) { b.Create("orders") }, []string{"queue orders-suspects", "queue orders-dlq"}},
		"missing URL":    {"http://sqs.test/1/orders", Config{}, func(*bubble) {}, []string{"queue orders"}},
		"a region":       {"arn:aws:sqs:eu-north-1:1:orders", Config{}, func(*bubble) {}, []string{"queue orders"}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bubble) {
				c.before(b)
				client := b.client(b.T, c.cfg)
				if name == "a region" {
					brokerOf(client).cfg.Endpoint = "" // another server accepts any region
				}
				_, err := client.Plan(b.Context(), c.queue)
				wantProblems(b.T, name, err, c.want)
				_, again := client.Subscriber().Subscribe(b.Context(), c.queue)
				if c.want != nil && (again == nil || again.Error() != err.Error()) {
					b.Errorf("Plan returns %v, Subscribe %v", err, again)
				}
				b.close(client)
			})
		})
	}
}

// A queue that redeliver creates points to redeliver's DLQ. A DLQ keeps its messages for as long as SQS can, and is
// encrypted like the origin.
func TestAttributesOfCreatedQueues(t *testing.T) {
	inBubble(t, func(b *bubble) {
		c := b.client(b.T, Config{QueueAttributes: map[string]string{"KmsMasterKeyId": "alias/mine", "VisibilityTimeout": "60", "SqsManagedSseEnabled": "false"}})
		if err := c.Subscriber().SubscribeInitialize("orders.fifo"); err != nil {
			b.Fatal(err)
		}
		for name, want := range map[string]map[string]string{
			"orders.fifo":          {"FifoQueue": "true", "KmsMasterKeyId": "alias/mine", "VisibilityTimeout": "60", "RedrivePolicy": `{"deadLetterTargetArn":"arn:aws:sqs:eu-west-1:1:orders-dlq.fifo","maxReceiveCount":1000}`},
			"orders-dlq.fifo":      {"FifoQueue": "true", "KmsMasterKeyId": "alias/mine", "MessageRetentionPeriod": "1209600", "RedrivePolicy": ""},
			"orders-suspects.fifo": {"FifoQueue": "true", "KmsMasterKeyId": "alias/mine", "MessageRetentionPeriod": "1209600"},
			"orders-place":         {"FifoQueue": "", "KmsMasterKeyId": "alias/mine", "MessageRetentionPeriod": "1209600", "RedrivePolicy": ""},
		} {
			for k, v := range want {
				if got := b.Attributes(name)[k]; got != v {
					b.Errorf("%s has %s=%s, want %s", name, k, got, v)
				}
			}
		}
		b.close(c)
		if _, err := c.Plan(b.Context(), "orders"); !errors.Is(err, api.ErrClosed) {
			b.Errorf("Plan of a closed client returns %v", err)
		}
		if err := c.Publisher().Publish("orders"); !errors.Is(err, api.ErrClosed) {
			b.Errorf("Publish of a closed client returns %v", err)
		}
	})
}

// With Discard there is no DLQ, and nothing points to one. A message that is not retried is reported and deleted.
func TestDiscardCreatesNoDLQ(t *testing.T) {
	for _, queue := range []string{"orders", "orders.fifo"} {
		t.Run(queue, func(t *testing.T) {
			inBubble(t, func(b *bubble) {
				c := b.start("p", queue, Config{DLQ: deadletter.Config{Discard: true}, Policy: steps(1, time.Second)}, failHandler)
				b.put(queue, "a", "body", "g", nil)
				b.advance(time.Minute)
				discarded := eventsOf[redeliver.Discarded](b)
				if len(discarded) != 1 || discarded[0].State.Reason != redeliver.ReasonExhausted || !errors.Is(discarded[0].Err, errHandler) || len(eventsOf[redeliver.DeadLettered](b)) > 0 {
					b.Errorf("discarded: %+v", discarded)
				}
				p, err := c.Plan(b.Context(), queue)
				if want := len(queuesOf(queue)) - 1; err != nil || len(p.Places) != want || len(b.Queues()) != want || len(p.OperatorPlaces) > 0 || len(p.OperatorRights) > 0 || !slices.ContainsFunc(p.Notes, func(n string) bool { return strings.Contains(n, "there is no DLQ") }) {
					b.Errorf("the plan is %+v, %v; the queues %q", p, err, b.Queues())
				}
				for _, name := range b.Queues() {
					if policy, n := b.Attributes(name)["RedrivePolicy"], len(b.Messages(name)); policy != "" || n > 0 {
						b.Errorf("%s has the RedrivePolicy %q and %d messages", name, policy, n)
					}
				}
				b.close(c)
			})
		})
	}
}

func TestDiscardIsRefusedWithDLQSettings(t *testing.T) {
	inBubble(t, func(b *bubble) {
		_, err := Open(b.Context(), b.config(Config{DLQ: deadletter.Config{Discard: true, Retention: time.Hour}, Names: Names{DLQ: func(string) string { return "dead" }}}))
		if err == nil || !strings.Contains(err.Error(), "DLQ.Retention") || !strings.Contains(err.Error(), "Names.DLQ") {
			b.Errorf("opened: %v", err)
		}
	})
}

func TestOpenWithoutARegion(t *testing.T) {
	t.Setenv("AWS_REGION", "")
	t.Setenv("AWS_DEFAULT_REGION", "")
	t.Setenv("AWS_CONFIG_FILE", filepath.Join(t.TempDir(), "none"))
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	if _, err := Open(t.Context(), Config{}); !errors.Is(err, redeliver.ErrConfig) || !strings.Contains(err.Error(), "AWS_REGION") {
		t.Errorf("opened without a region: %v", err)
	}
	if _, err := Open(t.Context(), Config{Endpoint: "http://127.0.0.1:9324"}); err != nil {
		t.Errorf("another server needs no region: %v", err)
	}
	t.Setenv("AWS_REGION", "eu-west-3")
	c, err := Open(t.Context(), Config{})
	if err != nil || brokerOf(c).cfg.AWS.Region != "eu-west-3" {
		t.Errorf("the environment is not read: %v", err)
	}
}
