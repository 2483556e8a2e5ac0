package amqp_test

import (
	"context"
	"errors"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/amqp"
	"github.com/redeliver/redeliver/doctor"
	"github.com/redeliver/redeliver/integration/brokers"
	"github.com/redeliver/redeliver/mq"
)

// The tests share a virtual host, because each uses its own queue names.
func TestPlan(t *testing.T) {
	t.Parallel()
	r := brokers.RequireRabbitMQ(t).VirtualHost(t)
	for name, run := range map[string]func(*testing.T, *brokers.Rabbit){
		"refuses": planRefuses, "notes": planNotes, "finds stuck messages": planFindsStuckMessages, "finds levels of old policies": planFindsOldLevels,
		"lets a policy dead-letter everything": ourDeadLetteringComesFirst, "as a monitoring user": planAsAMonitoringUser,
		"knows rights": planReportsRights, "checks the right to read first": subscribeNeedsTheRightToRead, "checks the right to read all queues first": consumeNeedsTheRightToRead,
		"knows types": planReportsTypes, "plans enough rights": plannedRightsSuffice,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, r)
		})
	}
}

// Plan and Subscribe refuse a fault of the broker with the same text, and create nothing.
func planRefuses(t *testing.T, r *brokers.Rabbit) {
	for name, row := range map[string]struct {
		arrange func(t *testing.T, p *plannedQueue)
		want    []string
	}{
		"limit-by-argument": {
			func(t *testing.T, p *plannedQueue) {
				p.declareQueue(t, p.queue, fields{"x-queue-type": "quorum", "x-delivery-limit": 5})
			},
			[]string{"queue limit-by-argument is delivery-limit=5 by argument: drops a message that comes back more often, because the queue has no dead-letter exchange"},
		},
		"limit-by-policy": {
			func(t *testing.T, p *plannedQueue) {
				p.declareQueue(t, p.queue, fields{"x-queue-type": "quorum"})
				p.policy(t, "limit", "^limit-by-policy$", fields{"delivery-limit": 5})
			},
			[]string{`queue limit-by-policy is delivery-limit=5 by policy "limit": drops`},
		},
		"limit-to-nowhere": {
			func(t *testing.T, p *plannedQueue) {
				p.declareQueue(t, p.queue, fields{"x-queue-type": "quorum", "x-delivery-limit": 5, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "nowhere"})
			},
			[]string{"queue limit-to-nowhere is delivery-limit=5 by argument: drops a message that comes back more often: its dead letters go to queue nowhere, which does not exist"},
		},
		"stream": {
			func(t *testing.T, p *plannedQueue) { p.declareQueue(t, p.queue, fields{"x-queue-type": "stream"}) },
			[]string{"queue stream is stream: must be a quorum or a classic queue"},
		},
		"auto-delete": {
			func(t *testing.T, p *plannedQueue) {
				p.put(t, fields{"durable": true, "auto_delete": true, "arguments": fields{}}, "queues", p.r.VHost(), p.queue)
			},
			[]string{"queue auto-delete is auto-delete: must not be deleted with its last consumer"},
		},
		"exclusive": {
			func(t *testing.T, p *plannedQueue) {
				conn, err := amqp091.Dial(r.URL())
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = conn.Close() })
				ch, err := conn.Channel()
				if err != nil {
					t.Fatal(err)
				}
				if _, err := ch.QueueDeclare(p.queue, false, false, true, false, nil); err != nil {
					t.Fatal(err)
				}
			},
			[]string{"queue exclusive is exclusive: must not"},
		},
		// RabbitMQ compares TTLs at a declaration, but not the strategy, which would silently lose waiting messages.
		"other-arguments": {
			func(t *testing.T, p *plannedQueue) {
				p.declareQueue(t, p.queue+".retry.1s", fields{
					"x-queue-type": "quorum", "x-message-ttl": 5000, "x-overflow": "reject-publish", "x-dead-letter-exchange": "", "x-dead-letter-routing-key": p.queue + ".retry",
				})
				p.declareQueue(t, p.queue+".dlq", fields{"x-queue-type": "quorum", "x-max-length": 10})
			},
			[]string{
				"queue other-arguments.retry.1s is declared otherwise: x-dead-letter-strategy is missing and must be at-least-once, x-message-ttl is 5000 and must be 11000.",
				"queue other-arguments.dlq is declared otherwise: x-delivery-limit is missing and must be 2147483647, x-max-length is 10 and must not be set.",
			},
		},
		"policies": {
			func(t *testing.T, p *plannedQueue) {
				p.policy(t, "bound", `^policies\.dlq$`, fields{"max-length": 10})
				p.policy(t, "life", `^policies\.retry$`, fields{"message-ttl": 1000, "expires": 60_000})
				p.policy(t, "spill", `^policies\.retry\.1s$`, fields{"overflow": "drop-head"})
				p.operatorPolicy(t, "few", `^policies\.retry\.suspects$`, fields{"delivery-limit": 3})
			},
			[]string{
				`queue policies.dlq is max-length=10 by policy "bound": must not be limited`,
				`queue policies.retry is expires=60000 by policy "life": must not expire`,
				`queue policies.retry is message-ttl=1000 by policy "life": must not have another TTL`,
				`queue policies.retry.1s is overflow=drop-head by policy "spill": must be reject-publish`,
				`queue policies.retry.suspects is delivery-limit=3 by operator policy "few": must not have a lower limit`,
			},
		},
		"missing": {
			func(_ *testing.T, p *plannedQueue) {
				p.config.Topology, p.config.NoProvisioning = amqp.ExistingQueue(), true
			},
			[]string{
				"queue missing is missing: must exist: Topology.Existing is set",
				"queue missing.retry.1s is missing: must exist: NoProvisioning is set. Declare it durable with the arguments x-dead-letter-exchange=\"\", x-dead-letter-routing-key=missing.retry, x-dead-letter-strategy=at-least-once, x-message-ttl=11000,",
			},
		},
		"long": {
			func(_ *testing.T, p *plannedQueue) {
				p.config.Policy.Timeout, p.config.ConsumerTimeout = time.Minute, 30*time.Second
			},
			[]string{"Policy.Timeout is 1m0s: must be at most ConsumerTimeout, which is 30s"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlannedQueue(t, r, name)
			row.arrange(t, p)
			before := p.queues(t, p.queue)
			c := p.open(t)
			_, err := c.Plan(context.Background(), name)
			if !errors.Is(err, redeliver.ErrConfig) {
				t.Fatalf("%v is not a refusal", err)
			}
			refused, _ := errors.AsType[*redeliver.ConfigError](err)
			for _, want := range row.want {
				if !slices.ContainsFunc(refused.Problems, func(p redeliver.Problem) bool { return strings.HasPrefix(p.String(), want) }) {
					t.Errorf("not refused: %s\nin: %v", want, err)
				}
			}
			if name != "missing" && len(refused.Problems) != len(row.want) {
				t.Errorf("%d problems, want %d: %v", len(refused.Problems), len(row.want), err)
			}
			_, again := c.Subscriber().Subscribe(context.Background(), name)
			if again == nil || again.Error() != err.Error() {
				t.Errorf("Subscribe says\n%v\nPlan says\n%v", again, err)
			}
			if after := p.queues(t, p.queue); !slices.Equal(after, before) {
				t.Errorf("the queues were %q, and are now %q", before, after)
			}
		})
	}
}

