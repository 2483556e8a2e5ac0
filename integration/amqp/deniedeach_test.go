//go:build prove

package amqp_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/redeliver/redeliver/integration/brokers"
)

// Each operation is denied alone, before a run or during it. Within a minute an event names it and the subscription is
// not ready. A minute after the right is back, it is ready and messages run. The operations are those of a run, so that
// a new one is tested, too.
func TestEachOperationDeniedAlone(t *testing.T) {
	t.Parallel()
	r := brokers.RequireRabbitMQ(t)
	atStart, later := usedOperations(t, r)
	var running sync.WaitGroup
	slots := make(chan struct{}, 8)
	test := func(when string, o operation, deny func(*deniedRun, operation)) {
		running.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			t.Run(fmt.Sprintf("%s %s", when, o), func(t *testing.T) {
				run := newDeniedRun(t, r, nil)
				deny(run, operation{o.method, strings.Replace(o.place, "orders", run.queue, 1)})
			})
		})
	}
	for o := range atStart {
		test("before", o, (*deniedRun).denyBefore)
		// Deleted queues, exchanges and bindings are declared again; but the marker of pauses is only looked for every five
		// minutes.
		if o.place != "orders.retry.paused" && slices.Contains([]string{"queue.declare", "queue.bind", "exchange.declare"}, o.method) {
			later[o]++
		}
	}
	for o := range later {
		if atStart[o] == 0 {
			test("before", o, (*deniedRun).denyBefore)
		}
		test("during", o, (*deniedRun).denyDuring)
	}
	running.Wait()
}

// usedOperations returns the operations of a run with all kinds of traffic, at its start and later, for a queue named
// orders. It fails the test if the plan does not name the right to one of them.
func usedOperations(t *testing.T, r *brokers.Rabbit) (atStart, later map[operation]int) {
	t.Helper()
	run := newDeniedRun(t, r, nil)
	if err := run.start(); err != nil {
		t.Fatal(err)
	}
	run.awaitChange("consuming", 1)
	atStart = run.proxy.operations()
	run.exercise()
	later = run.proxy.operations()
	plan, err := run.operator.Plan(t.Context(), run.queue)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]string{
		"configure": slices.Concat(plan.Rights.Configure, plan.CreationRights.Configure), "write": slices.Concat(plan.Rights.Write, plan.CreationRights.Write),
		"read": slices.Concat(plan.Rights.Read, plan.CreationRights.Read),
	}
	named := func(used map[operation]int) map[operation]int {
		of := make(map[operation]int)
		for o, n := range used {
			if !slices.Contains(all[o.right()], o.place) {
				t.Errorf("%s needs the right to %s %s, which the plan does not name", o, o.right(), o.place)
			}
			of[operation{o.method, strings.Replace(o.place, run.queue, "orders", 1)}] = n
		}
		t.Logf("report: it uses %v", of)
		return of
	}
	if atStart, later = named(atStart), named(later); len(atStart) < 15 || len(later) < 8 {
		t.Fatal("these are too few")
	}
	return atStart, later
}
