package shopdemo

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/redeliver/redeliver/examples/internal/demo"
	"github.com/redeliver/redeliver/observe"
)

const (
	maxWait       = time.Minute            // for the last order
	orderInterval = 150 * time.Millisecond // between two orders
)

func (r *run) run(ctx context.Context) error {
	r.screen.Sayf("redeliver on %s: a shop charges orders at an unreliable bank.", r.On)
	log := watermill.NewSlogLogger(slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})))
	shop, err := r.Open(ctx, r.url, observe.Sinks(r.screen, r.outcomes), log)
	if err != nil {
		return err
	}
	after := context.WithoutCancel(ctx)
	queues, err := shop.Describe(ctx)
	if err != nil {
		return err // without Close, which would wait half a minute for the handlers of a router that has never run
	}
	defer func() { _ = shop.Close(after) }() // in case of an earlier error
	r.screen.Sayf("%s\n", queues)

	served := make(chan error, 1)
	go func() { served <- shop.Router.Run(ctx) }()
	select {
	case <-shop.Router.Running():
	case err := <-served:
		return err
	}
	placed, err := r.placeOrders(ctx, shop, served)
	if err != nil {
		return err
	}
	// End the shop before the count, so that it acks what it has done.
	if err := shop.Close(after); err != nil {
		return err
	}
	title, letters, err := shop.DeadLetters(after)
	if err != nil {
		return err
	}
	r.summary(placed, title, letters, ctx.Err() != nil)
	return nil
}

// placeOrders places orders, the last of them poison, and waits until all are done or ctx ends. It returns the number of orders
// that were placed.
func (r *run) placeOrders(ctx context.Context, shop *Shop, served <-chan error) (placed int, err error) {
	orders := demo.NewOrders(time.Now())
	width := 0
	for _, kind := range r.Kinds {
		width = max(width, len(kind))
	}
	for i, o := range append(orders, demo.Order{ID: strings.TrimSuffix(orders[0].ID, "01") + "xx"}) {
		kind, what := r.Kinds[i%len(r.Kinds)], o.String()
		body, err := json.Marshal(o)
		if err != nil {
			return placed, err
		}
		if i == len(orders) {
			body, what = []byte("<order/>"), "a poison message: no JSON"
		}
		r.screen.Placed(o.ID, fmt.Sprintf("%-*s  %s", width, kind, what))
		r.outcomes.expect(o.ID)
		if err := shop.Place(kind, o.ID, body); err != nil {
			return placed, err
		}
		placed++
		select {
		case <-time.After(orderInterval):
		case <-ctx.Done():
			return placed, nil
		}
	}
	select {
	case <-r.outcomes.all():
	case <-ctx.Done():
	case err := <-served:
		if ctx.Err() == nil {
			return placed, cmp.Or(err, errors.New("the shop has ended unexpectedly"))
		}
	case <-time.After(maxWait):
		return placed, fmt.Errorf("not all orders have ended within %s: does another program read %s?", maxWait, r.Queue)
	}
	return placed, nil
}