// Settings by which the broker drops or moves messages, and that are not refused, are reported.
func planNotes(t *testing.T, r *brokers.Rabbit) {
	for name, row := range map[string]struct {
		arguments fields
		policy    fields
		want      string
	}{
		"classic":   {fields{}, nil, "classic is a classic queue: it does not count deliveries"},
		"single":    {fields{"x-queue-type": "quorum", "x-single-active-consumer": true}, nil, "single has a single active consumer"},
		"ttl":       {fields{"x-queue-type": "quorum", "x-message-ttl": 60_000}, nil, "ttl has message-ttl=60000 by argument: messages that wait there for 1m0s are dropped by the broker"},
		"ttl-less":  {fields{"x-message-ttl": 60_000}, fields{"message-ttl": 5000}, `ttl-less has message-ttl=5000 by policy "ttl-less": messages that wait there for 5s are dropped`},
		"length":    {fields{"x-queue-type": "quorum"}, fields{"max-length": 10}, `length has max-length=10 by policy "length": when it is full, its oldest messages are dropped`},
		"expires":   {fields{}, fields{"expires": 600_000}, `expires has expires=600000 by policy "expires": after 10m0s without a consumer`},
		"elsewhere": {fields{"x-queue-type": "quorum"}, fields{"delivery-limit": 5, "dead-letter-exchange": "amq.fanout"}, `are dead-lettered by the broker to exchange "amq.fanout", not to elsewhere.dlq`},
		"into-ours": {fields{"x-queue-type": "quorum"}, fields{"delivery-limit": 5, "dead-letter-exchange": "", "dead-letter-routing-key": "into-ours.dlq"}, "are moved by the broker to into-ours.dlq before redeliver decides"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlannedQueue(t, r, name)
			p.declareQueue(t, name, row.arguments)
			if row.policy != nil {
				p.policy(t, name, "^"+name+"$", row.policy)
			}
			p.eventually(t, row.want)
			p.declare(t)
		})
	}
}

