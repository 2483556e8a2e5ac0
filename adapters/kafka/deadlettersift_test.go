package kafka

import (
	"bytes"
	"context"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/deadletter"
)

// leaf is a page of n dead letters, from an offset on.
func leaf(n int, from int64) []fetched {
	at := time.Date(2026, 11, 21, 22, 0, 0, 0, time.UTC)
	page := make([]fetched, n)
	for i := range page {
		st := redeliver.State{
			ID: fmt.Sprint("m-", from+int64(i)), Group: "billing", Origin: "orders", Attempts: 4, Reason: redeliver.ReasonExhausted, Error: "card declined",
			FirstFailed: at, LastFailed: at, Source: redeliver.Source{Known: true, Partition: 1, Offset: from + int64(i), Timestamp: at},
		}
		headers := []*sarama.RecordHeader{{Key: []byte("trace"), Value: fmt.Append(nil, "trace-", i)}, {Key: []byte("trace"), Value: nil}}
		for name, value := range st.Headers() {
			headers = append(headers, &sarama.RecordHeader{Key: []byte(name), Value: value})
		}
		page[i] = fetched{offset: from + int64(i), at: at, key: fmt.Append(nil, "key-", i), value: fmt.Append(nil, "body-", i), headers: headers}
	}
	return page
}

// leafing is a scan of partition 1; claimed it is a runner's.
func leafing(claimed bool) *deadReader {
	q := &deadQueue{ledger: newLedger(), info: deadletter.Info{DLQ: "orders.billing.dlq", Origin: "orders", Group: "billing"}}
	s := &deadReader{q: q, parts: []deadPart{{partition: 1}}, sieve: deadSieve{headers: make([]deadletter.Header, 0, 8)}}
	if claimed {
		s.claim = &deadSession{q: q, reach: make(map[int32]reach)}
	}
	return s
}

// sift turns to a page and takes one in so many of it.
func (s *deadReader) sift(t *testing.T, page []fetched, oneIn int) (got []*deadletter.Message) {
	t.Helper()
	s.page = page
	s.sieve.turn()
	for i := range page {
		m, err := s.Next(context.Background(), func(*deadletter.Message) bool { return i%oneIn == 0 })
		if err != nil || (m != nil) != (i%oneIn == 0) {
			t.Fatalf("message %d is %v: %v", i, m, err)
		}
		if m != nil {
			got = append(got, m)
		}
	}
	return got
}

// spoil overwrites what a page has in the response of its fetch.
func spoil(page []fetched) {
	for i := range page {
		room := [][]byte{page[i].key, page[i].value}
		for _, h := range page[i].headers {
			room = append(room, h.Key, h.Value)
		}
		for _, b := range room {
			for j := range b {
				b[j] = '#'
			}
		}
	}
}

// What somebody keeps of a page is his own, and so is what a runner takes of a page of
// which the most is not wanted. What it takes of pages that are wanted as a whole stays there.
func TestWhatIsTakenOffAPage(t *testing.T) {
	const n = 100
	for _, c := range []struct {
		name    string
		claimed bool
		before  int // of the page before, one in so many was wanted
		oneIn   int
		stays   bool
	}{
		{"by somebody who looks", false, 1, 1, false},
		{"by a runner, one of many", true, n, 10, false},
		{"by a runner, the first page", true, 0, 1, false},
		{"by a runner, all", true, 1, 1, true},
		{"by a runner, after one of many", true, 3, 1, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := leafing(c.claimed)
			if c.before > 0 {
				s.sift(t, leaf(n, 0), c.before)
			}
			page := leaf(n, n)
			got := s.sift(t, page, c.oneIn)
			want := leafing(false).sift(t, leaf(n, n), c.oneIn)
			same := func() bool {
				for i := range want {
					want[i].Native = got[i].Native
				}
				return reflect.DeepEqual(got, want)
			}
			if !same() {
				t.Fatalf("taken was %+v, want %+v", got[0], want[0])
			}
			spoil(page)
			if stays := !same(); stays != c.stays {
				t.Errorf("they stay on their page: %v, want %v", stays, c.stays)
			}
			for i, m := range got {
				if m.Headers[0].Name != "trace" || m.Headers[1].Value != nil || m.ID != want[i].ID || m.State.Error != "card declined" {
					t.Fatalf("strings of message %d went with the page: %+v", i, m)
				}
				if c.stays == bytes.Equal(m.Body, want[i].Body) {
					t.Fatalf("message %d has the body %q", i, m.Body)
				}
			}
		})
	}
}

// Of a message that nobody wants two things are made: its place, and one text of all that
// its state has.
func TestWhatIsNotWantedCostsTwoAllocations(t *testing.T) {
	s, page := leafing(true), leaf(1, 0)
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
