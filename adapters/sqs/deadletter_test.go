package sqs

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/sqs/internal/api"
	"github.com/redeliver/redeliver/adapters/sqs/internal/dlq"
	"github.com/redeliver/redeliver/adapters/sqs/internal/wire"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/deadletter/driver"
	msgdriver "github.com/redeliver/redeliver/driver"
	"github.com/redeliver/redeliver/internal/sqsfake"
	"github.com/redeliver/redeliver/mq"
)

// testDLQ is a DLQ with its driver.
type testDLQ struct {
	deadletter.Queue
	own    *dlq.Queue
	client *mq.Client
}

// openTestDLQ fills a DLQ with messages of another program and opens it.
func openTestDLQ(t *testing.T, f *fake, origin string, n int, group string) *testDLQ {
	t.Helper()
	for _, name := range []string{origin, api.SiblingName(origin, "-dlq")} {
		f.Create(name)
	}
	for i := range n {
		f.put(api.SiblingName(origin, "-dlq"), fmt.Sprintf("m-%03d", i), "b", group, nil)
	}
	c := f.client(t, Config{})
	q, err := c.Operations().DeadLetters(t.Context(), mq.DeadLetterConfig{Topic: origin})
	if err != nil {
		t.Fatal(err)
	}
	b := &testDLQ{Queue: q, client: c}
	driver.Wrap(q, func(d driver.DLQ) driver.DLQ {
		b.own, _ = d.(*dlq.Queue)
		return d
	})
	return b
}

// A scan that takes longer than a lease keeps its messages hidden, returns each once, and makes them visible when it
// ends.
func TestLongScanKeepsItsMessagesHidden(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		q := openTestDLQ(t, f, "orders", 45, "")
		defer q.Close()
		s, err := q.Scan(t.Context(), deadletter.FromStart)
		if err != nil {
			t.Fatal(err)
		}
		seen := make(map[string]int)
		for range 30 {
			m, err := s.Next(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			seen[m.ID]++
			time.Sleep(20 * time.Second) //nolint:forbidigo // virtual time: a person reads the messages
		}
		for {
			m, err := s.Next(t.Context(), nil)
			if err != nil {
				break
			}
			seen[m.ID]++
		}
		for id, n := range seen {
			if n != 1 {
				t.Errorf("%s was returned %d times", id, n)
			}
		}
		if len(seen) != 45 {
			t.Errorf("%d messages were returned, want 45", len(seen))
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		for _, m := range f.Messages("orders-dlq") {
			if m.Visible.After(time.Now()) || m.Receives != 1 {
				t.Errorf("%s was received %d times and is hidden for another %s", m.ID, m.Receives, time.Until(m.Visible))
			}
		}
	})
}

// A replay of a whole FIFO group keeps its order, though SQS shows only ten messages of it at once.
func TestReplayKeepsGroupOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		q := openTestDLQ(t, f, "orders.fifo", 37, "one")
		defer q.Close()
		task, err := deadletter.Replay(t.Context(), q, deadletter.ReplayOptions{Who: "ann", Why: "test", Window: 7})
		if err != nil || task.Counts.Replayed != 37 {
			t.Fatalf("the replay says %+v: %v", task, err)
		}
		sent := f.Messages("orders.fifo")
		if !slices.IsSortedFunc(sent, func(x, y sqsfake.Message) int { return cmp.Compare(uuidIn(&x), uuidIn(&y)) }) || len(sent) != 37 {
			t.Errorf("%d messages, or a wrong order", len(sent))
		}
		if left := f.Messages("orders-dlq.fifo"); len(left) > 0 {
			t.Errorf("%d messages are left", len(left))
		}
	})
}

// On a standard queue a message group is a tenant of a fair queue. It is also the key of the message.
func TestReplayKeepsTheGroupOfAFairQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		q := openTestDLQ(t, f, "orders", 3, "tenant-7")
		defer q.Close()
		for m, err := range deadletter.Browse(t.Context(), q, deadletter.Filter{}) {
			if err != nil {
				t.Fatal(err)
			}
			if string(m.Key) != "tenant-7" {
				t.Errorf("the key of %s is %q", m.ID, m.Key)
			}
		}
		if _, err := deadletter.Replay(t.Context(), q, deadletter.ReplayOptions{Who: "ann", Why: "test"}); err != nil {
			t.Fatal(err)
		}
		sent := f.Messages("orders")
		for _, m := range sent {
			if m.Group != "tenant-7" || m.Dedup != "" {
				t.Errorf("%s was replayed with the group %q and the deduplication id %q", m.ID, m.Group, m.Dedup)
			}
		}
		if len(sent) != 3 {
			t.Errorf("%d messages were replayed, want 3", len(sent))
		}
	})
}

