package cli

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redeliver/redeliver/deadletter"
)

// readByOthers is a DLQ that counts no message, and that consumers of another program read.
type readByOthers struct {
	named
	consumers int
}

func (q readByOthers) Count(context.Context) (n int64, exact bool, err error) { return 0, false, nil }
func (q readByOthers) Uncounted(context.Context) (int, error)                 { return q.consumers, nil }
func (q readByOthers) Oldest(context.Context) (at time.Time, ok bool, err error) {
	return at, false, nil
}
func (q readByOthers) Retention(context.Context) (time.Duration, error) { return 0, nil }
func (q readByOthers) DropLimit(context.Context) (string, error)        { return "", nil }
func (q readByOthers) Tasks(context.Context) ([]deadletter.Task, error) { return nil, nil }
func (q readByOthers) Holder(context.Context) (deadletter.Holder, bool, error) {
	return deadletter.Holder{}, false, nil
}

// A DLQ whose messages a consumer may hold is not healthy: nobody has counted them.
func TestCheckFindsConsumersWhoseMessagesAreNotCounted(t *testing.T) {
	t.Parallel()
	for consumers, want := range map[int]string{0: "", 3: "unknown: 3 consumers read it"} {
		q := readByOthers{named{info: deadletter.Info{DLQ: "orders.dlq", Origin: "orders"}}, consumers}
		row, err := (&checks{}).checkDLQ(t.Context(), &app{}, q.Info(), q)
		if err != nil {
			t.Fatal(err)
		}
		var found []string
		for _, f := range row.Findings {
			found = append(found, f.Kind+": "+f.Text)
		}
		if all := strings.Join(found, "\n"); !strings.HasPrefix(all, want) || (all == "") != (want == "") {
			t.Errorf("with %d consumers it finds %q, want %q", consumers, all, want)
		}
	}
}
