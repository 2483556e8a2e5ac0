package loss

import (
	"context"
	"errors"
	"time"

	"github.com/redeliver/redeliver/integration/consumer"
)

// write writes the rest of the items. Its rate ensures that the remaining kills and restarts find messages under way.
// If kills take so long on a busy machine that no items are left, it writes more.
func (c *chaos) write(ctx context.Context) {
	items, planned := c.plan.items[c.plan.early:], len(c.plan.items)
	const tick = 50 * time.Millisecond
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	var due float64
	for len(items) > 0 {
		select {
		case <-ctx.Done():
			c.t.Errorf("%d messages are not written: %v", len(items), context.Cause(ctx))
			return
		case <-ticker.C:
		}
		c.mu.Lock()
		kills, restarts := len(c.plan.orders)-c.numKillsLocked()-c.missed, len(c.plan.restarts)-c.restarts-c.closings
		unwritten := planned - c.written
		c.mu.Unlock()
		rate := 3000.0
		if kills+restarts > 0 {
			left := 3*time.Second + time.Duration(kills)*1500*time.Millisecond + time.Duration(restarts)*4*time.Second
			rate = min(rate, max(40, float64(unwritten)/left.Seconds()))
		}
		due += rate * tick.Seconds()
		n := min(int(due), len(items))
		due -= float64(n)
		if n == 0 {
			continue
		}
		if err := c.sys.write(ctx, items[:n]); err != nil {
			c.t.Errorf("the writer: %v", err)
			return
		}
		items = items[n:]
		c.mu.Lock()
		c.written += n
		if len(items) == 0 && c.killsRemainLocked() {
			items = moreItems(c.rng, c.written, 1000, 100, 10)
			c.plan.items = append(c.plan.items, items...)
		}
		c.mu.Unlock()
	}
}

// restart restarts the broker, or makes it close all connections, at the planned moments.
func (c *chaos) restart(ctx context.Context) {
	for _, r := range c.plan.restarts {
		if !c.until(ctx, func() bool { return c.numKillsLocked()+c.missed >= r.kills }) || !consumer.Pause(ctx, r.wait) {
			return
		}
		from := time.Now()
		var err error
		if r.closing {
			err = c.sys.(disconnecter).disconnect(ctx)
		} else {
			err = c.sys.restart(ctx, r.down)
		}
		if err != nil {
			c.t.Errorf("restarting the broker, or closing its connections: %v", err)
			return
		}
		c.mu.Lock()
		if r.closing {
			c.closings++
		} else {
			c.restarts++
		}
		c.outages = append(c.outages, outage{from, time.Now()})
		c.mu.Unlock()
	}
}

// until waits until what returns true. It calls what with the lock held.
func (c *chaos) until(ctx context.Context, what func() bool) bool {
	for {
		c.mu.Lock()
		ok := what()
		c.mu.Unlock()
		if ok {
			return true
		}
		if !consumer.Pause(ctx, 20*time.Millisecond) {
			return false
		}
	}
}

// kill picks a consumer, makes it die and starts another in its place. If the state does not occur, it tries another
// consumer. The order counts as missed when the run's time is over.
func (c *chaos) kill(ctx context.Context, o order) {
	for ctx.Err() == nil {
		target := c.pick(ctx)
		if target == nil {
			break
		}
		c.mu.Lock()
		after := time.Duration(c.rng.IntN(1000)) * time.Millisecond
		c.mu.Unlock()
		var died bool
		if o.state == anywhere {
			consumer.Pause(ctx, after)
			target.kill()
			died = errors.Is(target.await(toEnd), consumer.ErrKilled)
		} else {
			want := consumer.ErrKilled
			if o.state == ending {
				want = nil
				target.mayEnd.Store(true)
			}
			target.order(o)
			died = errors.Is(target.await(8*time.Second), want)
			if !died {
				died = c.cancelOrder(ctx, target, o) && errors.Is(target.await(toEnd), want)
				target.mayEnd.Store(died)
			}
		}
		c.mu.Lock()
		target.marked = died // a dead one that is still in the list must not be picked
		if died {
			c.kills[o.state]++
			c.killedWorkers = append(c.killedWorkers, target.number)
		}
		c.mu.Unlock()
		if died {
			if w := c.start(""); w != nil && o.state != anywhere {
				// The next target must not be in a group that is still joining.
				c.until(ctx, func() bool { return c.joined[w.number] })
			}
			return
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.missed++
}

// cancelOrder cancels an order, and reports whether the target dies of it all the same.
func (c *chaos) cancelOrder(ctx context.Context, target *worker, o order) (dies bool) {
	c.mu.Lock()
	before := c.canceled[target.number]
	c.mu.Unlock()
	target.order(order{state: o.state})
	c.until(ctx, func() bool {
		_, alive := c.workers[target]
		dies = !alive || c.ending[target.number]
		return dies || c.canceled[target.number] > before
	})
	return dies
}

// pick marks a consumer that has joined its group.
func (c *chaos) pick(ctx context.Context) *worker {
	var target *worker
	c.until(ctx, func() bool {
		var able []*worker
		for w := range c.workers {
			if c.joined[w.number] && !w.marked {
				able = append(able, w)
			}
		}
		if len(able) == 0 || len(c.workers) < c.plan.consumers-1 {
			return false
		}
		// The seed must decide, and a map has no fixed order.
		oldest := able[0]
		for _, w := range able {
			if w.number < oldest.number {
				oldest = w
			}
		}
		target = oldest
		if c.rng.IntN(2) == 0 {
			for _, w := range able {
				if w.number > target.number {
					target = w
				}
			}
		}
		target.marked = true
		return true
	})
	return target
}
