package adaptertest

import (
	"context"
	_ "embed" // the table
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redeliver/redeliver"
)

// BatchTable shows which answer counts in a batch of two messages. docs/reference/batching.md links to it.
//
//go:embed batchtable.md
var BatchTable string

// BatchRow is a row of BatchTable.
type BatchRow struct {
	Calls, Returns string    // of the batch function
	Outcomes       [2]string // of each message
}

// BatchRows returns the rows of BatchTable.
func BatchRows(tb testing.TB) (rows []BatchRow) {
	tb.Helper()
	for _, cells := range cellsOfRows(tb, BatchTable, 4, 30) {
		rows = append(rows, BatchRow{cells[0], cells[1], [2]string(cells[2:])})
	}
	return rows
}

// batchKeyTable shows which answer counts in a batch of two messages of one key.
//
//go:embed batchkeytable.md
var batchKeyTable string

// BatchKeyRow is a row of that table. The outcomes of the second message differ.
type BatchKeyRow struct {
	BatchRow
	First     string
	Overtakes string // with OrderFirstAttempts
	InPlace   string // in an order in which a failed message keeps its place
}

// BatchKeyRows returns the rows of the table of one key.
func BatchKeyRows(tb testing.TB) (rows []BatchKeyRow) {
	tb.Helper()
	for _, cells := range cellsOfRows(tb, batchKeyTable, 5, 15) {
		rows = append(rows, BatchKeyRow{BatchRow{Calls: cells[0], Returns: cells[1]}, cells[2], cells[3], cells[4]})
	}
	return rows
}

// cellsOfRows returns the cells of a table with at least minRows rows.
func cellsOfRows(tb testing.TB, table string, columns, minRows int) (rows [][]string) {
	tb.Helper()
	for _, row := range strings.Split(strings.TrimSpace(table), "\n")[2:] {
		cells := strings.Split(strings.Trim(row, "| "), " | ")
		if len(cells) != columns {
			tb.Fatalf("not %d cells: %s", columns, row)
		}
		rows = append(rows, cells)
	}
	if len(rows) < minRows {
		tb.Fatalf("%d rows: this test does not read the table", len(rows))
	}
	return rows
}

// Run acts as the row's batch function on a batch of two messages. A function that exceeds the Timeout returns when
// late is closed.
func (r BatchRow) Run(ctx context.Context, tb testing.TB, b *Batch, late <-chan struct{}) error {
	tb.Helper()
	r.makeCalls(tb, b)
	switch r.Returns {
	case "nil":
		return nil
	case "an error":
		return errHandler
	case "a panic":
		panic("boo")
	case "`RetryAfter` 1h":
		return redeliver.RetryAfter(errHandler, time.Hour)
	case "`Permanent`":
		return redeliver.Permanent(errHandler)
	case "not within the Timeout":
		<-ctx.Done()
		if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
			tb.Errorf("the context of the batch ended with %v", ctx.Err())
		}
		<-late
		return nil
	default:
		tb.Errorf("%q is unknown", r.Returns)
		return nil
	}
}

var call = regexp.MustCompile("`(m[12]\\.)?([A-Z][A-Za-z]+)(?:\\((\\w+)\\))?`")

// makeCalls makes r.Calls.
func (r BatchRow) makeCalls(tb testing.TB, b *Batch) {
	tb.Helper()
	calls := call.FindAllStringSubmatch(r.Calls, -1)
	if len(calls) == 0 && r.Calls != "nothing" {
		tb.Errorf("no calls in %q", r.Calls)
	}
	counted := map[string]bool{}
	for _, c := range calls {
		m, on, counts := b.Messages[0], "", false
		if c[1] == "m2." {
			m = b.Messages[1]
		}
		if c[1] != "" {
			on = "m."
		}
		switch on + c[2] {
		case "m.Ack":
			counts = m.Ack()
		case "m.Retry":
			counts = m.Retry()
		case "m.RetryAfter":
			counts = m.RetryAfter(length(tb, c[3]))
		case "m.Reject":
			counts = m.Reject("no such schema")
		case "AckAll":
			counts = b.AckAll()
		case "RetryAll":
			counts = b.RetryAll()
		case "RetryAllAfter":
			counts = b.RetryAllAfter(length(tb, c[3]))
		default:
			tb.Errorf("%q is unknown", c[0])
		}
		if counts == counted[c[1]] { // only the first one counts
			tb.Errorf("%s says %t", c[0], counts)
		}
		counted[c[1]] = true
	}
}

func length(tb testing.TB, text string) time.Duration {
	tb.Helper()
	if text == "0" {
		return 0
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		tb.Error(err)
	}
	return d
}

