package amqp

import (
	"fmt"
	"testing"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/delayqueue"
)

// Of several tries to move an entry on the one that was answered counts: a try that no
// queue takes for good may have been followed by one that a queue took, and the answer
// of a write to the DLQ may have come to a try that meant another place.
func TestWhatIsToldOfAnEntryThatWasPassedOn(t *testing.T) {
	f := newFile(t, Config{}, nil)
	l, _ := f.lane(false)
	buried := &redeliver.Decision{State: redeliver.State{ID: "buried", Reason: redeliver.ReasonUnschedulable}}
	for name, row := range map[string]struct {
		then   then
		where  string
		buried *redeliver.Decision
		want   string
	}{
		"hopped":                              {toLevel, "orders.retry.1s", nil, "Hopped m"},
		"hopped to the suspects":              {toSuspects, "orders.retry.suspects", nil, "Hopped m"},
		"published":                           {toOrigin, "queue orders", nil, "Published m"},
		"refused":                             {toLevel, "orders.dlq", buried, "DeadLettered buried"},
		"refused, and taken later":            {toLevel, "orders.retry.1s", buried, "Hopped m"},
		"refused, and published later":        {toOrigin, "queue orders", buried, "Published m"},
		"refused, and unsure when asked next": {toSuspects, "orders.dlq", buried, "DeadLettered buried"},
	} {
		t.Run(name, func(t *testing.T) {
			e := &entry{lane: l, then: row.then}
			var got string
			switch ev := e.passed(row.where, &redeliver.State{ID: "m"}, row.buried, delayqueue.ErrRefused).(type) {
			case redeliver.Hopped:
				got = fmt.Sprint("Hopped ", ev.State.ID)
				if ev.From != "orders" || ev.To != row.where {
					t.Errorf("from %s to %s", ev.From, ev.To)
				}
			case redeliver.Published:
				got = fmt.Sprint("Published ", ev.State.ID)
			case redeliver.DeadLettered:
				got = fmt.Sprint("DeadLettered ", ev.State.ID)
				if ev.Where != row.where || ev.Err != delayqueue.ErrRefused { //nolint:errorlint // it is that one
					t.Errorf("in %s for %v", ev.Where, ev.Err)
				}
			}
			if got != row.want {
				t.Errorf("%s, want %s", got, row.want)
			}
		})
	}
}
