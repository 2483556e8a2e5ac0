package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"github.com/redeliver/redeliver"
)

// order is what stands in a message.
type order struct {
	ID       string `json:"id"`
	Customer string `json:"customer"`
	Cents    int    `json:"cents"`
	Card     string `json:"card"`
}

func (o order) String() string {
	return fmt.Sprintf("%3d.%02d EUR from %-8s %s", o.Cents/100, o.Cents%100, o.Customer, o.Card)
}

// The cards say how the bank behaves.
const (
	goodCard    = "good card"
	flakyCard   = "flaky line to the bank"
	unknownCard = "unknown card"
	busyCard    = "bank is busy"
	deadCard    = "bank does not answer"
)

var (
	errNoSuchCard = errors.New("no such card")
	errReset      = errors.New("connection reset by the bank")
	errNoAnswer   = errors.New("no answer from the bank")
)

// busyError is the bank's wish to be left alone for a while.
type busyError struct{ retryAfter time.Duration }

func (e *busyError) Error() string {
	return fmt.Sprintf("bank is busy, come back in %s", e.retryAfter)
}

// bank charges cards. Its ledger is a topic, so that it outlives this process
// and is read by somebody else in the end. A charge has the order's id: a
// message that comes twice is charged once.
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

func (b *bank) charge(ctx context.Context, o order) error {
	// A real bank knows nothing of attempts. This one asks, so that the show
	// goes on in the same way after a kill -9.
	state, _ := redeliver.FromContext(ctx)
	switch {
	case o.Card == unknownCard:
		return errNoSuchCard
	case o.Card == flakyCard && state.Attempt() < 3:
		return errReset
	case o.Card == busyCard && state.Attempt() < 2:
		return &busyError{3 * time.Second}
	case o.Card == deadCard:
		return errNoAnswer
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.known[o.ID] {
		b.repeated(o.ID)
		return nil
	}
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

// newOrders are the orders of one run; their ids are its own.
func newOrders(run string) []order {
	customers := []string{"Ada", "Edsger", "Grace", "Barbara", "Donald", "Leslie"}
	cards := []string{goodCard, goodCard, flakyCard, goodCard, unknownCard, busyCard, goodCard, deadCard, goodCard, goodCard}
	orders := make([]order, len(cards))
	for i, card := range cards {
		orders[i] = order{
			ID: run + "-" + fmt.Sprintf("%02d", i+1), Customer: customers[i%len(customers)],
			Cents: 990 + 1370*i, Card: card,
		}
	}
	return orders
}

// newRun names a run.
func newRun(now time.Time) string {
	const span = 36 * 36 * 36 * 36 * 36 // five digits, a new one each tenth of a second for 70 days
	return fmt.Sprintf("%05s", strconv.FormatInt(now.UnixMilli()/100%span, 36))
}
