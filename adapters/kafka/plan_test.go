package kafka_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka"
)

// The expected plans are in testdata. REDELIVER_GOLDEN=1 writes them.
func TestPlanListsTopicsAndDelays(t *testing.T) {
	t.Parallel()
	for name, policy := range map[string]redeliver.Policy{
		"small":    {MaxRetries: 4, Immediate: 1, Backoff: redeliver.Steps(100*time.Millisecond, 3*time.Second, 95*time.Second), Levels: []time.Duration{time.Second, 5 * time.Second, 30 * time.Second, time.Minute}},
		"rocketmq": {Backoff: redeliver.RocketMQ()},
		"default":  {},
	} {
		t.Run(name, func(t *testing.T) {
			addrs := fake(t, "orders").ListenAddrs()
			c, _ := openClient(t, kafka.Config{Brokers: addrs, Group: "billing.eu", Policy: policy})
			plan, err := c.Plan(t.Context(), "orders")
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join("testdata", "plan-"+name+".txt")
			if os.Getenv("REDELIVER_GOLDEN") != "" {
				if err := os.MkdirAll("testdata", 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(file, []byte(plan.String()), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if got := plan.String(); got != string(want) {
				t.Errorf("the plan is\n%s\nwant\n%s", got, want)
			}
			for _, topic := range plan.Places {
				if topic.Exists {
					t.Errorf("%s exists: Plan created it", topic.Name)
				}
			}
		})
	}
}
