package sqs

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/sqs/internal/api"
	"github.com/redeliver/redeliver/internal/check"
)

func TestParseTopic(t *testing.T) {
	for topic, want := range map[string]address{
		"orders":      {name: "orders"},
		"orders.fifo": {name: "orders.fifo"},
		"https://sqs.eu-west-1.amazonaws.com/123456789012/orders":                                  {name: "orders", account: "123456789012", url: "https://sqs.eu-west-1.amazonaws.com/123456789012/orders"},
		"http://localhost:9324/000000000000/orders.fifo":                                           {name: "orders.fifo", account: "000000000000", url: "http://localhost:9324/000000000000/orders.fifo"},
		"http://localhost:9324/queue/":                                                             {name: "queue", url: "http://localhost:9324/queue/"},
		"arn:aws:sqs:eu-west-1:123456789012:orders":                                                {name: "orders", account: "123456789012", region: "eu-west-1"},
		"arn:aws-cn:sqs:cn-north-1:123456789012:orders.fifo":                                       {name: "orders.fifo", account: "123456789012", region: "cn-north-1"},
		"arn:aws:sns:eu-west-1:123456789012:orders":                                                {name: "arn:aws:sns:eu-west-1:123456789012:orders"},
		"https://sqs.eu-west-1.amazonaws.com/123456789012/orders-0123456789-0123456789-0123456789": {name: "orders-0123456789-0123456789-0123456789", account: "123456789012", url: "https://sqs.eu-west-1.amazonaws.com/123456789012/orders-0123456789-0123456789-0123456789"},
	} {
		if got := parseTopic(topic); got != want {
			t.Errorf("%s is %+v, want %+v", topic, got, want)
		}
	}
}

func TestSiblingNames(t *testing.T) {
	long := strings.Repeat("q", 80)
	longFIFO := strings.Repeat("q", 75) + ".fifo"
	for queue, want := range map[string][2]string{
		"orders":      {"orders-dlq", "orders-suspects"},
		"orders.fifo": {"orders-dlq.fifo", "orders-suspects.fifo"},
		long:          {"", ""},
		longFIFO:      {"", ""},
	} {
		dlq, suspects := Names{}.dlq(queue), Names{}.suspects(queue)
		if len(queue) < 20 && (dlq != want[0] || suspects != want[1]) {
			t.Errorf("the names beside %s are %s and %s", queue, dlq, suspects)
		}
		var ps check.Problems
		for _, name := range []string{queue, dlq, suspects} {
			checkName(&ps, "name", name)
		}
		if ps.Err() != nil || dlq == suspects || api.IsFIFO(dlq) != api.IsFIFO(queue) {
			t.Errorf("the names beside %s are %s and %s: %v", queue, dlq, suspects, ps.Err())
		}
	}
	if (Names{}).dlq(long) == (Names{}).dlq(long[:79]+"r") {
		t.Error("two long names share a DLQ")
	}
}

