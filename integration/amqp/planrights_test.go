package amqp_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/integration/brokers"
)

// Without a management API unchecked settings are not reported as correct, and problems that AMQP shows are still
// refused.
func TestPlanWithoutTheManagementAPI(t *testing.T) {
	t.Parallel()
	p := newPlannedQueue(t, brokers.RequireRabbitMQ(t), "plan-alone")
	p.config.ManagementURL = ""
	before := p.queues(t, p.queue)
	plan, err := p.open(t).Plan(context.Background(), p.queue)
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range plan.Places {
		if q.Exists || q.Messages != -1 || len(q.Settings) == 0 {
			t.Errorf("%+v", q)
		}
	}
	for _, want := range []string{"limits, TTL", "policies", "feature flags", "stuck messages", "left over", "arguments"} {
		if !has(plan.NotChecked, want) {
			t.Errorf("%q is not in the list of unchecked items:\n%s", want, plan)
		}
	}
	if !strings.HasPrefix(plan.Server, "RabbitMQ 3.10.") || len(p.queues(t, p.queue)) != len(before) {
		t.Errorf("the queues on %s are now %q", plan.Server, p.queues(t, p.queue))
	}
	p.declareQueue(t, "plan-alone.retry.1s", fields{"x-queue-type": "quorum", "x-message-ttl": 5000})
	t.Cleanup(func() { p.delete(t, "queues", p.r.VHost(), "plan-alone.retry.1s") })
	if _, err = p.open(t).Plan(context.Background(), p.queue); !errors.Is(err, redeliver.ErrConfig) || !strings.Contains(err.Error(), "queue plan-alone.retry.1s is declared otherwise") {
		t.Error(err)
	}
}

// Plan needs the configured API; Subscribe only reports that it does not answer.
func TestTheManagementAPIDoesNotAnswer(t *testing.T) {
	t.Parallel()
	r := brokers.RequireRabbitMQ(t)
	for name, url := range map[string]string{
		"plan-nobody":   "http://guest:s3cret@127.0.0.1:1",
		"plan-stranger": strings.Replace(r.Management(), "guest:guest", "guest:s3cret", 1),
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlannedQueue(t, r, name)
			p.config.ManagementURL = url
			c := p.open(t)
			_, err := c.Plan(context.Background(), name)
			if err == nil || errors.Is(err, redeliver.ErrConfig) || !strings.Contains(err.Error(), "the management API at http://127.0.0.1:") || strings.Contains(err.Error(), "s3cret") {
				t.Error(err)
			}
			if err := c.Subscriber().SubscribeInitialize(name); err != nil {
				t.Fatal(err)
			}
			e, ok := (<-p.events).(redeliver.SubscriptionChanged)
			if !ok || e.Change != redeliver.ChangeNotChecked || e.Origin != name || e.Err == nil || strings.Contains(e.Err.Error(), "s3cret") {
				t.Errorf("%+v", e)
			}
		})
	}
}

// The tag monitoring shows queues and policies, but no feature flags.
func planAsAMonitoringUser(t *testing.T, r *brokers.Rabbit) {
	p := newPlannedQueue(t, r, "watched")
	p.user(t, "monitor", "monitoring")
	p.put(t, fields{"configure": "", "write": "", "read": ".*"}, "permissions", p.r.VHost(), "monitor")
	p.policy(t, "watched", "^watched$", fields{"message-ttl": 60_000})
	p.declare(t)
	p.config.ManagementURL = strings.Replace(r.Management(), "guest:guest", "monitor:s3cret", 1)
	plan := p.eventually(t, `watched has message-ttl=60000 by policy "watched"`)
	if !has(plan.NotChecked, "feature flags") {
		t.Errorf("feature flags are not in the list of unchecked items:\n%s", plan)
	}
}
