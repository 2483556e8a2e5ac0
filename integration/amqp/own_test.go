//go:build prove

package amqp_test

import (
	"sync"
	"testing"

	"github.com/redeliver/redeliver/integration/brokers"
)

// Tests that disturb all others share one node, because starting one takes some twenty seconds. First come tests of
// the whole node, then those that close all connections of a virtual host, with one each, then those with a short
// consumer timeout.
//
// Nothing else in this package takes as long, so the node starts before its turn to run in parallel, and its subtests
// do not wait for another turn.
func TestOnANodeOfItsOwn(t *testing.T) {
	node := brokers.OwnRabbitMQSoon(t, brokers.RabbitMQOptions{})
	t.Parallel()
	r := node()
	for _, c := range []struct {
		name string
		run  func(*testing.T, *brokers.Rabbit)
	}{
		{"memory alarm", inMemoryAlarm}, {"disk alarm", inDiskAlarm}, {"closing in an alarm", closeDuringAnAlarm}, {"subscribing in an alarm", subscribeDuringAnAlarm},
		{"stop_app and start_app under traffic", appRestarts}, {"SIGKILL under traffic", nodeIsKilled},
		{"closing on a busy disk", closeOnABusyDisk}, {"releasing on a busy disk", releaseOnABusyDisk},
	} {
		t.Run(c.name, func(t *testing.T) { c.run(t, r) })
	}
	beside := func(all map[string]func(*testing.T, *brokers.Rabbit)) func(*testing.T) {
		return func(t *testing.T) {
			var running sync.WaitGroup
			for name, run := range all {
				running.Go(func() { t.Run(name, func(t *testing.T) { run(t, r.VirtualHost(t)) }) })
			}
			running.Wait()
		}
	}
	t.Run("side by side", beside(map[string]func(*testing.T, *brokers.Rabbit){
		"connections closed under traffic": closedUnderTraffic, "a stale ack settles nothing": staleAckSettlesNothing,
		"lost connections charge no suspect":     lostConnectionsChargeNoSuspect,
		"a leader does not answer":               leaderDoesNotAnswer,
		"closing while a queue confirms nothing": closeWithoutAConfirm,
		"Consume over lost connections":          consumesOverLostConnections,
		"a quorum queue's killer, by SIGKILL":    func(t *testing.T, r *brokers.Rabbit) { crashes(t, r, false, false) },
		"a quorum queue's killer, by os.Exit":    func(t *testing.T, r *brokers.Rabbit) { crashes(t, r, false, true) },
		"a classic queue's killer, by SIGKILL":   func(t *testing.T, r *brokers.Rabbit) { crashes(t, r, true, false) },
		"a classic queue's killer, by os.Exit":   func(t *testing.T, r *brokers.Rabbit) { crashes(t, r, true, true) },
	}))
	setConsumerTimeout(t, r) // with all its virtual hosts
	t.Run("with a short consumer timeout", beside(map[string]func(*testing.T, *brokers.Rabbit){
		"timeout behind slow handlers": staysBehindSlowHandler,
		"held for a long delay":        heldLong, "a handler that runs longer": runsLonger,
	}))
}
