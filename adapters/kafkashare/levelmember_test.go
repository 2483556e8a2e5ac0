package kafkashare

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/redeliver/redeliver/driver"
)

// One slow retry holds up the commit of all that were read behind it. Their number is bounded.
func TestAPartitionPausesBehindASlowMessage(t *testing.T) {
	t.Parallel()
	_, c := openFake(t, 1, "orders")
	r, err := c.openReader(t.Context(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	cl, err := c.newClient(kgo.ConsumerGroup("billing-retry"), kgo.ConsumeTopics(r.layout.retry), kgo.AutoCommitMarks())
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	s := &levelSource{member: &levelMember{r: r, cl: cl}, p: partition{r.layout.retry, 0}}
	isPaused := func() bool { return len(cl.PauseFetchPartitions(nil)[s.p.topic]) > 0 }
	next := func() *driver.Message[*kgo.Record] {
		m := &driver.Message[*kgo.Record]{Record: &kgo.Record{Topic: s.p.topic}}
		if err := s.Parse(m); err != nil {
			t.Fatal(err)
		}
		s.Accept(maxAhead)
		return m
	}
	slow := next()
	for range 65_534 {
		s.Settle(next())
	}
	if isPaused() {
		t.Error("the partition pauses too early")
	}
	s.Settle(next())
	if !isPaused() {
		t.Error("the partition is not paused")
	}
	s.Settle(slow)
	if isPaused() {
		t.Error("the partition stays paused")
	}
}
