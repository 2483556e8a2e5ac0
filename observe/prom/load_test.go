package prom_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/observe"
	"github.com/redeliver/redeliver/observe/prom"
	"github.com/redeliver/redeliver/redelivertest"
)

const inHand = `
# HELP redeliver_held_messages Messages that were read and wait in this process: until they are due, for another message, or for a slot.
# TYPE redeliver_held_messages gauge
redeliver_held_messages{group="billing",messaging_system="kafka",origin="orders"} %HELD
# HELP redeliver_in_flight_messages Messages in this process whose handler runs, or that are being written to a level or the DLQ.
# TYPE redeliver_in_flight_messages gauge
redeliver_in_flight_messages{group="billing",messaging_system="kafka",origin="orders"} %FLIGHT
`

// While three handlers block, three messages are in flight, and one that waits for its retry is held. Two members of a
// group are one series, which ends with the last of them.
func TestLoadIsRequestedAtEachScrape(t *testing.T) {
	s, r := newSink(t)
	want := func(inFlight, held string) {
		t.Helper()
		same(t, r, strings.NewReplacer("%HELD", held, "%FLIGHT", inFlight).Replace(inHand), "redeliver_in_flight_messages", "redeliver_held_messages")
	}
	redelivertest.Run(t, func(_ *testing.T, b *redelivertest.Broker) {
		gate := make(chan struct{})
		c := b.Open(redelivertest.Config{
			Group: "billing", Sink: observe.Sinks(s, redeliver.NewSlogSink(nil)), Policy: redeliver.Policy{MaxRetries: 1, Backoff: redeliver.Fixed(10 * time.Second)},
		})
		handle := func(msg *message.Message) error {
			if st, _ := redeliver.FromContext(msg.Context()); msg.UUID == "fails" && st.Attempt() == 1 {
				return errDeclined
			}
			<-gate
			return nil
		}
		c.Handle("orders", handle)
		orders := c.Handle("orders", handle)
		synctest.Wait()
		want("0", "0")
		for _, id := range []string{"one", "two", "three", "fails"} {
			b.Publish("orders", message.NewMessage(id, nil))
		}
		synctest.Wait()
		want("3", "1")
		close(gate)
		for _, id := range []string{"one", "two", "three", "fails"} {
			orders.Outcome(id)
		}
		synctest.Wait()
		want("0", "0")
	})
	same(t, r, "", "redeliver_in_flight_messages", "redeliver_held_messages")
}

// A group whose name is not UTF-8 is an error of the scrape, which still has the others. A panic would end the
// process.
func TestAGroupThatPrometheusCannotNameEndsNoProcess(t *testing.T) {
	const bad = "billing\xff"
	s, r := newSink(t)
	for _, group := range []string{bad, "billing"} {
		s.Watch("orders", group, func() observe.Load { return observe.Load{InFlight: 1, Held: 2} })
	}
	waiting := watch(t, prom.Waiting{Origin: "orders", Group: bad, Levels: func(context.Context) ([]deadletter.WaitingLevel, error) { return nil, errDeclined }})
	dlqs, err := prom.NewDLQs(prom.DLQConfig{System: "kafka", Queues: []deadletter.Queue{silentDLQ{group: bad}}})
	if err != nil {
		t.Fatal(err)
	}
	dead := prometheus.NewPedanticRegistry()
	dead.MustRegister(dlqs)
	for _, c := range []struct {
		what   string
		from   prometheus.Gatherer
		series int // that are reported nevertheless
	}{{"in hand", r, 2}, {"waiting", waiting, 0}, {"dead letters", dead, 0}} {
		all, err := c.from.Gather()
		if err == nil || !strings.Contains(err.Error(), "UTF-8") {
			t.Errorf("%s: the error of the scrape is %v", c.what, err)
		}
		n := 0
		for _, family := range all {
			n += len(family.GetMetric())
		}
		if n != c.series {
			t.Errorf("%s: there are %d series, want %d", c.what, n, c.series)
		}
	}
}

// silentDLQ is a DLQ of a group whose broker does not answer.
type silentDLQ struct {
	deadletter.Queue

	group string
}

func (q silentDLQ) Info() deadletter.Info {
	return deadletter.Info{DLQ: "orders.dlq", Origin: "orders", Group: q.group}
}

func (silentDLQ) Count(context.Context) (int64, bool, error) { return 0, false, errDeclined }
