package amqp_test

import (
	"context"
	"errors"
	"net/url"
	"slices"
	"strings"
	"testing"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/amqp"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/integration/brokers"
	"github.com/redeliver/redeliver/mq"
)

// useRights makes the client use a new user with the given permissions.
func (p *plannedQueue) useRights(t *testing.T, r *brokers.Rabbit, configure, write, read string) {
	t.Helper()
	user := "user-" + p.queue
	p.user(t, user, "")
	p.put(t, fields{"configure": configure, "write": write, "read": read}, "permissions", r.VHost(), user)
	u, err := url.Parse(r.URL())
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(user, "s3cret")
	p.config.URLs, p.config.ManagementURL = []string{u.String()}, ""
}

// user creates a user of the node, until the test ends.
func (p *plannedQueue) user(t *testing.T, name, tags string) {
	t.Helper()
	p.put(t, fields{"password": "s3cret", "tags": tags}, "users", name)
	if !p.users[name] {
		p.users[name] = true
		t.Cleanup(func() { p.delete(t, "users", name) })
	}
}

// wantProblems fails the test unless err is a refusal with exactly these problems.
func wantProblems(t *testing.T, what string, err error, want ...string) {
	t.Helper()
	refused, ok := errors.AsType[*redeliver.ConfigError](err)
	if !ok {
		t.Errorf("%s returns %v, want a refusal", what, err)
		return
	}
	for i, problem := range refused.Problems {
		if len(refused.Problems) != len(want) || !strings.HasPrefix(problem.String(), want[i]) {
			t.Errorf("%s returns %q, want %q", what, refused.Problems, want)
			return
		}
	}
}

// Each missing right is one problem, whether or not the queues exist. Subscribe once reported it for every queue, or
// not at all.
func planReportsRights(t *testing.T, r *brokers.Rabbit) {
	p := newPlannedQueue(t, r, "rights")
	before := p.queues(t, p.queue)
	const all = "rights.dlq, rights.retry, rights.retry.suspects, rights.retry.paused, rights.retry.1s"
	p.useRights(t, r, "^$", "^$", "^$")
	_, err := p.open(t).Plan(context.Background(), p.queue)
	wantProblems(t, "Plan", err,
		"right to configure is missing: must be given to the user for "+all+", rights (rabbitmqctl set_permissions); the broker says: ACCESS_REFUSED",
		"right to read is missing: must be given to the user for rights.retry, rights.retry.suspects, rights.retry.paused, rights.retry.1s, rights (",
		"right to write is missing: must be given to the user for exchange amq.default")
	p.useRights(t, r, "^$", ".*", ".*")
	wantProblems(t, "Subscribe", p.open(t).Subscriber().SubscribeInitialize(p.queue), "right to configure is missing: must be given to the user for "+all+", rights (")
	p.useRights(t, r, ".*", "^$", ".*")
	wantProblems(t, "Subscribe", p.open(t).Subscriber().SubscribeInitialize(p.queue), "right to write is missing: must be given to the user for exchange amq.default")
	if now := p.queues(t, p.queue); !slices.Equal(before, now) {
		t.Errorf("there are now %q", now)
	}
	p.useRights(t, r, ".*", ".*", ".*")
	if _, err := p.open(t).Plan(context.Background(), p.queue); err != nil {
		t.Error(err)
	}
	p.declare(t)
	if _, err := p.open(t).Plan(context.Background(), p.queue); err != nil {
		t.Error(err)
	}
}

// Without the right to read the delay queues Subscribe fails. Retries were once silently late.
func subscribeNeedsTheRightToRead(t *testing.T, r *brokers.Rabbit) {
	p := newPlannedQueue(t, r, "readable")
	p.declare(t)
	p.publish(t, p.queue)
	p.useRights(t, r, ".*", ".*", `^readable(\.retry)?$`)
	_, err := p.open(t).Plan(context.Background(), p.queue)
	wantProblems(t, "Plan", err, "right to read is missing: must be given to the user for readable.retry.suspects, readable.retry.paused, readable.retry.1s (")
	_, err = p.open(t).Subscriber().Subscribe(context.Background(), p.queue)
	wantProblems(t, "Subscribe", err, "right to read is missing: must be given to the user for readable.retry.1s (")
	d, ok, err := p.channel(t).Get(p.queue, false)
	if err != nil || !ok || d.Redelivered {
		t.Errorf("%+v %t %v: a subscriber that may not run fetched the waiting message", d, ok, err)
	}
}

// The same for several queues: if one may not be read, none is.
func consumeNeedsTheRightToRead(t *testing.T, r *brokers.Rabbit) {
	p := newPlannedQueue(t, r, "several")
	second := newPlannedQueue(t, r, "several-more")
	p.declare(t)
	second.declare(t)
	p.publish(t, p.queue)
	p.useRights(t, r, ".*", ".*", `^several(-more\.|\.|$)`)
	err := amqp.Consume(t.Context(), p.config, []string{p.queue, second.queue}, func(context.Context, amqp091.Delivery) error { return nil })
	wantProblems(t, "Consume", err, "right to read is missing: must be given to the user for several-more (")
	d, ok, err := p.channel(t).Get(p.queue, false)
	if err != nil || !ok || d.Redelivered {
		t.Errorf("%+v %t %v: a consumer that may not run fetched the waiting message", d, ok, err)
	}
}