func TestInvalidConfigIsRefused(t *testing.T) {
	fixed := func(name string) func(string) string { return func(string) string { return name } }
	for what, c := range map[string]struct {
		topic string
		cfg   Config
		want  []string
	}{
		"an empty topic":              {"", Config{}, []string{`queue of topic ""`}},
		"a dot":                       {"a.b", Config{}, []string{`queue of topic "a.b"`}},
		"too long":                    {strings.Repeat("q", 81), Config{}, []string{"queue of topic"}},
		"the error contains a secret": {"https://user:hunter2@host/1/a b", Config{}, []string{"queue of topic"}},
		"the DLQ itself":              {"orders", Config{Names: Names{DLQ: fixed("orders")}}, []string{`Names.DLQ("orders")`}},
		"another kind":                {"orders.fifo", Config{Names: Names{DLQ: fixed("dead")}}, []string{`Names.DLQ("orders.fifo")`}},
		"notes in a FIFO queue":       {"orders.fifo", Config{Names: Names{Place: fixed("notes.fifo")}}, []string{`Names.Place("orders.fifo")`}},
		"one for both":                {"orders", Config{Names: Names{DLQ: fixed("x"), Suspects: fixed("x")}}, []string{`Names.Suspects("orders")`}},
		"an endless try":              {"orders", Config{Policy: redeliver.Policy{Timeout: 13 * time.Hour}}, []string{"Policy.Timeout"}},
		"a FIFO's waits":              {"orders.fifo", Config{Queues: map[string]redeliver.Policy{"orders.fifo": {MaxRetries: 13, Backoff: redeliver.Fixed(time.Hour)}}}, []string{`Queues["orders.fifo"].Backoff`}},
		"RocketMQ on FIFO":            {"orders.fifo", Config{Policy: redeliver.Policy{Backoff: redeliver.RocketMQ()}}, nil},
	} {
		cfg := c.cfg.withDefaults()
		_, err := newLayout(&cfg, c.topic)
		wantProblems(t, what, err, c.want)
		if err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", what, err)
		}
	}
	for what, c := range map[string]struct {
		cfg  Config
		want []string
	}{
		"nothing":    {Config{}, nil},
		"all fields": {Config{MaxInFlight: -1, MaxRetriesInFlight: 1 << 30, Pollers: 101, VisibilityTimeout: 1500 * time.Millisecond, WaitTime: 21 * time.Second, NackDelay: -1, DrainTimeout: -1, SendTimeout: -1, MaxMessageSize: 5}, []string{"MaxInFlight", "MaxRetriesInFlight", "NackDelay", "DrainTimeout", "SendTimeout", "Pollers", "VisibilityTimeout", "WaitTime", "MaxMessageSize"}},
		"most":       {Config{DrainTimeout: redeliver.MaxWait}, nil},
		"endless":    {Config{DrainTimeout: redeliver.MaxWait + 1}, []string{"DrainTimeout"}},
		"endpoints":  {Config{Endpoint: "http://key:hunter2@host"}, []string{"Endpoint"}},
		"policies":   {Config{Policy: redeliver.Policy{MaxRetries: -5}, Queues: map[string]redeliver.Policy{"a.b": {}, "c": {Immediate: 9}}}, []string{"Policy.MaxRetries", `Queues["a.b"]`, `Queues["c"].Immediate`}},
	} {
		cfg := c.cfg.withDefaults()
		err := cfg.validate()
		wantProblems(t, what, err, c.want)
		if err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// wantProblems checks that an error names exactly these fields.
func wantProblems(t *testing.T, what string, err error, want []string) {
	t.Helper()
	var got []string
	if bad, ok := errors.AsType[*redeliver.ConfigError](err); ok {
		for _, p := range bad.Problems {
			got = append(got, p.Field)
		}
	} else if err != nil {
		t.Errorf("%s: %v", what, err)
	}
	if len(got) != len(want) {
		t.Errorf("%s: problems with %q, want %q", what, got, want)
		return
	}
	for i := range want {
		if !strings.HasPrefix(got[i], want[i]) {
			t.Errorf("%s: problem %d is with %q, want %q", what, i, got[i], want[i])
		}
	}
}

// Queues that two subscriptions of a client would share are refused: one would get the other's suspects or dead letters.
// A service may read its own DLQ, and one queue under two names.
func TestSharedQueuesAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		names  Names
		topics []string
		want   string // in the error; "" for none
	}{
		"one DLQ":            {Names{DLQ: func(string) string { return "dead" }}, []string{"orders", "mails"}, "dead"},
		"one suspects queue": {Names{Suspects: func(string) string { return "suspects" }}, []string{"orders", "mails"}, "suspects"},
		"another's origin":   {Names{Suspects: func(q string) string { return map[string]string{"orders": "mails", "mails": "x"}[q] }}, []string{"orders", "mails"}, "mails"},
		"two accounts":       {Names{}, []string{"arn:aws:sqs:eu-west-1:1:orders", "arn:aws:sqs:eu-west-1:2:orders"}, "orders-suspects"},
		"its own DLQ":        {Names{}, []string{"orders", "orders-dlq"}, ""},
		"one queue twice":    {Names{}, []string{"orders", "http://sqs.test/1/orders", "arn:aws:sqs:eu-west-1:1:orders"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bubble) {
				b.Create("orders")
				b.Create("mails")
				b.Create("orders-dlq")
				client := b.client(b.T, Config{Names: c.names})
				var err error
				for _, topic := range c.topics {
					if err == nil {
						_, err = client.Subscriber().Subscribe(b.Context(), topic)
					}
				}
				if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
					b.Errorf("they are refused with %v", err)
				}
				b.close(client)
			})
		})
	}
}
