package topology

import (
	"cmp"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/amqp/internal/amqptest"
	"github.com/redeliver/redeliver/adapters/amqp/internal/layout"
	"github.com/redeliver/redeliver/adapters/amqp/internal/management"
)

// Each row has one problem or note, and the test compares everything that the survey reports.
func TestSurveyProblemsAndNotes(t *testing.T) {
	// fine is a main queue without problems or notes.
	fine := amqptest.QueueAnswer("orders", amqptest.With(amqptest.With(amqptest.With(amqptest.Quorum, "x-dead-letter-exchange", ""), "x-dead-letter-routing-key", "orders.dlq"), "x-delivery-limit", 1000), nil)
	for name, row := range map[string]struct {
		api     amqptest.API
		change  func(*layout.Options)
		refused string // the only problem, or ""
		noted   string // the only note, or ""
		also    string // another note that always appears
	}{
		"nothing":       {api: amqptest.API{Queues: []amqptest.Fields{fine}}},
		"no queues yet": {api: amqptest.API{}},
		"limit without a dead-letter exchange": {
			api:     amqptest.API{Queues: []amqptest.Fields{amqptest.QueueAnswer("orders", amqptest.With(amqptest.Quorum, "x-delivery-limit", 5), nil)}},
			refused: "queue orders is delivery-limit=5 by argument: drops a message that comes back more often, because the queue has no dead-letter exchange. Give it one",
		},
		"limit of RabbitMQ 4 without a dead-letter exchange": {
			api:   amqptest.API{Version: "4.0.5", Queues: []amqptest.Fields{amqptest.QueueAnswer("orders", amqptest.Quorum, nil)}},
			noted: "orders has delivery-limit=20 by RabbitMQ 4's default and drops messages that come back more often: redeliver rewrites a message, to orders.retry, when it has come back 5 times",
		},
		"the lowest limit without a dead-letter exchange": {
			api:   amqptest.API{Queues: []amqptest.Fields{amqptest.QueueAnswer("orders", amqptest.With(amqptest.Quorum, "x-delivery-limit", 10), nil)}},
			noted: "orders has delivery-limit=10 by argument and drops messages that come back more often",
		},
		"a lower limit without a dead-letter exchange": {
			api:     amqptest.API{Queues: []amqptest.Fields{amqptest.QueueAnswer("orders", amqptest.With(amqptest.Quorum, "x-delivery-limit", 9), nil)}},
			refused: "queue orders is delivery-limit=9 by argument: drops",
		},
		"limit of RabbitMQ 4 without a dead-letter exchange, where messages keep their places": {
			api:     amqptest.API{Version: "4.0.5", Queues: []amqptest.Fields{amqptest.QueueAnswer("orders", amqptest.With(amqptest.Quorum, "x-single-active-consumer", true), nil)}},
			change:  func(c *layout.Options) { c.Policy = redeliver.Policy{Order: redeliver.OrderBlocking} },
			refused: "queue orders is delivery-limit=20 by RabbitMQ 4's default: drops",
		},
		"a high limit without a dead-letter exchange, where messages keep their places": {
			api:    amqptest.API{Queues: []amqptest.Fields{amqptest.QueueAnswer("orders", amqptest.With(amqptest.With(amqptest.Quorum, "x-single-active-consumer", true), "x-delivery-limit", 1000), nil)}},
			change: func(c *layout.Options) { c.Policy = redeliver.Policy{Order: redeliver.OrderBlocking} },
			noted:  "orders has delivery-limit=1000 by argument and drops messages that come back more often, also after lost connections",
		},
		"no limit on RabbitMQ 4 by -1": {
			api: amqptest.API{Version: "4.0.5", Queues: []amqptest.Fields{amqptest.QueueAnswer("orders", amqptest.With(amqptest.Quorum, "x-delivery-limit", -1), nil)}},
		},
		"classic queue on RabbitMQ 4": {
			api:   amqptest.API{Version: "4.0.5", Queues: []amqptest.Fields{amqptest.QueueAnswer("orders", amqptest.Fields{}, nil)}},
			noted: "orders is a classic queue",
		},
		"a queue that will be created with a limit of RabbitMQ 4": {
			api:    amqptest.API{Version: "4.0.5"},
			change: func(c *layout.Options) { c.QueueArgs = amqp091.Table{"x-queue-type": "quorum"} },
			noted:  "orders has delivery-limit=20 by RabbitMQ 4's default and drops",
		},
		"limit with a dead-letter exchange": {
			api:   amqptest.API{Queues: []amqptest.Fields{amqptest.QueueAnswer("orders", amqptest.With(amqptest.With(amqptest.Quorum, "x-delivery-limit", 5), "x-dead-letter-exchange", "dead"), nil)}},
			noted: `orders has delivery-limit=5 by argument: messages that come back more often, also after lost connections and shutdowns, are dead-lettered by the broker to exchange "dead", not to orders.dlq`,
		},
		"low limit that dead-letters to redeliver's queue": {
			api: amqptest.API{
				Queues: []amqptest.Fields{amqptest.QueueAnswer("orders", amqptest.Quorum, amqptest.Fields{"policy": "limit", "effective_policy_definition": amqptest.Fields{"delivery-limit": 5}})},
				Policy: []amqptest.Fields{amqptest.Policy("limit", "^orders$", amqptest.Fields{"delivery-limit": 5, "dead-letter-exchange": "", "dead-letter-routing-key": "orders.dlq"}, nil)},
			},
			noted: `orders has delivery-limit=5 by policy "limit": messages that come back more often, also after lost connections and shutdowns, are moved by the broker to orders.dlq before redeliver decides, without a reason`,
		},
		"ttl": {
			api:   amqptest.API{Queues: []amqptest.Fields{amqptest.QueueAnswer("orders", amqptest.With(amqptest.Quorum, "x-message-ttl", 60_000), nil)}},
			noted: "orders has message-ttl=60000 by argument: messages that wait there for 1m0s are dropped by the broker",
		},
		"length, with the oldest dropped": {
			api:   amqptest.API{Queues: []amqptest.Fields{amqptest.QueueAnswer("orders", amqptest.With(amqptest.Quorum, "x-max-length", 10), nil)}},
			noted: "orders has max-length=10 by argument: when it is full, its oldest messages are dropped",
		},
		"length, with publishers refused by an operator": {
			api: amqptest.API{
				Queues:   []amqptest.Fields{amqptest.QueueAnswer("orders", amqptest.With(amqptest.Quorum, "x-overflow", "reject-publish"), amqptest.Fields{"operator_policy": "op", "effective_policy_definition": amqptest.Fields{"max-length-bytes": 10}})},
				Operator: []amqptest.Fields{amqptest.Policy("op", ".*", amqptest.Fields{"max-length-bytes": 10}, amqptest.Fields{"apply-to": "classic_queues"})},
			},
			noted: `orders has max-length-bytes=10 by operator policy "op": when it is full, publishers are refused`,
		},
		"a policy's overflow takes precedence over the argument on a quorum queue": {
			api: amqptest.API{
				Queues: []amqptest.Fields{amqptest.QueueAnswer("orders", amqptest.With(amqptest.With(amqptest.Quorum, "x-overflow", "reject-publish"), "x-max-length", 10), amqptest.Fields{"policy": "p", "effective_policy_definition": amqptest.Fields{}})},
				Policy: []amqptest.Fields{amqptest.Policy("p", "^orders$", amqptest.Fields{"overflow": "drop-head"}, nil)},
			},
			noted: "orders has max-length=10 by argument: when it is full, its oldest messages are dropped",
		},
		"but not on a classic queue": {
			api: amqptest.API{
				Queues: []amqptest.Fields{amqptest.QueueAnswer("orders", amqptest.Fields{"x-overflow": "reject-publish"}, amqptest.Fields{"policy": "p", "effective_policy_definition": amqptest.Fields{}})},
				Policy: []amqptest.Fields{amqptest.Policy("p", "^orders$", amqptest.Fields{"overflow": "drop-head", "max-length": 10}, nil)},
			},
			noted: `orders has max-length=10 by policy "p": when it is full, publishers are refused`, also: "orders is a classic queue",
		},
		"the lower limit counts": {
			api: amqptest.API{
				Queues: []amqptest.Fields{amqptest.QueueAnswer("orders", amqptest.With(amqptest.Quorum, "x-message-ttl", 60_000), amqptest.Fields{"policy": "p", "effective_policy_definition": amqptest.Fields{}})},
				Policy: []amqptest.Fields{amqptest.Policy("p", "^orders$", amqptest.Fields{"message-ttl": 5000}, nil)},
			},
			noted: `orders has message-ttl=5000 by policy "p"`,
		},
		"an explicit unlimited on RabbitMQ 4": {
			api: amqptest.API{Version: "4.1.0", Queues: []amqptest.Fields{amqptest.QueueAnswer("orders", amqptest.Quorum, amqptest.Fields{"delivery_limit": "unlimited"})}},
		},
		"the same limit by policy, and overflow on the DLQ": {
			api: amqptest.API{Queues: []amqptest.Fields{fine}, Policy: []amqptest.Fields{
				amqptest.Policy("p", `^orders\.retry$`, amqptest.Fields{"delivery-limit": 1000}, nil), amqptest.Policy("d", `^orders\.dlq$`, amqptest.Fields{"overflow": "drop-head"}, nil),
			}},
		},
		"expires": {
			api:   amqptest.API{Queues: []amqptest.Fields{amqptest.QueueAnswer("orders", amqptest.With(amqptest.Quorum, "x-expires", 60_000), nil)}},
			noted: "orders has expires=60000 by argument: after 1m0s without a consumer",
		},
		"stream":      {api: amqptest.API{Queues: []amqptest.Fields{amqptest.QueueAnswer("orders", amqptest.Fields{"x-queue-type": "stream"}, nil)}}, refused: "queue orders is stream: must be a quorum or a classic queue"},
		"auto-delete": {api: amqptest.API{Queues: []amqptest.Fields{amqptest.QueueAnswer("orders", amqptest.Quorum, amqptest.Fields{"auto_delete": true})}}, refused: "queue orders is auto-delete: must not"},
		"transient":   {api: amqptest.API{Queues: []amqptest.Fields{amqptest.QueueAnswer("orders", amqptest.Quorum, amqptest.Fields{"durable": false})}}, noted: "orders is not durable"},
		"single active consumer": {
			api:   amqptest.API{Queues: []amqptest.Fields{amqptest.QueueAnswer("orders", amqptest.With(amqptest.Quorum, "x-single-active-consumer", true), nil)}},
			noted: "orders has a single active consumer",
		},
		"several consumers with OrderBlocking": {
			api:     amqptest.API{Queues: []amqptest.Fields{fine}},
			change:  func(c *layout.Options) { c.Policy = redeliver.Policy{Order: redeliver.OrderBlocking} },
			refused: "queue orders is without a single active consumer: must have the argument x-single-active-consumer=true where the Order is OrderBlocking",
		},
		"several consumers with OrderThroughRetries": {
			api: amqptest.API{Queues: []amqptest.Fields{amqptest.QueueAnswer("orders", amqptest.With(amqptest.Quorum, "x-single-active-consumer", false), nil)}},
			change: func(c *layout.Options) {
				c.Policy = redeliver.Policy{Order: redeliver.OrderThroughRetries}
			},
			refused: "queue orders is without a single active consumer: must have the argument x-single-active-consumer=true where the Order is OrderThroughRetries",
		},
		"a single active consumer with OrderBlocking": {
			api:    amqptest.API{Queues: []amqptest.Fields{amqptest.QueueAnswer("orders", amqptest.Fields{"x-single-active-consumer": true}, nil)}},
			change: func(c *layout.Options) { c.Policy = redeliver.Policy{Order: redeliver.OrderBlocking} },
		},
		"a queue that will be created for one consumer": {
			api: amqptest.API{},
			change: func(c *layout.Options) {
				c.Policy = redeliver.Policy{Order: redeliver.OrderBlocking}
				c.QueueArgs = amqp091.Table{}
			},
		},
		"consumer timeout of the queue": {
			api:     amqptest.API{Queues: []amqptest.Fields{amqptest.QueueAnswer("orders", amqptest.With(amqptest.Quorum, "x-consumer-timeout", 60_000), nil)}},
			refused: "queue orders is consumer-timeout=60000 by argument: must not be shorter than ConsumerTimeout, which is 30m0s: set ConsumerTimeout to 1m0s",
		},
		"delayed retry of RabbitMQ 4.3": {
			api:   amqptest.API{Queues: []amqptest.Fields{amqptest.QueueAnswer("orders", amqptest.With(amqptest.Quorum, "x-delayed-retry-type", "all"), nil)}},
			noted: "orders: RabbitMQ delays returned messages (delayed-retry-type=all by argument)",
		},
		"other arguments": {
			api:     amqptest.API{Queues: []amqptest.Fields{fine, amqptest.QueueAnswer("orders.retry.10s", amqptest.With(amqptest.Fields{"x-queue-type": "quorum", "x-message-ttl": 5000, "x-expires": 60_000}, "x-overflow", "reject-publish"), nil)}},
			refused: `queue orders.retry.10s is declared otherwise: x-dead-letter-exchange is missing and must be "", x-dead-letter-routing-key is missing and must be orders.retry, x-dead-letter-strategy is missing and must be at-least-once, x-message-ttl is 5000 and must be 20000, x-expires is 60000 and must not be set. Delete it`,
		},
		"the right arguments, and a harmless one": {
			api: amqptest.API{Queues: []amqptest.Fields{fine, amqptest.QueueAnswer("orders.retry.10s", amqptest.With(amqptest.Level, "x-queue-leader-locator", "balanced"), nil)}},
		},
		"length by policy, before the queue exists": {
			api:     amqptest.API{Queues: []amqptest.Fields{fine}, Policy: []amqptest.Fields{amqptest.Policy("small", `^orders\.dlq$`, amqptest.Fields{"max-length": 10}, nil)}},
			refused: `queue orders.dlq is max-length=10 by policy "small": must not be limited`,
		},
		"the policy of the highest priority counts": {
			api: amqptest.API{Queues: []amqptest.Fields{fine}, Policy: []amqptest.Fields{
				amqptest.Policy("small", `^orders\.dlq$`, amqptest.Fields{"max-length": 10}, amqptest.Fields{"priority": 1}), amqptest.Policy("large", `^orders\.dlq$`, amqptest.Fields{"max-in-memory-length": 10}, amqptest.Fields{"priority": 2}),
			}},
		},
		"policies of exchanges and classic queues": {
			api: amqptest.API{Queues: []amqptest.Fields{fine}, Policy: []amqptest.Fields{amqptest.Policy("x", ".*", amqptest.Fields{"max-length": 1}, amqptest.Fields{"apply-to": "exchanges"})}, Operator: []amqptest.Fields{
				amqptest.Policy("c", ".*", amqptest.Fields{"max-length": 1}, amqptest.Fields{"apply-to": "classic_queues"}),
			}},
		},
		"expiry by an operator policy": {
			api:     amqptest.API{Queues: []amqptest.Fields{fine}, Operator: []amqptest.Fields{amqptest.Policy("op", `^orders\.retry$`, amqptest.Fields{"expires": 1000}, amqptest.Fields{"apply-to": "quorum_queues"})}},
			refused: `queue orders.retry is expires=1000 by operator policy "op": must not expire`,
		},
		"length by an operator policy": {
			api:   amqptest.API{Queues: []amqptest.Fields{fine}, Operator: []amqptest.Fields{amqptest.Policy("plan", `^orders\.dlq$`, amqptest.Fields{"max-length": 10_000}, nil)}},
			noted: `orders.dlq has max-length=10000 by operator policy "plan", which the service's operator sets: a full queue refuses messages`,
		},
		"length by an operator policy, where messages are dropped": {
			api: amqptest.API{Queues: []amqptest.Fields{fine}, Operator: []amqptest.Fields{amqptest.Policy("plan", `^orders\.dlq$`, amqptest.Fields{"max-length": 10_000}, nil)}, Policy: []amqptest.Fields{
				amqptest.Policy("p", `^orders\.dlq$`, amqptest.Fields{"overflow": "drop-head"}, nil)}},
			refused: `queue orders.dlq is max-length=10000 by operator policy "plan": must not be limited`,
		},
		"limit by policy on the DLQ": {
			api:     amqptest.API{Queues: []amqptest.Fields{fine}, Policy: []amqptest.Fields{amqptest.Policy("p", `^orders\.dlq$`, amqptest.Fields{"delivery-limit": 20}, nil)}},
			refused: `queue orders.dlq is delivery-limit=20 by policy "p": must not have a lower limit`,
		},
		"overflow by policy on a level": {
			api:     amqptest.API{Queues: []amqptest.Fields{fine}, Policy: []amqptest.Fields{amqptest.Policy("p", `^orders\.retry\.10s$`, amqptest.Fields{"overflow": "drop-head", "delivery-limit": 20, "message-ttl": 10_000}, nil)}},
			refused: `queue orders.retry.10s is overflow=drop-head by policy "p": must be reject-publish`,
		},
		"TTL by policy on a level": {
			api:     amqptest.API{Queues: []amqptest.Fields{fine}, Policy: []amqptest.Fields{amqptest.Policy("p", `^orders\.retry\.10s$`, amqptest.Fields{"message-ttl": 9_999}, nil)}},
			refused: `queue orders.retry.10s is message-ttl=9999 by policy "p": must not have another TTL`,
		},
		"a policy that dead-letters everything": {
			api: amqptest.API{Queues: []amqptest.Fields{fine}, Policy: []amqptest.Fields{amqptest.Policy("p", ".*", amqptest.Fields{"dead-letter-exchange": "dlx"}, nil)}},
		},
		"feature flag": {
			api:     amqptest.API{Queues: []amqptest.Fields{fine}, Flags: []amqptest.Fields{{"name": "quorum_queue", "state": "enabled"}, {"name": "stream_queue", "state": "disabled"}}},
			refused: "feature flag stream_queue is disabled: must be enabled, or dead-lettering is not at least once, and waiting messages can get lost: rabbitmqctl enable_feature_flag stream_queue",
		},
		"old server": {api: amqptest.API{Version: "3.9.29", Queues: []amqptest.Fields{fine}}, refused: "server is RabbitMQ 3.9.29: must be RabbitMQ 3.10 or later"},
		"stuck": {
			api: amqptest.API{Queues: []amqptest.Fields{
				fine, amqptest.QueueAnswer("orders.retry.10s", amqptest.Level, amqptest.Fields{"messages": 50, "messages_ready": 10, "messages_unacknowledged": 1}),
			}},
			noted: "orders.retry.10s: 39 messages have waited for more than 10s and are stuck: orders.retry does not exist; all that wait on this queue wait behind them. They move within 3 minutes after it can",
		},
		"messages that wait but are not stuck": {api: amqptest.API{Queues: []amqptest.Fields{fine, amqptest.QueueAnswer("orders.retry.10s", amqptest.Level, amqptest.Fields{"messages": 50, "messages_ready": 50})}}},
		"left over": {
			api:   amqptest.API{Queues: []amqptest.Fields{fine, amqptest.QueueAnswer("orders.retry.30s", amqptest.With(amqptest.Level, "x-message-ttl", 30_000), amqptest.Fields{"messages": 7, "messages_ready": 7})}},
			noted: "orders.retry.30s belongs to an older policy; 7 messages wait on it and come back when they are due",
		},
		"left over and empty": {
			api:   amqptest.API{Queues: []amqptest.Fields{fine, amqptest.QueueAnswer("orders.retry.30s", amqptest.With(amqptest.Level, "x-message-ttl", 30_000), nil)}},
			noted: "orders.retry.30s belongs to an older policy and is empty: when no older version",
		},
		"somebody else's queue": {api: amqptest.API{Queues: []amqptest.Fields{fine, amqptest.QueueAnswer("orders.retry.10s.backup", amqptest.Fields{}, nil), amqptest.QueueAnswer("orders.retry.eu", amqptest.Fields{}, nil)}}},
		"down":                  {api: amqptest.API{Queues: []amqptest.Fields{fine, amqptest.QueueAnswer("orders.retry.10s", amqptest.Level, amqptest.Fields{"state": "down"})}}, noted: "orders.retry.10s is down"},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := surveyWith(t, row.api, row.change)
			if err != nil {
				t.Fatal(err)
			}
			var problems []string
			for _, p := range s.Problems {
				problems = append(problems, p.String())
			}
			only(t, "refused", problems, row.refused)
			only(t, "noted", slices.DeleteFunc(s.Notes, func(n string) bool { return row.also != "" && strings.HasPrefix(n, row.also) }), row.noted)
			only(t, "not checked", s.Unchecked, "")
		})
	}
}

