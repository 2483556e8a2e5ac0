package amqp

import (
	"cmp"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/amqp/internal/amqptest"
)

// testdata has the plans; REDELIVER_GOLDEN=1 rewrites them.
func TestPlans(t *testing.T) {
	for name, row := range map[string]struct {
		api    amqptest.API
		policy redeliver.Policy
		change func(*Config)
	}{
		"small": {
			policy: redeliver.Policy{MaxRetries: 4, Immediate: 1, Backoff: redeliver.Steps(100*time.Millisecond, 3*time.Second, 95*time.Second+400*time.Millisecond),
				Levels: []time.Duration{time.Second, 5 * time.Second, 30 * time.Second, time.Minute}},
			api: amqptest.API{Queues: []amqptest.Fields{
				amqptest.QueueAnswer("orders", amqptest.With(amqptest.With(amqptest.Quorum, "x-delivery-limit", 5), "x-dead-letter-exchange", "dead"), amqptest.Fields{"messages": 12}),
				amqptest.QueueAnswer("orders.retry.2m", amqptest.With(amqptest.Level, "x-message-ttl", 120_000), amqptest.Fields{"messages": 3, "messages_ready": 3}),
			}},
		},
		"rocketmq": {policy: redeliver.Policy{Backoff: redeliver.RocketMQ()}},
		"default":  {},
		"in-place": {
			policy: redeliver.Policy{Order: redeliver.OrderThroughRetries, MaxRetries: 2, Immediate: 1, Backoff: redeliver.Fixed(10 * time.Minute)},
			api:    amqptest.API{Queues: []amqptest.Fields{amqptest.QueueAnswer("orders", amqptest.With(amqptest.Quorum, "x-single-active-consumer", true), nil)}},
			change: func(c *Config) { c.Key = KeyHeader("customer") },
		},
		"newest": {
			api:    amqptest.API{Version: "4.3.0"},
			policy: redeliver.Policy{MaxRetries: 2, Immediate: 1, Backoff: redeliver.Fixed(10 * time.Second), Levels: []time.Duration{10 * time.Second}, Timeout: 10 * time.Minute},
		},
	} {
		t.Run(name, func(t *testing.T) {
			row.api.Version = cmp.Or(row.api.Version, "3.10.8")
			cfg := Config{URLs: []string{"amqp://guest:guest@localhost/"}, ManagementURL: row.api.Start(t), Policy: row.policy}
			if row.change != nil {
				row.change(&cfg)
			}
			client := &client{cfg: cfg.withDefaults()}
			l, err := newLayout(&client.cfg, "orders")
			if err != nil {
				t.Fatal(err)
			}
			s, err := client.broker().SurveyAs(t.Context(), l, amqptest.Greeting(row.api.Version))
			if err != nil || len(s.Problems) > 0 {
				t.Fatal(s.Problems, err)
			}
			there := make(map[string]bool)
			for name := range s.Queues {
				there[name] = true
			}
			got, file := newPlan(&client.cfg, l, s, there).String(), filepath.Join("testdata", "plan-"+name+".txt")
			if os.Getenv("REDELIVER_GOLDEN") != "" {
				if err := os.MkdirAll("testdata", 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("the plan is\n%s\nwant\n%s", got, want)
			}
		})
	}
}
