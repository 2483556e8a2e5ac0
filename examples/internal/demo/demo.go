// Package demo has the orders of the demonstrations, and a bank that often fails.
package demo

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redeliver/redeliver"
)

// Order is the content of a message.
type Order struct {
	ID       string `json:"id"`
	Customer string `json:"customer"`
	Cents    int    `json:"cents"`
	Card     string `json:"card"`
}

func (o Order) String() string {
	return fmt.Sprintf("%3d.%02d EUR from %-8s %s", o.Cents/100, o.Cents%100, o.Customer, o.Card)
}

// The cards determine how the bank behaves.
const (
	goodCard    = "good card"
	flakyCard   = "flaky line to the bank"
	unknownCard = "unknown card"
	busyCard    = "bank is busy"
	deadCard    = "bank does not answer"
)

// ErrNoSuchCard is the bank's answer to an unknown card.
var ErrNoSuchCard = errors.New("no such card")

var (
	errReset    = errors.New("connection reset by the bank")
	errNoAnswer = errors.New("no answer from the bank")
)

// BusyError is the bank's answer when it has too many requests.
type BusyError struct{ RetryAfter time.Duration }

func (e *BusyError) Error() string {
	return fmt.Sprintf("bank is busy, come back in %s", e.RetryAfter)
}

// Charge returns the bank's answer to an order. A real bank does not see attempts. This one reads the attempt from ctx,
// so that the demonstration continues in the same way after a kill -9.
func Charge(ctx context.Context, o Order) error {
	state, _ := redeliver.FromContext(ctx)
	switch {
	case o.Card == unknownCard:
		return ErrNoSuchCard
	case o.Card == flakyCard && state.Attempt() < 3:
		return errReset
	case o.Card == busyCard && state.Attempt() < 2:
		return &BusyError{3 * time.Second}
	case o.Card == deadCard:
		return errNoAnswer
	default:
		return nil
	}
}

// NewOrders returns the orders of a run that begins now. Their ids are unique to the run.
func NewOrders(now time.Time) []Order {
	const span = 36 * 36 * 36 * 36 * 36 // five digits, which change every tenth of a second and repeat after 70 days
	run := fmt.Sprintf("%05s", strconv.FormatInt(now.UnixMilli()/100%span, 36))
	customers := []string{"Ada", "Edsger", "Grace", "Barbara", "Donald", "Leslie"}
	cards := []string{goodCard, goodCard, flakyCard, goodCard, unknownCard, busyCard, goodCard, deadCard, goodCard, goodCard}
	orders := make([]Order, len(cards))
	for i, card := range cards {
		orders[i] = Order{ID: fmt.Sprintf("%s-%02d", run, i+1), Customer: customers[i%len(customers)], Cents: 990 + 1370*i, Card: card}
	}
	return orders
}
