package kafka

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/IBM/sarama"

	"github.com/redeliver/redeliver"
)

// refresh reads the state topic to its end.
func (q *deadQueue) refresh(ctx context.Context) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.hasState {
		if err := q.look(ctx); err != nil || !q.hasState {
			return err
		}
	}
	start, end, err := q.state.bounds(ctx, 0)
	if err != nil {
		return err
	}
	if end < q.ledger.next { // it was deleted and made anew
		q.ledger = newLedger()
	}
	q.ledger.next = max(q.ledger.next, start)
	for q.ledger.next < end {
		p, err := q.state.read(ctx, 0, q.ledger.next)
		if err != nil {
			return err
		}
		for _, r := range p.records {
			q.ledger.apply(r.key, r.value)
		}
		q.ledger.next = p.next
		if p.end && p.next < end {
			return fmt.Errorf("kafka: %s could be read to offset %d of %d only: somebody writes to it in transactions", q.state.topic, p.next, end)
		}
	}
	return nil
}

// entry is a record for the state topic; a nil value is a tombstone.
type stateEntry struct {
	key   string
	value []byte
}

func entryOf(key string, value []byte) stateEntry { return stateEntry{key, value} }

// note writes records to the state topic and returns when all are confirmed.
func (q *deadQueue) note(ctx context.Context, entries ...stateEntry) error {
	ctx, cancel := context.WithTimeoutCause(ctx, q.c.cfg.SendTimeout, fmt.Errorf("no answer within %s", q.c.cfg.SendTimeout))
	defer cancel()
	waits := make([]*confirm, 0, len(entries))
	for _, e := range entries {
		m := &sarama.ProducerMessage{Topic: q.state.topic, Key: sarama.StringEncoder(e.key)}
		if e.value != nil {
			m.Value = sarama.ByteEncoder(e.value)
		}
		c, err := q.c.producer.start(ctx, m, 0)
		if err != nil {
			return err
		}
		waits = append(waits, c)
	}
	var failed error
	for _, c := range waits {
		if err := c.wait(ctx); err != nil && failed == nil {
			failed = err
		}
	}
	return failed
}

func jsonEntry(key string, v any) (stateEntry, error) {
	value, err := json.Marshal(v)
	if err != nil {
		return stateEntry{}, fmt.Errorf("kafka: writing down %s: %w", key, err)
	}
	return stateEntry{key, value}, nil
}

// provisionState makes the state topic, or looks whether the one there is will do.
func (q *deadQueue) provisionState(ctx context.Context) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := q.look(ctx); err != nil {
		return err
	}
	there, err := q.c.admin.topics()
	if err != nil {
		return err
	}
	dlq, state := there[q.info.DLQ], there[q.state.topic]
	if dlq == nil {
		return fmt.Errorf("kafka: the DLQ %s is gone", q.info.DLQ)
	}
	if state != nil {
		return q.checkState(len(state.Partitions))
	}
	settings, err := q.c.admin.settings(q.info.DLQ)
	if err != nil {
		return err
	}
	t := ownTopic{name: q.state.topic, partitions: 1, replicas: int16(len(dlq.Partitions[0].Replicas)), settings: map[string]string{
		"cleanup.policy": "compact",
		// A race for the claim is decided by order, which compaction must not
		// change while anybody looks.
		"min.compaction.lag.ms":          strconv.FormatInt((10 * time.Minute).Milliseconds(), 10),
		"segment.bytes":                  strconv.Itoa(16 << 20),
		"unclean.leader.election.enable": "false",
	}}
	if n := settings[q.info.DLQ]["min.insync.replicas"]; n != "" {
		t.settings["min.insync.replicas"] = n
	}
	if q.c.cfg.NoProvisioning {
		return fmt.Errorf("kafka: topic %s is missing, and NoProvisioning is set: create it with 1 partition, %d replicas and %s", t.name, t.replicas, settingsText(t.settings))
	}
	if err := q.c.admin.create(t, 0); err != nil {
		return err
	}
	if err := q.c.admin.awaitLeaders([]string{t.name}, q.c.cfg.SendTimeout); err != nil {
		return err
	}
	q.hasState = true
	return nil
}

func (q *deadQueue) checkState(partitions int) error {
	settings, err := q.c.admin.settings(q.state.topic)
	if err != nil {
		return err
	}
	var ps redeliver.Problems
	if partitions != 1 {
		ps.Add("topic "+q.state.topic+" partitions", partitions, "must be 1: everybody must read it in the same order")
	}
	if policy := settings[q.state.topic]["cleanup.policy"]; policy != "compact" {
		ps.Add("topic "+q.state.topic+" cleanup.policy", policy, "must be compact: what it forgets would be replayed again")
	}
	if err := ps.Err(); err != nil {
		return fmt.Errorf("kafka: %w", err)
	}
	return nil
}
