package driver_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/deadletter/driver"
)

func named(name, value string) deadletter.Header {
	return deadletter.Header{Name: name, Value: []byte(value)}
}

// A message that was replayed to another program's topic and comes back to a DLQ is recognised, no matter which
// program wrote it there. It has the original user headers.
func TestForeignReplaysAreRecognized(t *testing.T) {
	t.Parallel()
	for writer, adds := range map[deadletter.Writer][]deadletter.Header{
		deadletter.WriterUnknown:   nil,
		deadletter.WriterSpring:    {named("kafka_dlt-original-topic", "orders"), named("kafka_dlt-exception-message", "boom")},
		deadletter.WriterWatermill: {named("reason_poisoned", "boom"), named("topic_poisoned", "orders")},
		deadletter.WriterConnect:   {named("__connect.errors.topic", "orders")},
		deadletter.WriterRabbitMQ:  {named("x-first-death-queue", "orders")},
	} {
		for users, headers := range map[string][]deadletter.Header{
			"no other": {named("tenant", "acme")},
			// A service forwards the headers that it received.
			"copied":    {named("tenant", "acme"), named(redeliver.HeaderID, "orders/0/1"), named(redeliver.HeaderReplays, "7")},
			"an id":     {named("tenant", "acme"), named(redeliver.HeaderID, "made up")},
			"a count":   {named("tenant", "acme"), named(redeliver.HeaderReplays, "7")},
			"no number": {named(redeliver.HeaderID, "made up"), named(redeliver.HeaderReplays, "many")},
			"too many":  {named(redeliver.HeaderID, "made up"), named(redeliver.HeaderReplays, "1000001")},
		} {
			sent := headers
			for round := range 4 {
				m := read(append(append([]deadletter.Header(nil), sent...), adds...))
				if m.Writer != writer || m.ID != "made up" || m.State.Replays != round || fmt.Sprint(m.Headers) != fmt.Sprint(headers) {
					t.Fatalf("written by %q, headers with %s, round %d: written by %q, id %q, %d replays, headers %v", writer, users, round, m.Writer, m.ID, m.State.Replays, m.Headers)
				}
				sent = nil
				for _, h := range driver.ForeignReplayHeaders(m, orders) {
					if !strings.HasPrefix(h.Name, "kafka_dlt-") { // Spring's recoverer adds them again
						sent = append(sent, h)
					}
				}
			}
		}
	}
}