// BatchPolicyDelay is the only delay of the policy of runRows.
const BatchPolicyDelay = 10 * time.Minute

// OutcomeOfDelay returns the table's text for a message that waits for delay.
func OutcomeOfDelay(delay time.Duration) string {
	if delay == BatchPolicyDelay {
		return "retry, as the policy says"
	}
	d := delay.String()
	if d != "0s" {
		d = strings.TrimSuffix(strings.TrimSuffix(d, "0s"), "0m")
	}
	return "retry after " + d
}

// tableHolds checks the rows of BatchTable: first those whose function returns in time, with a long Timeout, and then the others.
func tableHolds(b *fixture) {
	var inTime, late []BatchRow
	for _, row := range BatchRows(b) {
		if row.Returns == "not within the Timeout" {
			late = append(late, row)
		} else {
			inTime = append(inTime, row)
		}
	}
	runRows(b, "in-time", inTime, Timeout)
	runRows(b, "late", late, 2*time.Second)
}

// runRows runs each row as a batch under a policy with this Timeout, and checks the outcomes. Delayed retries wait for longer than
// the test. An immediate retry gets another message to fill its batch. If a duplicate gets into a row's batch, the row is repeated.
// After an error of the whole batch that would end its messages, each runs again alone, and then the error is its own.
func runRows(b *fixture, name string, rows []BatchRow, timeout time.Duration) {
	const tries = 10
	policy := redeliver.Policy{
		Backoff: redeliver.Fixed(BatchPolicyDelay), Levels: []time.Duration{5 * time.Minute, BatchPolicyDelay, time.Hour}, Timeout: timeout,
	}
	var mu sync.Mutex
	var now BatchRow
	var ids []string // of its messages
	var duplicated bool
	var late chan struct{}
	p := b.startBatch(Config{Policy: policy}, redeliver.BatchConfig{Size: 2}, func(ctx context.Context, mb *Batch) error {
		var fresh []string
		for _, m := range mb.Messages {
			if st := m.State(); st.Attempts == 0 {
				fresh = append(fresh, st.ID)
			}
		}
		mu.Lock()
		row, late := now, late
		plays := len(fresh) == len(mb.Messages) && (slices.Equal(fresh, ids) ||
			row.Returns == "`Permanent`" && len(fresh) == 1 && slices.Contains(ids, fresh[0]))
		duplicated = duplicated || !plays && slices.ContainsFunc(fresh, func(id string) bool { return slices.Contains(ids, id) })
		mu.Unlock()
		if !plays {
			return nil
		}
		return row.Run(ctx, b.T, mb, late)
	})
	runRow := func(row BatchRow, id string) (got [2]string, isAlone bool) {
		over := make(chan struct{})
		defer close(over) // the late answer of a function that exceeded its Timeout has no effect
		mu.Lock()
		now, ids, duplicated, late = row, []string{id + "-m1", id + "-m2"}, false, over
		mu.Unlock()
		b.put(namedMessages(ids...)...)
		for i, id := range ids {
			b.await(fmt.Sprintf("%s has an end: %+v", id, row), func() bool {
				got[i] = b.outcome(id)
				return got[i] != ""
			})
		}
		mu.Lock()
		defer mu.Unlock()
		return got, !duplicated
	}
	for i, row := range rows {
		id := fmt.Sprintf("%s-%02d", name, i)
		got, isAlone := runRow(row, id)
		for try := 1; !isAlone && try < tries; try++ {
			id = fmt.Sprintf("%s-%02d-again-%d", name, i, try)
			got, isAlone = runRow(row, id)
		}
		if !isAlone || got != row.Outcomes {
			b.Errorf("%s and %s: %q, want %q; alone in their batch: %t", row.Calls, row.Returns, got, row.Outcomes, isAlone)
		}
		if got[0] == OutcomeOfDelay(0) {
			b.put(namedMessages(id + "-x")...)
			b.awaitEnds(id+"-m1", id+"-x")
		}
	}
	p.close()
}

// outcome returns the outcome of a message's first attempt, or "".
func (b *fixture) outcome(id string) string {
	for _, e := range eventsOf[redeliver.RetryScheduled](b.journal) {
		if e.State.ID == id {
			return OutcomeOfDelay(e.Delay)
		}
	}
	for _, e := range eventsOf[redeliver.DeadLettered](b.journal) {
		if e.State.ID == id {
			return "DLQ, " + string(e.State.Reason)
		}
	}
	for _, e := range eventsOf[redeliver.Committed](b.journal) {
		if e.State.ID == id && e.State.Attempts == 0 { // otherwise the event of its retry follows
			return "ack"
		}
	}
	return ""
}
