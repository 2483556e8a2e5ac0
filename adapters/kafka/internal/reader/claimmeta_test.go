package reader

import (
	"testing"

	"github.com/IBM/sarama"
)

// answering is a cluster in which a group has committed an offset of orders/0.
type answering struct {
	sarama.ClusterAdmin

	offset int64
}

func (a answering) ListConsumerGroupOffsets(string, map[string][]int32) (*sarama.OffsetFetchResponse, error) {
	res := new(sarama.OffsetFetchResponse)
	res.AddBlock("orders", 0, &sarama.OffsetFetchResponseBlock{Offset: a.offset})
	return res, nil
}

// claimFrom is a claim that begins at an offset.
type claimFrom struct {
	*staticClaim

	from int64
}

func (c claimFrom) InitialOffset() int64 { return c.from }

// In a cooperative session a partition may leave before its lane begins, and come back after another member has committed.
// With the metadata that Setup read, messages would be reported as lost, and settled ones would run again.
func TestALaneDoesNotUseMetadataOfAnEarlierOffset(t *testing.T) {
	t.Parallel()
	r := offlineReader(nil)
	r.Provisioner.Admin.Sarama = answering{offset: 9}
	for from, want := range map[int64]int64{5: 5, 9: 9, sarama.OffsetOldest: 5} {
		s := &Session{reader: r, metas: map[string]map[int32]claimMeta{"orders": {0: {offset: 5}}}}
		if found, err := s.readMeta(t.Context(), claimFrom{&staticClaim{}, from}); err != nil || found.offset != want {
			t.Errorf("from %d: the metadata is of offset %d, want %d; error %v", from, found.offset, want, err)
		}
	}
}
