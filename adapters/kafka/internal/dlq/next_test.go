package dlq

import (
	"context"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka/internal/topiclog"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/driver"
)

// letterPage returns a page of n dead letters, from an offset on.
func letterPage(n int, from int64) []topiclog.Record {
	at := time.Date(2026, 11, 21, 22, 0, 0, 0, time.UTC)
	page := make([]topiclog.Record, n)
	for i := range page {
		st := redeliver.State{
			ID: fmt.Sprint("m-", from+int64(i)), Group: "billing", Origin: "orders", Attempts: 4, Reason: redeliver.ReasonExhausted, Error: "card declined",
			FirstFailed: at, LastFailed: at, Source: redeliver.Source{Known: true, Partition: 1, Offset: from + int64(i), Timestamp: at},
		}
		headers := []*sarama.RecordHeader{{Key: []byte("trace"), Value: fmt.Append(nil, "trace-", i)}, {Key: []byte("trace"), Value: nil}}
		for name, value := range driver.StateHeaders(&st) {
			headers = append(headers, &sarama.RecordHeader{Key: []byte(name), Value: value})
		}
		page[i] = topiclog.Record{Offset: from + int64(i), Time: at, Key: fmt.Append(nil, "key-", i), Value: fmt.Append(nil, "body-", i), Headers: headers}
	}
	return page
}

// newScan returns a scan of partition 1, of a runner if claimed.
func newScan(claimed bool) *reader {
	q := &Queue{ledger: newLedger(), Config: Config{Where: deadletter.Info{DLQ: "orders.billing.dlq", Origin: "orders", Group: "billing"}}}
	s := &reader{q: q, parts: []logPart{{partition: 1}}, buffer: scanBuffer{headers: make([]deadletter.Header, 0, 8)}}
	if claimed {
		s.session = &session{q: q, seen: make(map[int32]seenRange)}
	}
	return s
}

// scanPage scans a page and wants every oneIn-th message.
func (r *reader) scanPage(t *testing.T, page []topiclog.Record, oneIn int) (got []*deadletter.Message) {
	t.Helper()
	r.page = page
	for i := range page {
		m, err := r.Next(context.Background(), func(*deadletter.Message) bool { return i%oneIn == 0 })
		if err != nil || (m != nil) != (i%oneIn == 0) {
			t.Fatalf("message %d is %v: %v", i, m, err)
		}
		if m != nil {
			got = append(got, m)
		}
	}
	return got
}

// overwritePage overwrites the bytes of a page, as the next fetch may.
func overwritePage(page []topiclog.Record) {
	for i := range page {
		room := [][]byte{page[i].Key, page[i].Value}
		for _, h := range page[i].Headers {
			room = append(room, h.Key, h.Value)
		}
		for _, b := range room {
			for j := range b {
				b[j] = '#'
			}
		}
	}
}

// The next fetch may overwrite the page.
func TestReturnedMessagesDoNotAliasTheirPage(t *testing.T) {
	page := letterPage(100, 100)
	got := newScan(true).scanPage(t, page, 1)
	overwritePage(page)
	for i, want := range newScan(false).scanPage(t, letterPage(100, 100), 1) {
		if got[i].Native = want.Native; !reflect.DeepEqual(got[i], want) {
			t.Fatalf("message %d is %+v, want %+v", i, got[i], want)
		}
	}
}

// The two allocations of an unwanted message are its position and the text of its state.
func TestAnUnwantedMessageCostsTwoAllocations(t *testing.T) {
	s, page := newScan(true), letterPage(1, 0)
	filter := deadletter.Filter{ErrorText: "no such card"}
	match := filter.Match
	got := testing.AllocsPerRun(100, func() {
		s.page = page
		if m, err := s.Next(t.Context(), match); m != nil || err != nil {
			t.Fatal(m, err)
		}
	})
	if got > 2 {
		t.Errorf("it takes %.1f allocations, want 2", got)
	}
}
