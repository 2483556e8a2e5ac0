//go:build prove

package amqp_test

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/amqp"
	"github.com/redeliver/redeliver/integration/brokers"
	"github.com/redeliver/redeliver/integration/methodproxy"
	"github.com/redeliver/redeliver/mq"
)

// Each operation is denied alone, before a run or during it. Within a minute an event names it and the subscription is
// not ready. A minute after the right is back, it is ready and messages run. The operations are those of a run, so that
// a new one is tested, too.
func TestEachOperationDeniedAlone(t *testing.T) {
	t.Parallel()
	r := brokers.RequireRabbitMQ(t)
	var running sync.WaitGroup
	slots := make(chan struct{}, 8)
	known := make(map[operation]bool)
	for _, order := range []redeliver.Order{redeliver.OrderFirstAttempts, redeliver.OrderBlocking} {
		change := func(l *fixture) { l.cfg.Policy.Order = order }
		atStart, later := usedOperations(t, r, change)
		test := func(when string, o operation, deny func(*deniedRun, operation)) {
			running.Go(func() {
				slots <- struct{}{}
				defer func() { <-slots }()
				t.Run(fmt.Sprintf("%s %s, %s", when, o, order), func(t *testing.T) {
					run := newDeniedRun(t, r, change)
					deny(run, operation{Method: o.Method, Place: strings.Replace(o.Place, "orders", run.queue, 1)})
				})
			})
		}
		isNew := func(o operation) bool {
			return order == redeliver.OrderFirstAttempts || o.Place == "orders" || !known[o]
		}
		for o := range atStart {
			if isNew(o) {
				test("before", o, (*deniedRun).denyBefore)
			}
			// Deleted queues, exchanges and bindings are declared again; but the marker of pauses and the counts of crashes are
			// only looked for every five minutes.
			if o.Place != "orders.retry.paused" && o.Place != "orders.retry.place" && slices.Contains([]string{"queue.declare", "queue.bind", "exchange.declare"}, o.Method) {
				later[o]++
			}
		}
		for o := range later {
			if atStart[o] == 0 && isNew(o) {
				test("before", o, (*deniedRun).denyBefore)
			}
			if isNew(o) {
				test("during", o, (*deniedRun).denyDuring)
			}
		}
		for _, used := range []map[operation]int{atStart, later} {
			for o := range used {
				known[o] = true
			}
		}
	}
	running.Wait()
}

// usedOperations returns the operations of a run with all kinds of traffic, at its start and later, for a queue named
// orders. It fails the test if the plan does not name the right to one of them.
func usedOperations(t *testing.T, r *brokers.Rabbit, change func(*fixture)) (atStart, later map[operation]int) {
	t.Helper()
	run := newDeniedRun(t, r, change)
	if err := run.start(); err != nil {
		t.Fatal(err)
	}
	run.awaitChange("consuming", 1)
	atStart = run.proxy.Operations()
	run.exercise()
	later = run.proxy.Operations()
	plan, err := run.operator.Plan(t.Context(), run.queue)
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string][]string)
	for _, right := range []string{"configure", "write", "read"} {
		all[right] = mq.Allowing(slices.Concat(plan.Rights, plan.CreationRights), right)
	}
	named := func(used map[operation]int) map[operation]int {
		of := make(map[operation]int)
		for o, n := range used {
			if !slices.Contains(all[o.Right()], o.Place) {
				t.Errorf("%s needs the right to %s %s, which the plan does not name", o, o.Right(), o.Place)
			}
			of[operation{Method: o.Method, Place: strings.Replace(o.Place, run.queue, "orders", 1)}] = n
		}
		t.Logf("report: it uses %v", of)
		return of
	}
	if atStart, later = named(atStart), named(later); len(atStart) < 15 || len(later) < 8 {
		t.Fatal("these are too few")
	}
	return atStart, later
}

// Each argument of each queue is refused alone, as by a broker that does not know it. Either messages are retried and
// dead-lettered without it, or the start is refused with the remedy.
func TestEachArgumentRefusedAlone(t *testing.T) {
	t.Parallel()
	r := brokers.RequireRabbitMQ(t)
	plan, err := newDeniedRun(t, r, nil).operator.Plan(t.Context(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	var mu sync.Mutex
	var without []string
	slots := make(chan struct{}, 8)
	for _, q := range plan.Places {
		for argument := range q.Settings {
			running.Go(func() {
				slots <- struct{}{}
				defer func() { <-slots }()
				// The name of the test is part of the queue's name, in which the proxy must not find the argument.
				t.Run(q.Kind+" "+strings.TrimPrefix(argument, "x-"), func(t *testing.T) {
					run := newDeniedRun(t, r, nil)
					// The level of the run is another one than that of the plan.
					name := run.queue + strings.Replace(strings.TrimPrefix(q.Name, "orders"), ".retry.1s", ".retry.200ms", 1)
					run.proxy.RefuseArgument(name, argument)
					if err := run.start(); err != nil {
						if !errors.Is(err, redeliver.ErrConfig) || !strings.Contains(err.Error(), "invalid arg '"+argument+"' for queue '"+name+"'") || !strings.Contains(err.Error(), "Use a broker that knows this argument") {
							t.Errorf("the start is refused with %v", err)
						}
						return
					}
					mu.Lock()
					without = append(without, q.Kind+" "+argument)
					mu.Unlock()
					run.traffic()
					run.awaitAll()
					run.pauseAndResume()
					run.mu.Lock()
					defer run.mu.Unlock()
					if !slices.ContainsFunc(run.events, func(e redeliver.Event) bool {
						c, ok := e.(redeliver.SubscriptionChanged)
						return ok && c.Change == redeliver.ChangeSettingRefused && c.Detail == "queue "+name && strings.Contains(c.Err.Error(), argument)
					}) {
						t.Errorf("no event says what was left out: %q", run.changesLocked())
					}
				})
			})
		}
	}
	running.Wait()
	slices.Sort(without)
	if want := []string{"dlq x-overflow", "paused x-max-length", "retry x-delivery-limit", "suspects x-delivery-limit"}; !slices.Equal(without, want) {
		t.Errorf("it works without %q, want %q", without, want)
	}
}

// Each right that the plan names is taken away alone, from the permissions of the service's user.
func TestEachRightTakenAwayAlone(t *testing.T) {
	t.Parallel()
	for version, r := range brokers.RequireRabbitMQs(t) {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			eachRightTakenAwayAlone(t, r)
		})
	}
}

