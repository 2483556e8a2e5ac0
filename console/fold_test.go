package console

import (
	"strings"
	"testing"
	"time"

	"github.com/redeliver/redeliver/deadletter"
)

// An error wraps its cause, so a long one keeps its end.
func TestALongErrorKeepsItsEnd(t *testing.T) {
	t.Parallel()
	long := "POST https://bank.example/charge: " + strings.Repeat("again: ", 100) + "connection refused\u202e"
	if got := middle(long); len(got) > maxErrorText+len(`\u202e`) || !strings.HasPrefix(got, "POST https://bank") || !strings.HasSuffix(got, `connection refused\u202e`) {
		t.Errorf("it is %q", got)
	}
}

// Empty queues are listed apart, if they are more than a few and nothing happens to them.
func TestEmptyQueuesFoldAway(t *testing.T) {
	t.Parallel()
	queue := func(name, state string, change func(*queueView)) (v queueView) {
		v.Key, v.State = name, state
		if change != nil {
			change(&v)
		}
		return v
	}
	names := func(all []queueView) (text string) {
		for _, v := range all {
			text += v.Key + " "
		}
		return text
	}
	p := homePage{Queues: []queueView{
		queue("full", "", nil), queue("a", "empty", nil), queue("waits", "empty", func(v *queueView) { v.Waiting = []Level{{Name: "5s", Count: 1}} }), queue("b", "empty", nil),
		queue("busy", "empty", func(v *queueView) { v.Holder = &deadletter.Holder{} }), queue("c", "empty", nil), queue("new", "new", nil),
	}}
	if p.fold(); len(p.Queues) != 7 || p.Quiet != nil {
		t.Errorf("three empty queues: %s, and apart %s", names(p.Queues), names(p.Quiet))
	}
	p.Queues = append(p.Queues, queue("d", "empty", nil))
	if p.fold(); names(p.Queues) != "full waits busy new " || names(p.Quiet) != "a b c d " {
		t.Errorf("four empty queues: %s, and apart %s", names(p.Queues), names(p.Quiet))
	}
	p = homePage{Empty: true, Queues: []queueView{queue("a", "empty", nil), queue("b", "empty", nil), queue("c", "empty", nil), queue("d", "empty", nil)}}
	if p.fold(); len(p.Queues) != 4 {
		t.Errorf("where all are empty: %s, and apart %s", names(p.Queues), names(p.Quiet))
	}
}

func TestEmptyLevelsFoldAway(t *testing.T) {
	t.Parallel()
	all := []Level{{Name: "1s"}, {Name: "5s", Count: 2}, {Name: "30s", Overdue: time.Minute}, {Name: "30m", Count: 700}, {Name: "1h", Late: -1}}
	full, empty := fullLevels(all), emptyLevels(all)
	if len(full) != 3 || full[0].Name != "5s" || full[1].Name != "30s" || full[2].Name != "30m" || len(empty) != 2 || waitingTotal(all) != 702 || len(all) != 5 {
		t.Errorf("full %v, empty %v", full, empty)
	}
}