// A subscriber and an operator with exactly the planned rights can work. From RabbitMQ 4.3 on, a user without the right
// to configure a queue cannot see that it exists, which the plan once did not say.
func plannedRightsSuffice(t *testing.T, r *brokers.Rabbit) {
	p := newPlannedQueue(t, r, "sufficient")
	p.declare(t)
	plan, err := p.open(t).Plan(t.Context(), p.queue)
	if err != nil {
		t.Fatal(err)
	}
	p.declareQueue(t, plan.OperatorPlaces[0].Name, plan.OperatorPlaces[0].Settings)
	p.config.NoProvisioning = true
	as := func(rights []mq.Right) *mq.Client {
		pattern := func(names []string) string {
			return "^(" + strings.ReplaceAll(strings.Join(names, "|"), ".", `\.`) + ")$"
		}
		p.useRights(t, r, pattern(mq.Allowing(rights, "configure")), pattern(mq.Allowing(rights, "write")), pattern(mq.Allowing(rights, "read")))
		return p.open(t)
	}
	service := as(plan.Rights)
	msgs, err := service.Subscriber().Subscribe(t.Context(), p.queue)
	if err != nil {
		t.Fatal(err)
	}
	p.publish(t, p.queue)
	(<-msgs).Nack()
	(<-msgs).Ack()
	if err := service.Close(t.Context()); err != nil { // the operator has the same user
		t.Error(err)
	}
	operator := as(plan.OperatorRights)
	if err := operator.Operations().Pause(t.Context(), p.queue, "a test"); err != nil {
		t.Error(err)
	}
	if mark, err := operator.Operations().Paused(t.Context(), p.queue); err != nil || mark == nil {
		t.Errorf("the mark is %v: %v", mark, err)
	}
	if err := operator.Operations().Resume(t.Context(), p.queue); err != nil {
		t.Error(err)
	}
	q, err := operator.Operations().DeadLetters(t.Context(), mq.DeadLetterConfig{Topic: p.queue})
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	if _, err := deadletter.DryRun(t.Context(), q, deadletter.ReplayOptions{}); err != nil {
		t.Error(err)
	}
}

// Without a management API, AMQP shows the type, and whether a queue is auto-delete, without a consumer.
func planReportsTypes(t *testing.T, r *brokers.Rabbit) {
	for name, row := range map[string]struct {
		queue fields
		want  string
	}{
		"type-stream":    {fields{"durable": true, "arguments": fields{"x-queue-type": "stream"}}, "queue type-stream is stream: must be a quorum or a classic queue"},
		"type-auto":      {fields{"durable": true, "auto_delete": true}, "queue type-auto is auto-delete: must not be deleted with its last consumer"},
		"type-transient": {fields{"durable": false, "auto_delete": true}, "queue type-transient is auto-delete: must not be deleted with its last consumer"},
		"type-quorum":    {fields{"durable": true, "arguments": fields{"x-queue-type": "quorum", "x-expires": 3_600_000}}, ""},
		"type-classic":   {fields{"durable": false}, ""},
	} {
		p := newPlannedQueue(t, r, name)
		p.put(t, row.queue, "queues", r.VHost(), name)
		p.config.ManagementURL = ""
		c := p.open(t)
		plan, err := c.Plan(context.Background(), name)
		initialized := c.Subscriber().SubscribeInitialize(name)
		if row.want != "" {
			wantProblems(t, "Plan", err, row.want)
			wantProblems(t, "Subscribe", initialized, row.want)
		} else if err != nil || initialized != nil || has(plan.NotChecked, "the type of") || has(plan.NotChecked, "auto-delete") {
			t.Errorf("%s: %v, %v\n%s", name, err, initialized, plan)
		}
		if !slices.Contains(p.queues(t, name), name) {
			t.Errorf("%s was deleted, so it had a consumer", name)
		}
	}
}

// If nothing may be created, Plan returns the missing queues beside the error.
func TestThePlanShowsMissingQueues(t *testing.T) {
	t.Parallel()
	p := newPlannedQueue(t, brokers.RequireRabbitMQ(t), "plan-missing")
	p.config.NoProvisioning = true
	plan, err := p.open(t).Plan(context.Background(), p.queue)
	refused, ok := errors.AsType[*redeliver.ConfigError](err)
	if !ok || plan == nil || len(refused.Problems) != 4 || strings.Count(plan.String(), "\nrefused: ") != 4 {
		t.Fatalf("%v\n%v", plan, err)
	}
	for _, q := range plan.Places {
		if q.Exists || len(q.Settings) == 0 {
			t.Errorf("%+v", q)
		}
	}
}