func only(t *testing.T, what string, have []string, want string) {
	t.Helper()
	switch {
	case want == "" && len(have) == 0:
	case want != "" && len(have) == 1 && strings.HasPrefix(have[0], want):
	default:
		t.Errorf("%s:\n%s\nwant only:\n%s", what, strings.Join(have, "\n"), want)
	}
}

// The type of the origin is the existing queue's, or else that of the queue that will be created.
func TestTheTypeOfTheOriginIsKnown(t *testing.T) {
	for name, row := range map[string]struct {
		queues []amqptest.Fields
		args   amqp091.Table
		want   bool
	}{
		"redeliver's own":           {nil, nil, false},
		"the server's default":      {nil, amqp091.Table{}, true},
		"quorum, by name":           {nil, amqp091.Table{"x-queue-type": "quorum"}, false},
		"an existing classic queue": {[]amqptest.Fields{amqptest.QueueAnswer("orders", amqptest.Fields{}, nil)}, nil, true},
		"an existing quorum queue":  {[]amqptest.Fields{amqptest.QueueAnswer("orders", amqptest.Quorum, nil)}, amqp091.Table{}, false},
	} {
		change := func(o *layout.Options) { o.QueueArgs = row.args }
		s, err := surveyWith(t, amqptest.API{Queues: row.queues}, change)
		if err != nil {
			t.Fatal(err)
		}
		if s.layout.Classic != row.want {
			t.Errorf("%s: classic is %t, want %t", name, s.layout.Classic, row.want)
		}
	}
}

