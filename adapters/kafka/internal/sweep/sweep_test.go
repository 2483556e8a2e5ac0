package sweep

import (
	"errors"
	"maps"
	"testing"

	"github.com/IBM/sarama"

	"github.com/redeliver/redeliver/adapters/kafka/internal/cluster"
)

// fakeAdmin is a cluster with one committed offset for all partitions.
type fakeAdmin struct {
	sarama.ClusterAdmin
	committed int64
	refuses   string // topic
	unknown   string // topic
	deleted   map[string]int64
}

func (d *fakeAdmin) ListConsumerGroupOffsets(_ string, of map[string][]int32) (*sarama.OffsetFetchResponse, error) {
	res := &sarama.OffsetFetchResponse{}
	for topic, partitions := range of {
		for _, p := range partitions {
			block := &sarama.OffsetFetchResponseBlock{Offset: d.committed}
			if topic == d.unknown {
				block = &sarama.OffsetFetchResponseBlock{Offset: -1, Err: sarama.ErrTopicAuthorizationFailed}
			}
			res.AddBlock(topic, p, block)
		}
	}
	return res, nil
}

func (d *fakeAdmin) DeleteRecords(topic string, below map[int32]int64) error {
	if topic == d.refuses {
		return errors.New("not authorized")
	}
	for _, offset := range below {
		d.deleted[topic] = offset
	}
	return nil
}

func (d *fakeAdmin) expect(t *testing.T, s *Sweeper, want map[string]int64) {
	t.Helper()
	d.deleted = make(map[string]int64)
	if err := s.Sweep(cluster.TopicIDs{"1s": "a", "2s": "b"}); (err != nil) != (d.refuses+d.unknown != "") {
		t.Errorf("sweeping: %v", err)
	}
	if !maps.Equal(d.deleted, want) {
		t.Errorf("deleted below %v, want %v", d.deleted, want)
	}
}

// The committed offset may belong to an earlier topic of the same name. Then records below it are unread.
func TestSweepDeletesOnlySettledRecords(t *testing.T) {
	d := &fakeAdmin{committed: 100}
	s := New(cluster.Admin{Sarama: d}, "billing")
	remove := s.Add("1s", "a", 0, 3)
	s.Add("2s", "b", 0, 3)
	d.expect(t, s, map[string]int64{"1s": 3, "2s": 3})
	d.expect(t, s, map[string]int64{}) // once is enough
	s.SetMark("1s", 0, 42)
	s.SetMark("2s", 0, 142)
	d.refuses = "1s" // the other topic is swept
	d.expect(t, s, map[string]int64{"2s": 100})
	d.refuses = ""
	d.expect(t, s, map[string]int64{"1s": 42})
	s.SetMark("2s", 0, 150)
	d.committed, d.unknown = 120, "1s" // the other topic is swept nevertheless
	d.expect(t, s, map[string]int64{"2s": 120})
	d.unknown = ""
	s.SetMark("1s", 0, 43)
	remove()
	d.expect(t, s, map[string]int64{}) // another member owns it
	s.Add("1s", "an older one", 0, 43)
	d.expect(t, s, map[string]int64{}) // the settled records were on a deleted topic
}
