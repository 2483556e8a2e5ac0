package kafkashare

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Records are deleted only if they are both settled and committed, and belong to the present topic of that name.
func TestOnlySettledRecordsAreDeleted(t *testing.T) {
	t.Parallel()
	const topic = "orders.billing.retry"
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, topic))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...), kgo.ConsumerGroup("billing-retry"), kgo.ConsumeTopics(topic), kgo.DisableAutoCommit())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	for range 3 {
		if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: topic}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	for n := 0; n < 2; { // commits 2
		for _, rec := range cl.PollRecords(t.Context(), 2-n).Records() {
			n++
			if err := cl.CommitRecords(t.Context(), rec); err != nil {
				t.Fatal(err)
			}
		}
	}
	found, _, err := admin{cl}.topics(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	s := &levelSource{p: partition{topic, 0}}
	m := &levelMember{r: &reader{client: &client{client: cl, admin: admin{cl}}}, cl: cl, sources: map[partition]*levelSource{s.p: s}}
	for _, step := range []struct {
		what    string
		topicID [16]byte
		settled int64
		want    int64
	}{
		{"an earlier topic", [16]byte{1}, 2, 0},
		{"nothing settled", found[topic].TopicID, 0, 0},
		{"one settled", found[topic].TopicID, 1, 1},
		{"all settled, two committed", found[topic].TopicID, 3, 2},
	} {
		s.topicID, s.deletedBelow = step.topicID, 0
		s.settledBelow.Store(step.settled)
		if err := m.deleteSettled(t.Context()); err != nil {
			t.Fatal(err)
		}
		starts, err := kadm.NewClient(cl).ListStartOffsets(t.Context(), topic)
		if err != nil {
			t.Fatal(err)
		}
		if got := starts[topic][0].Offset; got != step.want {
			t.Errorf("%s: the first record is %d, want %d", step.what, got, step.want)
		}
	}
}
