//go:build prove

package loss

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/redeliver/redeliver/integration/brokers"
	"github.com/redeliver/redeliver/integration/consumer"
)

// TestDuplicatesOfOneKill kills one of two static members at a steady rate of 2,000 failing messages a second. It
// measures how many runs are repeated because of the kill, and how soon the member works again.
func TestDuplicatesOfOneKill(t *testing.T) {
	const (
		rate    = 2000 // messages a second; each fails once and runs again a second later
		seconds = 6
		tick    = 20 * time.Millisecond
	)
	seed := seedOf(t)
	p := plan{
		seed: seed, consumers: 2, quick: true, steps: []time.Duration{time.Second}, deadline: toSettle,
		items: makeItems(rand.New(rand.NewPCG(seed, 4)), rate*seconds, 1000, 0),
	}
	for _, it := range p.items {
		it.after = p.steps[0] // all have the same wait, for the checker
		it.headers = dropHeader(it.headers, headerAfter)
	}
	sys := newKafka(t, brokers.RequireKafka(t), nil, fmt.Sprintf("duplicates-%d", time.Now().UnixNano()), 4)
	c, ctx := begin(t, sys, p)
	target := c.start("a")
	c.start("b")
	if !c.until(ctx, func() bool { return c.joined[1] && c.joined[2] }) {
		t.Fatal(context.Cause(ctx))
	}

	// The writer keeps its rate whatever happens to the consumers.
	written := make(chan error, 1)
	half := make(chan struct{})
	go func() { written <- steady(ctx, sys, p.items, rate, tick, half) }()
	select {
	case <-half:
	case <-ctx.Done():
		t.Fatal(context.Cause(ctx))
	}
	target.kill()
	if err := target.await(toEnd); !errors.Is(err, consumer.ErrKilled) {
		t.Fatalf("the target: %v", err)
	}
	died := time.Now()
	next := c.start("a")
	if err := <-written; err != nil {
		t.Fatal(err)
	}
	out := c.end(ctx)
	v := check(out.evidence)

	back, ran := time.Duration(-1), 0
	for _, l := range out.journal {
		if l.kind != entered {
			continue
		}
		if l.process == next.number && (back < 0 || l.at.Sub(next.began) < back) {
			back = l.at.Sub(next.began)
		}
		if l.process == target.number && died.Sub(l.at) < 250*time.Millisecond {
			ran++
		}
	}
	t.Logf("report: duplicates: a kill at %d failing/s: %d lost, %d early, %d runs again of %d messages; the target had made %d in its last 250 ms; "+
		"a static member runs again %s after its restart; retries late p50 %s p99 %s max %s",
		rate, len(v.lost), len(v.early), v.rerun, v.duplicated, ran, back.Round(time.Millisecond),
		quantile(v.late, 0.5), quantile(v.late, 0.99), quantile(v.late, 1))
	if !out.settled {
		t.Errorf("the group did not settle everything: %s", out.detail)
	}
	if len(v.lost)+len(v.early)+len(v.wrong) > 0 {
		t.Errorf("%d lost:%s\n%d early:%s\n%d wrong:%s", len(v.lost), few(v.lost), len(v.early), few(v.early), len(v.wrong), few(v.wrong))
	}
	// Both values are measured and reported. The bounds allow for a busy machine: two seconds' runs of the target, and
	// less than its session.
	if most := 2 * 2 * rate / p.consumers; v.rerun > most {
		t.Errorf("%d runs again, want at most %d", v.rerun, most)
	}
	if back < 0 || back > kafkaStaticSession/2 {
		t.Errorf("the restarted member ran its first message after %s: a static member need not wait for its session to end", back)
	}
}

// steady writes items at a rate and closes half when half of them are written.
func steady(ctx context.Context, sys system, items []*item, rate int, tick time.Duration, half chan<- struct{}) error {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	chunk := int(float64(rate) * tick.Seconds())
	for done := 0; done < len(items); done += chunk {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if done >= len(items)/2 && half != nil {
			close(half)
			half = nil
		}
		if err := sys.write(ctx, items[done:min(done+chunk, len(items))]); err != nil {
			return err
		}
	}
	return nil
}

func dropHeader(headers []header, key string) []header {
	var kept []header
	for _, h := range headers {
		if h.key != key {
			kept = append(kept, h)
		}
	}
	return kept
}