// A user with few rights gets the permitted checks; the others are reported as not checked.
func TestDeniedResourcesAreNotChecked(t *testing.T) {
	s, err := surveyWith(t, amqptest.API{Deny: []string{"feature-flags", "policies", "operator-policies"}, Queues: []amqptest.Fields{
		amqptest.QueueAnswer("orders", amqptest.Quorum, amqptest.Fields{"policy": "p", "effective_policy_definition": amqptest.Fields{"message-ttl": 1000}}),
		amqptest.QueueAnswer("orders.dlq", amqptest.With(amqptest.With(amqptest.Quorum, "x-delivery-limit", layout.NoLimit), "x-overflow", layout.RejectPublish), amqptest.Fields{"effective_policy_definition": nil}),
	}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	only(t, "noted", s.Notes, `orders has message-ttl=1000 by policy "p"`)
	for _, want := range []string{"feature flags", "policies on queues that do not exist yet", "policies on orders.dlq"} {
		if !slices.ContainsFunc(s.Unchecked, func(u string) bool { return strings.HasPrefix(u, want) }) {
			t.Errorf("%q is not in the list of unchecked items: %q", want, s.Unchecked)
		}
	}
}

func TestUnreadablePatternIsNotChecked(t *testing.T) {
	s, err := surveyWith(t, amqptest.API{Policy: []amqptest.Fields{amqptest.Policy("all", "^(?!amq).*", amqptest.Fields{"max-length": 1}, nil)}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Problems) > 0 || !slices.Contains(s.Unchecked, `whether policy "all" is for orders.dlq (Go cannot read its pattern)`) {
		t.Errorf("problems %v, not checked %q", s.Problems, s.Unchecked)
	}
}

func TestManagementAPIOfAnotherClusterIsRefused(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"rabbitmq_version":"3.10.8","cluster_name":"rabbit@two"}`))
	}))
	t.Cleanup(server.Close)
	s, err := surveyAt(t, server.URL, "3.10.8", nil)
	if err != nil || len(s.Problems) != 1 || s.Problems[0].String() != "ManagementURL is rabbit@two: must belong to the cluster of URLs, which is rabbit@one" {
		t.Error(s.Problems, err)
	}
}

// surveyWith surveys the queue orders on a fake API, with a policy of one level.
func surveyWith(t *testing.T, f amqptest.API, change func(*layout.Options)) (*Survey, error) {
	t.Helper()
	f.Version = cmp.Or(f.Version, "3.10.8")
	return surveyAt(t, f.Start(t), f.Version, change)
}

func surveyAt(t *testing.T, url, version string, change func(*layout.Options)) (*Survey, error) {
	t.Helper()
	opt := layout.Options{
		Topic: "orders", Queue: "orders",
		Policy: redeliver.Policy{Backoff: redeliver.Fixed(10 * time.Second), Levels: []time.Duration{10 * time.Second}},
	}
	if change != nil {
		change(&opt)
	}
	opt.Policy = opt.Policy.WithDefaults()
	b := &Broker{
		Management: management.New(url, "amqp://guest:guest@localhost/", amqp091.Config{}), DialTimeout: 10 * time.Second, ConsumerTimeout: 30 * time.Minute,
	}
	return b.SurveyAs(t.Context(), layout.New(opt), amqptest.Greeting(version))
}