func uuidIn(m *sqsfake.Message) string {
	return string(m.Attributes[UUIDAttribute].Value)
}

// If the filter skips the first ten messages of a group, the later ones cannot be seen. The task ends instead of
// waiting forever.
func TestReplayEndsIfItsFilterSkipsTheHeadOfAGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		q := openTestDLQ(t, f, "orders.fifo", 20, "one")
		defer q.Close()
		task, err := deadletter.Replay(t.Context(), q, deadletter.ReplayOptions{Who: "ann", Why: "test", Filter: deadletter.Filter{IDs: []string{"m-015"}}})
		if err != nil || task.Counts.Scanned != 10 || task.Counts.Replayed != 0 || task.Note == "" {
			t.Errorf("the replay says %+v: %v", task, err)
		}
	})
}

// A DLQ is refused if its own RedrivePolicy would move messages away when they are read.
func TestDLQWithARedrivePolicyIsRefused(t *testing.T) {
	f := newFake()
	q := openTestDLQ(t, f, "orders", 0, "")
	f.Set("orders-dlq", "RedrivePolicy", `{"deadLetterTargetArn":"arn:aws:sqs:eu-west-1:1:graves","maxReceiveCount":3}`)
	_, err := q.client.Operations().DeadLetters(t.Context(), mq.DeadLetterConfig{Topic: "orders"})
	if _, ok := errors.AsType[*redeliver.ConfigError](err); !ok || !strings.Contains(err.Error(), "RedrivePolicy") {
		t.Errorf("the DLQ was opened: %v", err)
	}
}

// Dead letters with one id, such as the parts of a large message, are all imported into a FIFO queue.
func TestImportKeepsMessagesWithOneID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		q := openTestDLQ(t, f, "orders.fifo", 0, "")
		defer q.Close()
		for _, body := range []string{"one", "two"} {
			st := redeliver.State{ID: "a", Group: "orders.fifo", Origin: "orders.fifo", Attempts: 1, Reason: redeliver.ReasonPermanent}
			c := wire.Carried{Headers: msgdriver.AppendStateHeaders(st, nil)}
			f.put("orders-dlq.fifo", body, body, "g", map[string]sqsfake.Attribute{StateAttribute: sqsfake.String(c.Pack())})
		}
		var exported bytes.Buffer
		if n, err := deadletter.Export(t.Context(), q, deadletter.Filter{}, &exported); n != 2 || err != nil {
			t.Fatalf("exported %d: %v", n, err)
		}
		if _, err := deadletter.Purge(t.Context(), q, deadletter.PurgeOptions{Who: "ann@ops", Why: "test", Everything: true}); err != nil {
			t.Fatal(err)
		}
		for n := range 2 { // the second import adds them again
			if task, err := deadletter.Import(t.Context(), q, bytes.NewReader(exported.Bytes()), deadletter.ImportOptions{Who: "ann@ops", Why: "test"}); err != nil || task.Counts.Imported != 2 {
				t.Fatalf("imported %d: %v", task.Counts.Imported, err)
			}
			if got := len(f.Messages("orders-dlq.fifo")); got != 2*(n+1) {
				t.Errorf("after %d imports of two messages the DLQ has %d", n+1, got)
			}
		}
	})
}

// A purge that expects a number of messages counts them as the runner that has the DLQ. Another reader only delays it.
func TestAPurgeCountsBesideAnotherReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		q := openTestDLQ(t, f, "orders", 3, "")
		defer q.Close()
		other, err := q.client.Operations().DeadLetters(t.Context(), mq.DeadLetterConfig{Topic: "orders"})
		if err != nil {
			t.Fatal(err)
		}
		defer other.Close()
		s, err := other.Scan(t.Context(), deadletter.FromStart)
		if err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(15*time.Second, func() { _ = s.Close() })
		task, err := deadletter.Purge(t.Context(), q, deadletter.PurgeOptions{Who: "ann@ops", Why: "test", Everything: true, Expect: 3})
		if err != nil || task.Counts.Purged != 3 {
			t.Errorf("purged %d: %v", task.Counts.Purged, err)
		}
	})
}
