package kafka

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka/internal/cluster"
)

// sweepInterval is how often settled records of our topics are deleted. Their retention is unlimited, so the broker
// does not do that.
const sweepInterval = 30 * time.Second

// sweepsPerCheck is the number of sweeps after which a member checks our topics and their settings. It also does so
// after a rebalance or an error. A check lists all topics of the cluster.
const sweepsPerCheck = 10

// ownedPartitions has the partitions of levels and retry topics that this reader owns now.
type ownedPartitions struct {
	mu         sync.Mutex
	partitions map[string]map[int32]*ownedPartition
}

type ownedPartition struct {
	topicID string // empty if it is not known
	mark    int64  // all records below it are settled
	swept   int64  // all records below it are deleted
}

// add adds a partition that is read from an offset. All records below it are settled.
func (o *ownedPartitions) add(topic, topicID string, partition int32, from int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.partitions == nil {
		o.partitions = make(map[string]map[int32]*ownedPartition)
	}
	if o.partitions[topic] == nil {
		o.partitions[topic] = make(map[int32]*ownedPartition)
	}
	o.partitions[topic][partition] = &ownedPartition{topicID: topicID, mark: from}
}

// setMark records how far a partition is settled.
func (o *ownedPartitions) setMark(topic string, partition int32, offset int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if s := o.partitions[topic][partition]; s != nil {
		s.mark = offset
	}
}

// releaseOwned returns a function that undoes add when the lane ends.
func (r *reader) releaseOwned(topic string, partition int32) (release func()) {
	if _, ours := r.levels[topic]; !ours {
		return func() {}
	}
	o := &r.owned
	return func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		delete(o.partitions[topic], partition)
	}
}

// recreated reports whether topics were created again since their lanes began.
func (o *ownedPartitions) recreated(now cluster.TopicIDs) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	for topic, set := range o.partitions {
		for _, s := range set {
			if s.topicID != "" && now[topic] != "" && s.topicID != now[topic] {
				return true
			}
		}
	}
	return false
}

func (o *ownedPartitions) byTopic() map[string][]int32 {
	o.mu.Lock()
	defer o.mu.Unlock()
	all := make(map[string][]int32, len(o.partitions))
	for topic, set := range o.partitions {
		for p := range set {
			all[topic] = append(all[topic], p)
		}
	}
	return all
}

// deletableBelow returns the offset below which the records of a partition may be deleted. ok is false if none of them
// is new. Records must be committed, or they could be read again. The committed offset and the lane may both belong to
// an earlier topic of the same name; topicID is the id of the present one.
func (o *ownedPartitions) deletableBelow(topic, topicID string, partition int32, committed int64) (offset int64, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	s := o.partitions[topic][partition]
	if s == nil || s.topicID != topicID {
		return 0, false
	}
	offset = min(committed, s.mark)
	return offset, offset > s.swept
}

func (o *ownedPartitions) setSwept(topic string, below map[int32]int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for p, offset := range below {
		if s := o.partitions[topic][p]; s != nil {
			s.swept = offset
		}
	}
}

// startJanitor reads the commands, checks our topics at intervals, creates rungs, and deletes settled records, until
// stop is called.
func (r *reader) startJanitor() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	stopCommands := r.commands.Start()
	var done sync.WaitGroup
	done.Go(func() {
		var reported bool
		ticker := time.NewTicker(r.client.sweepInterval)
		defer ticker.Stop()
		for n := rand.IntN(sweepsPerCheck); ; n++ { // members do not check at the same time
			select {
			case <-ticker.C:
			case <-r.rungs.requested:
				r.createRungs()
				continue
			case <-ctx.Done():
				return
			}
			if r.extra.recheck.Swap(false) || n%sweepsPerCheck == 0 {
				if existing, err := r.checkTopics(); err == nil { // on an error, the next check compares
					_ = r.compareSettings(existing)
				}
				r.comparePolicies()
			}
			// Without the right to delete, records stay, but no message is lost. Only the first error in a row is
			// reported.
			err := r.sweep()
			if err != nil && !reported {
				r.sub.EmitChange(redeliver.ChangeRecordsNotDeleted, "grant Delete on the delay topics", err)
			}
			reported = err != nil
		}
	})
	return func() {
		stopCommands()
		cancel()
		done.Wait()
	}
}

// sweep deletes records that are settled and committed. A failing topic does not stop the others.
func (r *reader) sweep() error {
	partitions := r.owned.byTopic()
	if len(partitions) == 0 {
		return nil
	}
	now, err := r.client.admin.TopicIDs(slices.Collect(maps.Keys(partitions))...)
	if err != nil {
		return err
	}
	if r.owned.recreated(now) {
		r.extra.rejoin() // the lanes' offsets belong to topics that are gone
		return nil
	}
	return r.deleteSettled(now, partitions)
}

// deleteSettled is sweep for known topic ids.
func (r *reader) deleteSettled(now cluster.TopicIDs, partitions map[string][]int32) error {
	committed, err := r.client.admin.GroupOffsets(r.layout.group, partitions)
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
			if offset, ok := r.owned.deletableBelow(topic, now[topic], p, offset); ok {
				below[p] = offset
			}
		}
		if len(below) == 0 {
			continue
		}
		if err := r.client.admin.Sarama.DeleteRecords(topic, below); err != nil {
			errs = append(errs, err)
			continue
		}
		r.owned.setSwept(topic, below)
	}
	return errors.Join(errs...)
}