// Messages whose target is missing are in the queue but not ready.
func planFindsStuckMessages(t *testing.T, r *brokers.Rabbit) {
	p := newPlannedQueue(t, r, "stuck")
	p.declare(t)
	p.delete(t, "queues", p.r.VHost(), "stuck.retry")
	p.publish(t, "stuck.retry.1s")
	plan := p.eventually(t, "stuck.retry.1s: 1 messages have waited for more than 1s and are stuck: stuck.retry does not exist")
	for _, q := range plan.Places {
		if want := map[bool]int64{true: 1}[q.Name == "stuck.retry.1s"]; q.Messages != want {
			t.Errorf("%s has %d messages, want %d", q.Name, q.Messages, want)
		}
		if q.Exists == (q.Name == "stuck.retry") {
			t.Errorf("%s: exists is %t", q.Name, q.Exists)
		}
	}
}

// Levels that the policy no longer has are reported with their number of messages.
func planFindsOldLevels(t *testing.T, r *brokers.Rabbit) {
	p := newPlannedQueue(t, r, "changed")
	now := p.config
	p.config.Policy = redeliver.Policy{Backoff: redeliver.Fixed(10 * time.Minute), Levels: []time.Duration{time.Second, 10 * time.Minute}}
	p.declare(t)
	p.publish(t, "changed.retry.10m")
	p.publish(t, "changed.retry.10m")
	p.publish(t, "changed.dlq")
	p.config = now
	plan := p.until(t, "2 messages wait on an old level, and 1 is in the DLQ", func(plan *mq.Plan) bool { // each queue is counted separately
		return has(plan.Notes, "changed.retry.10m belongs to an older policy; 2 messages wait on it") &&
			slices.ContainsFunc(plan.Places, func(q mq.Place) bool { return q.Name == "changed.dlq" && q.Messages == 1 })
	})
	var old []string
	for _, q := range plan.Places {
		if q.Old {
			old = append(old, q.Name)
		}
	}
	if want := []string{"changed.retry.10m"}; !slices.Equal(old, want) {
		t.Errorf("the old levels are %q, want %q", old, want)
	}
	d, err := p.open(t).Operations().Doctor(t.Context(), p.queue, doctor.Examination{})
	if err != nil {
		t.Fatal(err)
	}
	address, err := url.Parse(r.URL())
	if err != nil {
		t.Fatal(err)
	}
	command := "delete it: rabbitmqctl delete_queue --vhost " + strings.TrimPrefix(address.Path, "/") + " changed.retry.10m"
	if !slices.ContainsFunc(d.Symptoms, func(s doctor.Symptom) bool {
		return s.Kind == doctor.SymptomOrphan && s.Place == "changed.retry.10m" && strings.Contains(s.Text, "2 messages wait on it") && strings.HasSuffix(s.Text, command)
	}) {
		t.Errorf("the doctor found %+v, want the command %q", d.Symptoms, command)
	}
}

// A policy that dead-letters every queue elsewhere is not refused, because redeliver's argument takes precedence and
// waiting messages come back.
func ourDeadLetteringComesFirst(t *testing.T, r *brokers.Rabbit) {
	p := newPlannedQueue(t, r, "argument")
	p.policy(t, "all", "^argument", fields{"dead-letter-exchange": "amq.fanout", "dead-letter-routing-key": "elsewhere"})
	p.declare(t)
	p.publish(t, "argument.retry.1s")
	p.arrives(t, "argument.retry")
}
