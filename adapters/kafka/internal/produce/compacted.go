package produce

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/IBM/sarama"

	"github.com/redeliver/redeliver/deadletter/driver"
)

// Entry is a record of a compacted topic. A nil value deletes the key.
type Entry = driver.Entry

// Tombstone returns the record that deletes a key.
func Tombstone(key string) Entry { return Entry{Key: key} }

// JSONEntry returns the record of a value.
func JSONEntry(key string, v any) (Entry, error) {
	value, err := json.Marshal(v)
	if err != nil {
		return Entry{}, fmt.Errorf("kafka: writing %s: %w", key, err)
	}
	return Entry{Key: key, Value: value}, nil
}

// WriteEntries writes records to a compacted topic, in order, and waits for the answers, at most for timeout.
func (p *Producer) WriteEntries(ctx context.Context, timeout time.Duration, topic string, entries ...Entry) error {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("no answer within %s", timeout))
	defer cancel()
	waits := make([]*Write, 0, len(entries))
	for _, e := range entries {
		m := &sarama.ProducerMessage{Topic: topic, Key: sarama.StringEncoder(e.Key)}
		if e.Value != nil {
			m.Value = sarama.ByteEncoder(e.Value)
		}
		one, err := p.Start(ctx, m, 0)
		if err != nil {
			return err
		}
		waits = append(waits, one)
	}
	var failed error
	for _, one := range waits {
		if err := one.Wait(ctx); err != nil && failed == nil {
			failed = err
		}
	}
	return failed
}
