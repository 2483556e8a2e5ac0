package kafka

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"
)

// sweepEvery is how often what is settled on our topics is given back to the
// broker. Their retention is endless, so nobody else does it.
const sweepEvery = 30 * time.Second

// owned are the partitions of waiting topics that this reader has at present.
type owned struct {
	mu         sync.Mutex
	partitions map[string]map[int32]struct{}
}

// own notes that a lane reads a partition; the returned function takes it back.
func (r *reader) own(topic string, partition int32) (release func()) {
	if _, ours := r.levels[topic]; !ours {
		return func() {}
	}
	o := &r.owned
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.partitions == nil {
		o.partitions = make(map[string]map[int32]struct{})
	}
	if o.partitions[topic] == nil {
		o.partitions[topic] = make(map[int32]struct{})
	}
	o.partitions[topic][partition] = struct{}{}
	return func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		delete(o.partitions[topic], partition)
	}
}

func (o *owned) list() map[string][]int32 {
	o.mu.Lock()
	defer o.mu.Unlock()
	all := make(map[string][]int32, len(o.partitions))
	for topic, set := range o.partitions {
		for p := range maps.Keys(set) {
			all[topic] = append(all[topic], p)
		}
	}
	return all
}

// startJanitor deletes, now and then, the records below the committed offsets
// of our waiting topics. The returned function ends it.
func (r *reader) startJanitor() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		swept := make(map[string]map[int32]int64)
		var told bool
		ticker := time.NewTicker(r.client.sweepEvery)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
			case <-ctx.Done():
				return
			}
			// A cluster that does not let us delete keeps the records: that
			// costs disk, not messages, and is said once, until it works again.
			err := r.sweep(swept)
			if err != nil && !told {
				r.tell("settled records are not given back", "grant Delete on the delay topics", err)
			}
			told = err != nil
		}
	})
	return func() {
		cancel()
		done.Wait()
	}
}

// sweep deletes below what the group has committed, as the broker knows it: what
// is only marked might be read again.
func (r *reader) sweep(swept map[string]map[int32]int64) error {
	partitions := r.owned.list()
	if len(partitions) == 0 {
		return nil
	}
	committed, err := r.client.admin.sarama.ListConsumerGroupOffsets(r.layout.group, partitions)
	if err != nil {
		return err
	}
	var errs []error
	for topic, ps := range partitions {
		below := make(map[int32]int64)
		if swept[topic] == nil {
			swept[topic] = make(map[int32]int64)
		}
		for _, p := range ps {
			block := committed.GetBlock(topic, p)
			if block != nil && block.Offset > swept[topic][p] {
				below[p] = block.Offset
			}
		}
		if len(below) == 0 {
			continue
		}
		if err := r.client.admin.sarama.DeleteRecords(topic, below); err != nil {
			errs = append(errs, err)
			continue
		}
		maps.Copy(swept[topic], below)
	}
	return errors.Join(errs...)
}
