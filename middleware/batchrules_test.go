package middleware_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/middleware"
	"github.com/redeliver/redeliver/redelivertest"
)

// The rules of precedence are the table of docs/batching.md, and this is that table.
func TestBatchPrecedence(t *testing.T) {
	table, err := os.ReadFile("testdata/batch.md")
	if err != nil {
		t.Fatal(err)
	}
	docs, err := os.ReadFile("../docs/batching.md")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(docs, table) {
		t.Error("docs/batching.md does not have the table of testdata/batch.md: copy it there")
	}
	rows := strings.Split(strings.TrimSpace(string(table)), "\n")[2:]
	for _, row := range rows {
		cells := strings.Split(strings.Trim(row, "| "), " | ")
		if len(cells) != 4 {
			t.Fatalf("not four cells: %s", row)
		}
		t.Run(cells[0]+" and "+cells[1], func(t *testing.T) { precedence(t, cells) })
	}
	if len(rows) < 30 {
		t.Errorf("%d rows: this test does not read the table", len(rows))
	}
}

func precedence(t *testing.T, cells []string) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		policy := redeliver.Policy{Backoff: redeliver.Fixed(10 * minute), Timeout: 2 * minute}
		documents := index(b, policy, middleware.BatchConfig{Size: 2}, func(ctx context.Context, mb *middleware.MessageBatch) error {
			if mb.Messages[0].State().Attempt() > 1 {
				return nil
			}
			say(t, mb, cells[0])
			return returnAs(ctx, t, cells[1])
		})
		publish(b, "m1", "m2")
		b.Wait()
		<-time.After(2 * hour) // the late answer of a function that outlived its Timeout changes nothing
		for i, want := range cells[2:] {
			got := documents.Outcome(fmt.Sprint("m", i+1))
			if told := become(got); told != want {
				t.Errorf("message %d: %s, want %s\n%s", i+1, told, want, got)
			}
		}
	})
}

var call = regexp.MustCompile("`(m1\\.)?([A-Z][A-Za-z]+)(?:\\((\\w+)\\))?`")

// say makes the calls of a cell.
func say(t *testing.T, mb *middleware.MessageBatch, cell string) {
	t.Helper()
	calls := call.FindAllStringSubmatch(cell, -1)
	if len(calls) == 0 && cell != "nothing" {
		t.Errorf("no calls in %q", cell)
	}
	counted := map[string]bool{}
	for _, c := range calls {
		m, counts := mb.Messages[0], false
		var delay []time.Duration
		if c[3] != "" {
			delay = append(delay, length(t, c[3]))
		}
		switch c[1] + c[2] {
		case "m1.Ack":
			counts = m.Ack()
		case "m1.Retry":
			counts = m.Retry(delay...)
		case "m1.Reject":
			counts = m.Reject("no such schema")
		case "AckAll":
			counts = mb.AckAll()
		case "RetryAll":
			counts = mb.RetryAll(delay...)
		default:
			t.Errorf("what is %q?", c[0])
		}
		if counts == counted[c[1]] { // the first one does, and no other
			t.Errorf("%s says %t", c[0], counts)
		}
		counted[c[1]] = true
	}
}

func length(t *testing.T, text string) time.Duration {
	t.Helper()
	if text == "0" {
		return 0
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Error(err)
	}
	return d
}

func returnAs(ctx context.Context, t *testing.T, cell string) error {
	t.Helper()
	switch cell {
	case "nil":
		return nil
	case "an error":
		return errHandler
	case "a panic":
		panic("boo")
	case "`RetryAfter` 1h":
		return redeliver.RetryAfter(errHandler, hour)
	case "`Permanent`":
		return redeliver.Permanent(errHandler)
	case "not within the Timeout":
		<-ctx.Done()
		if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
			t.Error(ctx.Err())
		}
		<-time.After(hour)
		return nil
	default:
		t.Errorf("what is %q?", cell)
		return nil
	}
}

// become says what became of a message after its first attempt.
func become(o redelivertest.Outcome) string {
	switch {
	case len(o.Attempts) == 0:
		return "nothing"
	case o.State.Reason != "":
		return "DLQ, " + string(o.State.Reason)
	case len(o.Waits) == 0 && o.Committed && o.Attempts[0].Err == nil:
		return "ack"
	case len(o.Waits) != 1:
		return fmt.Sprintf("%d waits", len(o.Waits))
	case o.Waits[0].Delay == 10*minute:
		return "retry, as the policy says"
	default:
		d := o.Waits[0].Delay.String()
		if d != "0s" {
			d = strings.TrimSuffix(strings.TrimSuffix(d, "0s"), "0m")
		}
		return "retry after " + d
	}
}
