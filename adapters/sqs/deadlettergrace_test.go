package sqs

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redeliver/redeliver/deadletter/driver"
	"github.com/redeliver/redeliver/internal/sqsfake"
)

// testState is the name of the queue with the state of the DLQ that openDLQWithState opens.
const testState = "orders-dlq-state.fifo"

// requestFor returns an entry of the state.
func requestFor(task string) driver.Entry {
	return driver.Entry{Key: "want/" + task, Value: []byte(`"pause"`)}
}

// openDLQWithState opens a DLQ whose state has an entry.
func openDLQWithState(t *testing.T) (*fake, *testDLQ) {
	t.Helper()
	f := newFake()
	q := openTestDLQ(t, f, "orders", 1, "")
	if err := q.own.Append(t.Context(), requestFor("one")); err != nil {
		t.Fatal(err)
	}
	return f, q
}

// A Load or Append that is cancelled during a request still makes the state visible to others at once.
func TestCancelledCallMakesTheStateVisible(t *testing.T) {
	for _, action := range []string{"ReceiveMessage", "ChangeMessageVisibilityBatch", "SendMessageBatch", "DeleteMessageBatch"} {
		t.Run(action, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, q := openDLQWithState(t)
				defer q.Close()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				asked := 0
				f.setFault(func(call *sqsfake.Call) *sqsfake.Fault {
					if call.Action == action && call.Queue == testState && ctx.Err() == nil {
						cancel()
						asked++
					}
					return nil
				})
				if action == "ReceiveMessage" || action == "ChangeMessageVisibilityBatch" {
					_, _ = q.own.Load(ctx)
				} else {
					_ = q.own.Append(ctx, requestFor("two"))
				}
				began := time.Now()
				state, err := q.own.Load(t.Context())
				if took := time.Since(began); err != nil || state["want/one"] == nil || took >= time.Second || asked != 1 {
					t.Errorf("cancelled at %s %d times, the next reader finds %+v after %s: %v", action, asked, state, took, err)
				}
			})
		})
	}
}

// A cancelled context starts nothing.
func TestCancelledContextSendsNoRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, q := openDLQWithState(t)
		defer q.Close()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		before := f.Count("ReceiveMessage")
		for range 20 { // select picks randomly between two ready cases
			if _, err := q.own.Load(ctx); !errors.Is(err, context.Canceled) {
				t.Errorf("the error is %v", err)
			}
		}
		if after := f.Count("ReceiveMessage"); after != before {
			t.Errorf("the state was requested %d times", after-before)
		}
	})
}

// A server may refuse a whole request with the code of a stale receipt. Nothing was carried out then.
func TestARefusedRequestIsNoStaleReceipt(t *testing.T) {
	for action, request := range map[string]func(context.Context, *testDLQ) error{
		"ChangeMessageVisibilityBatch": func(ctx context.Context, q *testDLQ) error { _, err := q.own.Load(ctx); return err },
		"DeleteMessageBatch":           func(ctx context.Context, q *testDLQ) error { return q.own.Append(ctx, requestFor("two")) },
	} {
		synctest.Test(t, func(t *testing.T) {
			f, q := openDLQWithState(t)
			defer q.Close()
			f.setFault(func(call *sqsfake.Call) *sqsfake.Fault {
				if call.Action == action && call.Queue == testState {
					return &sqsfake.Fault{Status: 400, Code: "ReceiptHandleIsInvalid"}
				}
				return nil
			})
			if err := request(t.Context(), q); err == nil || strings.Count(err.Error(), "ReceiptHandleIsInvalid") != 1 {
				t.Errorf("%s was refused, and the error is %v", action, err)
			}
		})
	}
}
