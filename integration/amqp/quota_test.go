//go:build prove

package amqp_test

import (
	"crypto/rand"
	"errors"
	"net/url"
	"slices"
	"strings"
	"testing"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/amqp"
	"github.com/redeliver/redeliver/integration/brokers"
)

// newRunOfUser returns a run in a virtual host of its own, with a user of its own who has all rights there.
func newRunOfUser(t *testing.T, shared *brokers.Rabbit, change func(*fixture)) (run *deniedRun, a *admin, user string) {
	t.Helper()
	r := shared.VirtualHost(t)
	a, user = newAdmin(t, r), strings.ToLower("user-"+rand.Text()[:8])
	a.put(t, fields{"password": "s3cret", "tags": ""}, "users", user)
	t.Cleanup(func() { a.delete(t, "users", user) })
	a.put(t, fields{"configure": ".*", "write": ".*", "read": ".*"}, "permissions", r.VHost(), user)
	return newDeniedRun(t, r, func(l *fixture) {
		u, err := url.Parse(l.cfg.URLs[0])
		if err != nil {
			t.Fatal(err)
		}
		u.User = url.UserPassword(user, "s3cret")
		l.cfg.URLs = []string{u.String()}
		if change != nil {
			change(l)
		}
	}), a, user
}

// wantChange waits until an event has each text in its detail or error, and until the subscription is not ready.
func (r *deniedRun) wantChange(do func(), texts ...string) {
	r.Helper()
	r.within("an event has "+strings.Join(texts, ", "), do, func() bool {
		return len(r.troublesLocked()) > 0 && slices.ContainsFunc(r.events, func(e redeliver.Event) bool {
			c, ok := e.(redeliver.SubscriptionChanged)
			return ok && c.Err != nil && !slices.ContainsFunc(texts, func(text string) bool {
				return !strings.Contains(c.Detail+" "+c.Err.Error(), text)
			})
		})
	})
}

// The virtual host may have no more queues. The start is refused with the limit, and once it is raised, it succeeds. A
// deleted queue that may not be declared again is reported.
func TestALimitOnQueues(t *testing.T) {
	t.Parallel()
	for version, shared := range brokers.RequireRabbitMQs(t) {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			r, a, _ := newRunOfUser(t, shared, nil)
			limit := func(n int) {
				a.put(t, fields{"value": n}, "vhost-limits", r.rabbit.VHost(), "max-queues")
			}
			limit(2)
			err := r.start()
			if !errors.Is(err, redeliver.ErrConfig) || !strings.Contains(err.Error(), "queue limit in vhost") || !strings.Contains(err.Error(), "rabbitmqctl set_vhost_limits") || strings.Contains(err.Error(), "otherwise") {
				t.Errorf("the start is refused with %v", err)
			}
			limit(100)
			if err := r.start(); err != nil {
				t.Fatal(err)
			}
			r.traffic()
			r.awaitAll()
			limit(1)
			r.delete(".retry")
			r.wantChange(func() {}, "declaring the queues", r.queue+".retry", "queue limit in vhost", "rabbitmqctl set_vhost_limits")
			limit(100)
			r.wantRecovery(operation{Method: "queue.declare", Place: r.queue + ".retry"})
		})
	}
}

// The virtual host, or the user, may have no more connections, or no more channels.
func TestALimitOnConnections(t *testing.T) {
	t.Parallel()
	for version, shared := range brokers.RequireRabbitMQs(t) {
		for name, limit := range map[string]struct {
			path   func(vhost, user string) []string
			fewest int
			want   string
		}{
			"connections of the virtual host": {func(vhost, _ string) []string { return []string{"vhost-limits", vhost, "max-connections"} }, 0, "connection limit"},
			"connections of the user":         {func(_, user string) []string { return []string{"user-limits", user, "max-connections"} }, 0, "connection limit"},
			"channels of the user":            {func(_, user string) []string { return []string{"user-limits", user, "max-channels"} }, 1, "number of channels opened for user"},
		} {
			t.Run(name+", "+version, func(t *testing.T) {
				t.Parallel()
				r, a, user := newRunOfUser(t, shared, nil)
				path := func() []string { return limit.path(r.rabbit.VHost(), user) }
				lower := func() { a.put(t, fields{"value": limit.fewest}, path()...) }
				lower()
				refused, err := amqp.Open(t.Context(), r.cfg)
				if err == nil {
					err = errors.Join(refused.Subscriber().SubscribeInitialize(r.queue), refused.Close(t.Context()))
				}
				if err == nil || !strings.Contains(err.Error(), limit.want) {
					t.Errorf("the start is refused with %v", err)
				}
				a.delete(t, path()...)
				if err := r.start(); err != nil {
					t.Fatal(err)
				}
				r.traffic()
				r.awaitAll()
				lower()
				r.proxy.Cut()
				r.wantChange(func() {}, limit.want)
				a.delete(t, path()...)
				r.wantRecovery(operation{})
			})
		}
	}
}

// The user may write to a topic exchange, but not with the routing key. A delayed publish waits until it may.
func TestADeniedRoutingKey(t *testing.T) {
	t.Parallel()
	for version, shared := range brokers.RequireRabbitMQs(t) {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			r, a, user := newRunOfUser(t, shared, func(l *fixture) { l.cfg.Topology.Kind = amqp091.ExchangeTopic })
			if err := r.start(); err != nil {
				t.Fatal(err)
			}
			r.traffic()
			r.awaitAll()
			a.put(t, fields{"exchange": r.queue + ".exchange", "write": "^nothing$", "read": ".*"}, "topic-permissions", r.rabbit.VHost(), user)
			r.proxy.Cut() // a busy channel keeps the rights that it had
			r.wantChange(r.traffic, "publish", r.queue+".exchange", "ACCESS_REFUSED", "rabbitmqctl set_topic_permissions")
			a.delete(t, "topic-permissions", r.rabbit.VHost(), user)
			r.wantRecovery(operation{})
		})
	}
}
