package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/IBM/sarama"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka"
	"github.com/redeliver/redeliver/driver"
)

// books determines how the orders ended, only from the broker: which are in the orders' topic, in the bank's ledger, in
// the DLQ, and on the topics on which messages wait. It does not ask the service.
type books struct {
	client      sarama.Client
	admin       sarama.ClusterAdmin
	dlq         string
	groupTopics []string // the topics of the group: the orders' topic and the delay topics
}

// account describes all orders that were ever placed here.
type account struct {
	placed  []string                   // ids
	charged map[string]int             // attempt by id
	twice   int                        // ledger lines of an id after its first
	dead    map[string]redeliver.State // state by id
	waiting map[string]bool            // neither charged nor dead, and not yet read by the group
	lost    []string                   // all others
}

// balance computes the account.
func (b *books) balance() (*account, error) {
	a := &account{charged: map[string]int{}, dead: map[string]redeliver.State{}, waiting: map[string]bool{}}
	if err := b.client.RefreshMetadata(); err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	err := b.read(topic, nil, func(rec *sarama.ConsumerMessage) {
		if id := idOf(rec); !seen[id] {
			seen[id] = true
			a.placed = append(a.placed, id)
		}
	})
	if err != nil {
		return nil, err
	}
	if err := b.readLedger(a); err != nil {
		return nil, err
	}
	err = b.read(b.dlq, nil, func(rec *sarama.ConsumerMessage) {
		var headers []driver.Header
		for _, h := range rec.Headers {
			headers = append(headers, driver.Header{Name: string(h.Key), Value: string(h.Value)})
		}
		state, _ := driver.ParseHeaders(group, headers)
		a.dead[state.ID] = state
	})
	if err != nil {
		return nil, err
	}
	uncommitted, err := b.uncommitted()
	if err != nil {
		return nil, err
	}
	for _, id := range a.placed {
		_, charged := a.charged[id]
		_, dead := a.dead[id]
		switch {
		case charged || dead:
		case uncommitted[id]:
			a.waiting[id] = true
		default:
			a.lost = append(a.lost, id)
		}
	}
	return a, nil
}

func (b *books) readLedger(a *account) error {
	var bad error
	err := b.read(ledgerTopic, nil, func(rec *sarama.ConsumerMessage) {
		var e entry
		if err := json.Unmarshal(rec.Value, &e); err != nil {
			bad = fmt.Errorf("reading the ledger: %w", err)
		}
		if _, again := a.charged[e.ID]; again {
			a.twice++
		}
		a.charged[e.ID] = e.Attempt
	})
	if err != nil {
		return err
	}
	return bad
}

// uncommitted returns the ids of all messages that the group has not committed.
func (b *books) uncommitted() (map[string]bool, error) {
	if err := b.client.RefreshMetadata(); err != nil {
		return nil, err
	}
	there, err := b.client.Topics()
	if err != nil {
		return nil, err
	}
	topics := map[string][]int32{}
	for _, name := range b.groupTopics {
		if slices.Contains(there, name) {
			if topics[name], err = b.client.Partitions(name); err != nil {
				return nil, err
			}
		}
	}
	committed, err := b.admin.ListConsumerGroupOffsets(group, topics)
	if errors.Is(err, sarama.ErrGroupIDNotFound) { // the group has never had a member
		committed, err = &sarama.OffsetFetchResponse{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading what group %s has committed: %w", group, err)
	}
	ids := map[string]bool{}
	for name := range topics {
		from := func(p int32) int64 {
			if block := committed.GetBlock(name, p); block != nil {
				return block.Offset
			}
			return -1
		}
		if err := b.read(name, from, func(rec *sarama.ConsumerMessage) { ids[idOf(rec)] = true }); err != nil {
			return nil, err
		}
	}
	return ids, nil
}

// offsetRange is a range of offsets in a partition.
type offsetRange struct {
	topic      string
	partition  int32
	begin, end int64
}

// read calls each with every record now in a topic. It begins at the given offset of each partition or, if from
// is nil or the offset is negative, at the first record. A topic that does not exist has no records.
func (b *books) read(name string, from func(int32) int64, each func(*sarama.ConsumerMessage)) error {
	there, err := b.client.Topics()
	if err != nil || !slices.Contains(there, name) {
		return err
	}
	partitions, err := b.client.Partitions(name)
	if err != nil {
		return err
	}
	var todo []offsetRange
	for _, p := range partitions {
		st := offsetRange{topic: name, partition: p}
		if st.end, err = b.client.GetOffset(name, p, sarama.OffsetNewest); err != nil {
			return err
		}
		if st.begin, err = b.client.GetOffset(name, p, sarama.OffsetOldest); err != nil {
			return err
		}
		if from != nil {
			st.begin = max(st.begin, from(p))
		}
		if st.begin < st.end {
			todo = append(todo, st)
		}
	}
	if len(todo) == 0 {
		return nil
	}
	consumer, err := sarama.NewConsumerFromClient(b.client)
	if err != nil {
		return err
	}
	defer consumer.Close()
	reading := make([]sarama.PartitionConsumer, len(todo))
	for i, st := range todo {
		if reading[i], err = consumer.ConsumePartition(st.topic, st.partition, st.begin); err != nil {
			return err
		}
		defer reading[i].AsyncClose()
	}
	for i, st := range todo {
		if err := st.drain(reading[i].Messages(), each); err != nil {
			return err
		}
	}
	return nil
}

func (st offsetRange) drain(records <-chan *sarama.ConsumerMessage, each func(*sarama.ConsumerMessage)) error {
	late := time.After(maxWait)
	for {
		select {
		case rec, ok := <-records:
			if !ok {
				return fmt.Errorf("reading %s/%d: the broker takes it away", st.topic, st.partition)
			}
			each(rec)
			if rec.Offset >= st.end-1 {
				return nil
			}
		case <-late:
			return fmt.Errorf("reading %s/%d from %d to %d: nothing came for %s", st.topic, st.partition, st.begin, st.end, maxWait)
		}
	}
}

// idOf returns the id under which an order was published.
func idOf(rec *sarama.ConsumerMessage) string {
	msg, err := kafka.DefaultMarshaler{}.Unmarshal(rec)
	if err != nil {
		return fmt.Sprintf("%s/%d/%d", rec.Topic, rec.Partition, rec.Offset)
	}
	return msg.UUID
}
