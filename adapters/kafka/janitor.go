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
)

// sweepEvery is how often what is settled on our topics is given back to the
// broker. Their retention is endless, so nobody else does it.
const sweepInterval = 30 * time.Second

// lookEvery so many sweeps, and at the first after a rebalance or an error, a member looks which topics are there, and at
// their settings: that takes a list of all topics of the cluster.
const sweepsPerCheck = 10

// owned are the partitions of waiting topics that this reader has at present,
// and how far each is settled.
type ownedPartitions struct {
	mu         sync.Mutex
	partitions map[string]map[int32]*ownedPartition
}

type ownedPartition struct {
	topicID string // of the topic; empty where that is not known
	mark    int64  // below it everything is, as its own lane knows
	swept   int64  // below it everything was given back
}

// begin notes where a partition is read from: below that the group is done, in this life
// of its topic.
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

// mark notes how far a partition may be committed.
func (o *ownedPartitions) setMark(topic string, partition int32, offset int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if s := o.partitions[topic][partition]; s != nil {
		s.mark = offset
	}
}

// own is called by the lane that reads a partition; the returned function, at
// its end, takes back what begin noted.
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

// another reports whether topics have been created again since their lanes began.
func (o *ownedPartitions) recreated(now topicIDs) bool {
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

// below is up to where a partition's records may be deleted now; ok is false
// when there is nothing new. What the group has committed may be from another
// life of the topic, one that was deleted and made anew, and the lane may be, too: life is
// that of now. What is only marked might be read again.
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

// startJanitor looks after our topics now and then, creates rungs, and deletes
// the records of our waiting topics that are settled. The returned function
// ends it.
func (r *reader) startJanitor() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	control := r.control.start()
	var done sync.WaitGroup
	done.Go(func() {
		var reported bool
		ticker := time.NewTicker(r.client.sweepInterval)
		defer ticker.Stop()
		for n := rand.IntN(sweepsPerCheck); ; n++ { // the members do not all look at once
			select {
			case <-ticker.C:
			case <-r.rungs.requested:
				r.createRungs()
				continue
			case <-ctx.Done():
				return
			}
			if r.extra.recheck.Swap(false) || n%sweepsPerCheck == 0 {
				if existing, err := r.checkTopics(); err == nil { // or the next time
					_ = r.compareSettings(existing)
				}
				r.comparePolicies()
			}
			// A cluster that does not let us delete keeps the records: that
			// costs disk, not messages, and is said once, until it works again.
			err := r.sweep()
			if err != nil && !reported {
				r.report(redeliver.ChangeTopicsNotEmptied, "grant Delete on the delay topics", err)
			}
			reported = err != nil
		}
	})
	return func() {
		control()
		cancel()
		done.Wait()
	}
}

// sweep deletes what is settled and committed, as the broker knows it. A topic
// that cannot be swept does not keep the others from it.
func (r *reader) sweep() error {
	partitions := r.owned.byTopic()
	if len(partitions) == 0 {
		return nil
	}
	now, err := r.client.admin.topicIDs(slices.Collect(maps.Keys(partitions))...)
	if err != nil {
		return err
	}
	if r.owned.recreated(now) {
		r.extra.rejoin() // what the lanes know is of topics that are gone
		return nil
	}
	return r.deleteSettled(now, partitions)
}

// sweepIn is sweep while topics have the ids of now.
func (r *reader) deleteSettled(now topicIDs, partitions map[string][]int32) error {
	committed, err := r.client.admin.groupOffsets(r.layout.group, partitions)
	if err != nil {
		return err
	}
	var errs []error
	for topic, ps := range partitions {
		below := make(map[int32]int64)
		for _, p := range ps {
			offset, err := committed.offset(topic, p)
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
		if err := r.client.admin.sarama.DeleteRecords(topic, below); err != nil {
			errs = append(errs, err)
			continue
		}
		r.owned.setSwept(topic, below)
	}
	return errors.Join(errs...)
}
