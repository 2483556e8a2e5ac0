package prom_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/redelivertest"
)

const inHand = `
# HELP redeliver_held_messages Messages that were read and wait in this process: for their time, behind another one, or for a place.
# TYPE redeliver_held_messages gauge
redeliver_held_messages{group="billing",messaging_system="kafka",origin="orders"} %HELD
# HELP redeliver_in_flight_messages Messages that handlers have, or that are being written to where they go, in this process.
# TYPE redeliver_in_flight_messages gauge
redeliver_in_flight_messages{group="billing",messaging_system="kafka",origin="orders"} %FLIGHT
`

// While three handlers stand, three are in flight; what waits for its retry is held. Two
// members of a group are one series, which ends with the last of them.
func TestWhatIsInHandIsAskedAtAScrape(t *testing.T) {
	s, r := sink(t)
	want := func(inFlight, held string) {
		t.Helper()
		same(t, r, strings.NewReplacer("%HELD", held, "%FLIGHT", inFlight).Replace(inHand), "redeliver_in_flight_messages", "redeliver_held_messages")
	}
	redelivertest.Run(t, func(_ *testing.T, b *redelivertest.Broker) {
		gate := make(chan struct{})
		c := b.Open(redelivertest.Config{
			Group: "billing", Sink: redeliver.Sinks(s, redeliver.NewSlogSink(nil)), Policy: redeliver.Policy{MaxRetries: 1, Backoff: redeliver.Fixed(10 * time.Second)},
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
