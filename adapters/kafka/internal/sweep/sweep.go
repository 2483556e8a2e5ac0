// Package sweep deletes the settled records of the topics on which messages wait. Their retention is unlimited, so the
// broker does not do that.
package sweep

import (
	"errors"
	"sync"

	"github.com/redeliver/redeliver/adapters/kafka/internal/cluster"
)

// Sweeper deletes settled records of the partitions that a member owns. It is safe for concurrent use.
type Sweeper struct {
	admin cluster.Admin
	group string

	mu    sync.Mutex
	owned map[string]map[int32]*partition // by topic
}

type partition struct {
	topicID string // empty if it is not known
	mark    int64  // all records below it are settled
	swept   int64  // all records below it are deleted
}

// New returns the sweeper of a member of a group.
func New(admin cluster.Admin, group string) *Sweeper {
	return &Sweeper{admin: admin, group: group, owned: make(map[string]map[int32]*partition)}
}

// Add adds a partition that is read from an offset, until remove is called. All records below the offset are settled.
func (s *Sweeper) Add(topic, topicID string, p int32, from int64) (remove func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.owned[topic] == nil {
		s.owned[topic] = make(map[int32]*partition)
	}
	s.owned[topic][p] = &partition{topicID: topicID, mark: from}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.owned[topic], p)
	}
}

// SetMark records how far a partition is settled.
func (s *Sweeper) SetMark(topic string, p int32, offset int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if own := s.owned[topic][p]; own != nil {
		own.mark = offset
	}
}

// Sweep deletes records that are settled and committed. ids has the present ids of the topics. A failing topic does not
// stop the others.
func (s *Sweeper) Sweep(ids cluster.TopicIDs) error {
	partitions := s.partitions()
	if len(partitions) == 0 {
		return nil
	}
	committed, err := s.admin.GroupOffsets(s.group, partitions)
	if err != nil {
		return err
	}
	var errs []error
	for topic, ps := range partitions {
		below := make(map[int32]int64)
		for _, p := range ps {
			offset, err := committed.Offset(topic, p)
			if err != nil {
				errs = append(errs, err)
				continue
			}
			if offset, ok := s.deletableBelow(topic, ids[topic], p, offset); ok {
				below[p] = offset
			}
		}
		if len(below) == 0 {
			continue
		}
		if err := s.admin.DeleteRecords(topic, below); err != nil {
			errs = append(errs, err)
			continue
		}
		s.setSwept(topic, below)
	}
	return errors.Join(errs...)
}

// partitions returns the partitions by topic.
func (s *Sweeper) partitions() map[string][]int32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make(map[string][]int32, len(s.owned))
	for topic, own := range s.owned {
		for p := range own {
			all[topic] = append(all[topic], p)
		}
	}
	return all
}

// deletableBelow returns the offset below which the records of a partition may be deleted. ok is false if none of them
// is new. Records must be committed, or they could be read again. The committed offset and the lane may both belong to
// an earlier topic of the same name; topicID is the id of the present one.
func (s *Sweeper) deletableBelow(topic, topicID string, p int32, committed int64) (offset int64, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	own := s.owned[topic][p]
	if own == nil || own.topicID != topicID {
		return 0, false
	}
	offset = min(committed, own.mark)
	return offset, offset > own.swept
}

func (s *Sweeper) setSwept(topic string, below map[int32]int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for p, offset := range below {
		if own := s.owned[topic][p]; own != nil {
			own.swept = offset
		}
	}
}
