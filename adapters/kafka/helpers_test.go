package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka"
	"github.com/redeliver/redeliver/driver"
	"github.com/redeliver/redeliver/internal/kafkatest"
)

var errDeclined = errors.New("card declined")

// order makes a record whose id is its key, its value and its message UUID.
func order(topic, id string) *kgo.Record {
	return &kgo.Record{
		Topic: topic, Key: []byte(id), Value: []byte(id),
		Headers: []kgo.RecordHeader{{Key: kafka.UUIDHeader, Value: []byte(id)}},
	}
}

// orders makes n records and returns them with their ids.
func orders(topic string, n int) (recs []*kgo.Record, ids []string) {
	for i := range n {
		id := fmt.Sprintf("%s-%04d", topic, i)
		recs, ids = append(recs, order(topic, id)), append(ids, id)
	}
	return recs, ids
}

// independent makes a client without redeliver.
func independent(t *testing.T, addrs []string, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(addrs...)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

// put produces records to the partitions that they name.
func put(t *testing.T, addrs []string, recs ...*kgo.Record) {
	t.Helper()
	cl := independent(t, addrs, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err := cl.ProduceSync(t.Context(), recs...).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

// read returns at least the first n records of a topic, as an independent client sees them.
func read(t *testing.T, addrs []string, topic string, n int) []*kgo.Record {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
	defer cancel()
	recs, err := kafkatest.ReadFirst(ctx, addrs, topic, n)
	if err != nil {
		t.Fatal(err)
	}
	return recs
}

// count returns the number of records that were ever written to a topic.
func count(t *testing.T, addrs []string, topic string) int64 {
	t.Helper()
	ends, err := kadm.NewClient(independent(t, addrs)).ListEndOffsets(t.Context(), topic)
	if err != nil || ends.Error() != nil {
		t.Fatal(err, ends.Error())
	}
	var n int64
	ends.Each(func(o kadm.ListedOffset) { n += o.Offset })
	return n
}

// eventually waits until ok returns true.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(waitTimeout)
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("not within %s: %s", waitTimeout, what)
		}
	}
}

// last returns the last n events.
func (e *events) last(n int) []redeliver.Event {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.list[max(0, len(e.list)-n):])
}

// all returns the events of type E so far.
func all[E redeliver.Event](e *events) []E {
	e.mu.Lock()
	defer e.mu.Unlock()
	var found []E
	for _, ev := range e.list {
		if ev, ok := ev.(E); ok {
			found = append(found, ev)
		}
	}
	return found
}

// awaitEnds returns when every id was committed or dead-lettered.
func (e *events) awaitEnds(t *testing.T, ids ...string) {
	t.Helper()
	open := make(map[string]bool, len(ids))
	for _, id := range ids {
		open[id] = true
	}
	seen := 0
	deadline := time.After(waitTimeout)
	for {
		e.mu.Lock()
		for ; seen < len(e.list); seen++ {
			switch ev := e.list[seen].(type) {
			case redeliver.Committed:
				delete(open, ev.State.ID)
			case redeliver.DeadLettered:
				delete(open, ev.State.ID)
			}
		}
		e.mu.Unlock()
		if len(open) == 0 {
			return
		}
		select {
		case <-e.more:
		case <-deadline:
			for id := range open {
				t.Fatalf("%d of %d messages ended neither in a commit nor in the DLQ within %s, %s is one", len(open), len(ids), waitTimeout, id)
			}
		}
	}
}

// noneEarly checks every attempt against the due time that was decided for it, which no header can change. Two copies
// of a message have two due times, and each copy says which one is its own. The report of a slow write may come after
// its copy has run. A write whose session ended meanwhile is reported as abandoned: then the due time in the copy
// counts.
func (e *events) noneEarly(t *testing.T, before ...*events) {
	t.Helper()
	type decided struct {
		id  string
		n   int
		due int64 // in milliseconds, as in the header
	}
	from := slices.Concat(before, []*events{e})
	look := func() (known map[decided]bool, abandoned map[string]bool) {
		known, abandoned = make(map[decided]bool), make(map[string]bool)
		for _, from := range from {
			for _, r := range all[redeliver.RetryScheduled](from) {
				known[decided{r.State.ID, r.State.Attempts, r.State.Due.UnixMilli()}] = true
			}
			for _, a := range all[redeliver.Abandoned](from) {
				abandoned[a.State.ID] = true
			}
		}
		return known, abandoned
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(waitTimeout)
	known, abandoned := look()
	for _, a := range all[redeliver.Attempted](e) {
		if a.State.Attempts == 0 {
			continue
		}
		if a.Start.Before(a.State.Due) {
			t.Errorf("attempt %d of %s began %s before it was due", a.State.Attempt(), a.State.ID, a.State.Due.Sub(a.Start))
		}
		for !known[decided{a.State.ID, a.State.Attempts, a.State.Due.UnixMilli()}] && !abandoned[a.State.ID] {
			select {
			case <-tick.C: // the report may go to any of them
				known, abandoned = look()
			case <-deadline:
				t.Fatalf("attempt %d of %s, due %s, was never scheduled", a.State.Attempt(), a.State.ID, a.State.Due)
			}
		}
	}
}

// noFindings checks that no header was ignored.
func (e *events) noFindings(t *testing.T) {
	t.Helper()
	for _, h := range all[redeliver.HeadersIgnored](e) {
		t.Errorf("%s of %s has findings: %v", h.ID, h.Topic, h.Findings)
	}
}

// attempts counts the attempts of each message.
func (e *events) attempts() map[string]int {
	n := make(map[string]int)
	for _, a := range all[redeliver.Attempted](e) {
		n[a.State.ID]++
	}
	return n
}

// awaitJoined waits until the client's n-th assignment.
func (e *events) awaitJoined(t *testing.T, n int) {
	t.Helper()
	e.await(t, n, isChange(redeliver.ChangeAssigned))
}

// text formats headers. It distinguishes nil from empty.
func text(hs []kgo.RecordHeader) string {
	var b strings.Builder
	for _, h := range hs {
		if h.Value == nil {
			fmt.Fprintf(&b, "%q=null ", h.Key)
		} else {
			fmt.Fprintf(&b, "%q=%q ", h.Key, h.Value)
		}
	}
	return b.String()
}

// splitBlock separates a record's headers into the user's and redeliver's.
func splitBlock(hs []kgo.RecordHeader) (users []kgo.RecordHeader, ours map[string]string) {
	i := len(hs)
	for j, h := range slices.Backward(hs) {
		if h.Key == redeliver.HeaderAttempt {
			i = j
			break
		}
	}
	var block []driver.Header
	for _, h := range hs[i:] {
		block = append(block, driver.Header{Name: h.Key, Value: string(h.Value)})
		if group := string(h.Value); h.Key == redeliver.HeaderState && len(group) > 5 { // g, its length, its value
			n, _ := strconv.Atoi(group[1:5])
			st, _ := driver.ParseHeaders(group[5:5+n], block)
			block = driver.AppendStateHeaders(st, nil)
		}
	}
	ours = make(map[string]string)
	for _, h := range block {
		ours[h.Name] = h.Value
	}
	return hs[:i], ours
}