func eachRightTakenAwayAlone(t *testing.T, shared *brokers.Rabbit) {
	r := shared.VirtualHost(t)
	var running sync.WaitGroup
	slots := make(chan struct{}, 6)
	for o := range operationsOfRights(t, r) {
		for when, deny := range map[string]func(*deniedRun, operation){"before": (*deniedRun).denyBefore, "during": (*deniedRun).denyDuring} {
			if when == "during" && o.Method == methodproxy.PassiveDeclare { // only every five minutes
				continue
			}
			running.Go(func() {
				slots <- struct{}{}
				defer func() { <-slots }()
				t.Run(fmt.Sprintf("%s %s", when, o), func(t *testing.T) {
					run := newRunWithRights(t, r)
					deny(run, operation{Method: o.Method, Place: strings.Replace(o.Place, "orders", run.queue, 1)})
				})
			})
		}
	}
	running.Wait()
}

// operationsOfRights returns an operation for each right that a plan names, for a queue named orders.
func operationsOfRights(t *testing.T, r *brokers.Rabbit) map[operation]bool {
	t.Helper()
	run := newDeniedRun(t, r, func(l *fixture) { l.cfg.NoProvisioning = true })
	run.provision()
	plan, err := run.operator.Plan(t.Context(), run.queue)
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[operation]bool)
	add := func(method string, places []string) {
		for _, place := range places {
			if method == "basic.consume" && (place == run.queue+".retry.suspects" || place == run.queue+".retry.paused") {
				all[operation{Method: "basic.get", Place: strings.Replace(place, run.queue, "orders", 1)}] = true
				continue
			}
			all[operation{Method: method, Place: strings.Replace(place, run.queue, "orders", 1)}] = true
		}
	}
	add(methodproxy.PassiveDeclare, mq.Allowing(plan.Rights, "configure"))
	add("basic.consume", mq.Allowing(plan.Rights, "read"))
	add("basic.publish", mq.Allowing(plan.Rights, "write"))
	return all
}

// newRunWithRights returns a run whose user has exactly the rights of the plan.
func newRunWithRights(t *testing.T, r *brokers.Rabbit) *deniedRun {
	t.Helper()
	a, user := newAdmin(t, r), strings.ToLower("user-"+rand.Text()[:8])
	a.put(t, fields{"password": "s3cret", "tags": ""}, "users", user)
	t.Cleanup(func() { a.delete(t, "users", user) })
	run := newDeniedRun(t, r, func(l *fixture) {
		u, err := url.Parse(l.cfg.URLs[0])
		if err != nil {
			t.Fatal(err)
		}
		u.User = url.UserPassword(user, "s3cret")
		l.cfg.URLs, l.cfg.NoProvisioning, l.cfg.Topology.Existing = []string{u.String()}, true, true
		a.put(t, fields{"configure": "^$", "write": "^$", "read": "^$"}, "permissions", r.VHost(), user)
	})
	run.provision()
	plan, err := run.operator.Plan(t.Context(), run.queue)
	if err != nil {
		t.Fatal(err)
	}
	set := func(without operation) {
		pattern := func(right string, names []string) string {
			all := []string{"nothing"}
			for _, name := range names {
				if without.Right() != right || without.Place != name {
					all = append(all, regexp.QuoteMeta(name))
				}
			}
			return "^(" + strings.Join(all, "|") + ")$"
		}
		rights := plan.Rights
		a.put(t, fields{"configure": pattern("configure", mq.Allowing(rights, "configure")), "write": pattern("write", mq.Allowing(rights, "write")), "read": pattern("read", mq.Allowing(rights, "read"))}, "permissions", r.VHost(), user)
	}
	set(operation{})
	run.deny, run.cuts = func(o operation) (allow func()) {
		set(o)
		return func() { set(operation{}) }
	}, true
	return run
}

// provision declares all that a run needs, with a client that may.
func (r *deniedRun) provision() {
	r.Helper()
	cfg := r.cfg
	cfg.URLs, cfg.NoProvisioning, cfg.Topology.Existing = []string{r.rabbit.URL()}, false, false
	c, err := amqp.Open(r.Context(), cfg)
	if err != nil {
		r.Fatal(err)
	}
	if err := errors.Join(c.Subscriber().SubscribeInitialize(r.queue), c.Close(r.Context())); err != nil {
		r.Fatal(err)
	}
}
