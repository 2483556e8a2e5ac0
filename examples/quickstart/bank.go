package main

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"

	"github.com/IBM/sarama"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/examples/internal/demo"
)

// bank charges cards. Its ledger is a topic, which remains after this process and which another program can read at the
// end. A charge has the order's id, so a message that comes twice is charged once.
type bank struct {
	ledger   sarama.SyncProducer
	mu       sync.Mutex
	known    map[string]bool // ids in the ledger
	repeated func(id string)
}

// entry is a line of the ledger.
type entry struct {
	ID      string `json:"id"`
	Attempt int    `json:"attempt"`
}

func (b *bank) charge(ctx context.Context, o demo.Order) error {
	if err := demo.Charge(ctx, o); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.known[o.ID] {
		b.repeated(o.ID)
		return nil
	}
	state, _ := redeliver.FromContext(ctx)
	line, err := json.Marshal(entry{o.ID, state.Attempt()})
	if err != nil {
		return redeliver.Permanent(err)
	}
	_, _, err = b.ledger.SendMessage(&sarama.ProducerMessage{
		Topic: ledgerTopic, Key: sarama.StringEncoder(o.ID), Value: sarama.ByteEncoder(line),
	})
	if err != nil {
		return fmt.Errorf("writing to the ledger: %w", err)
	}
	b.known[o.ID] = true
	return nil
}
