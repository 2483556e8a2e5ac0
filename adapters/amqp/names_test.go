package amqp

import (
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/redeliver/redeliver"
)

var anyQueue = rapid.OneOf(rapid.StringMatching(`[a-z.]{1,20}`), rapid.StringN(1, 255, 255),
	rapid.StringMatching(`[a-z]{200,255}`), rapid.StringMatching(`[aü]{120,127}`))

// The level can be parsed from a queue's name, even with a point in it and a shard after it.
func TestLevelOfQueueName(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		queue := anyQueue.Draw(t, "queue")
		level := time.Duration(rapid.Int64Range(1, int64(redeliver.MaxWait/time.Millisecond)).Draw(t, "level")) * time.Millisecond
		if rapid.Bool().Draw(t, "seconds") {
			level = max(level.Truncate(time.Second), time.Second)
		}
		shard := rapid.IntRange(0, maxShards-1).Draw(t, "shard")
		var n Names
		name := n.delay(queue, level, shard)
		if got, ok := n.level(queue, name); !ok || got != level {
			t.Fatalf("%s is of level %v %v, want %v", name, got, ok, level)
		}
		if len(name) > maxQueue {
			t.Fatalf("%s has %d bytes", name, len(name))
		}
	})
}

func TestOtherQueuesHaveNoLevel(t *testing.T) {
	var n Names
	for _, name := range []string{
		"orders.retry", "orders.retry.", "orders.retry.suspects", "orders.retry.90s", "orders.retry.1.1", "orders.retry..1", "orders.retry.10s.1.1",
		"orders.dlq", "orders", "other.retry.10s", "orders.retry.x.1", "orders.retry.0s",
	} {
		if level, ok := n.level("orders", name); ok {
			t.Errorf("%s is a level of %v", name, level)
		}
	}
}

// For any queue name, redeliver's names are valid and distinct.
func TestNamesFitAndDiffer(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		queue := anyQueue.Draw(t, "queue")
		if strings.HasPrefix(queue, "amq.") {
			queue = "x"
		}
		var n Names
		seen := map[string]bool{queue: true}
		for _, name := range []string{n.retry(queue), n.dlq(queue), n.suspects(queue), n.delay(queue, redeliver.MaxWait-time.Millisecond, maxShards-1), n.delay(queue, time.Second, 0)} {
			if seen[name] || len(name) > maxQueue || !utf8.ValidString(name) {
				t.Fatalf("%q of %d bytes, together with %v", name, len(name), seen)
			}
			seen[name] = true
		}
	})
}

// Long names are cut, and remain distinct by their hash.
func TestLongQueuesDoNotShareTheirRetries(t *testing.T) {
	long := strings.Repeat("q", maxQueue-1)
	var n Names
	if a, b := n.retry(long+"a"), n.retry(long+"b"); a == b || !strings.HasPrefix(a, "qqq") || !strings.HasSuffix(a, ".retry") {
		t.Errorf("%s and %s", a, b)
	}
	if name := n.delay(long, redeliver.MaxWait-time.Millisecond, maxShards-1); len(name) > maxQueue {
		t.Errorf("%s has %d bytes", name, len(name))
	}
	if longest := strings.Repeat("q", maxQueue-maxSuffix); n.retry(longest) != longest+".retry" {
		t.Errorf("a queue of %d bytes is cut: %s", len(longest), n.retry(longest))
	}
}

func TestCustomNamesAreChecked(t *testing.T) {
	fixed := func(name string) func(string) string { return func(string) string { return name } }
	for name, row := range map[string]struct {
		names Names
		field string // the field with a problem
	}{
		"defaults":        {Names{}, ""},
		"good":            {Names{Retry: fixed("back"), DLQ: fixed("dead")}, ""},
		"retry is queue":  {Names{Retry: fixed("orders")}, `Names.Retry("orders")`},
		"retry empty":     {Names{Retry: fixed("")}, `Names.Retry("orders")`},
		"retry too long":  {Names{Retry: fixed(strings.Repeat("r", 250))}, `Names.Retry("orders")`},
		"retry reserved":  {Names{Retry: fixed("amq.retry")}, `Names.Retry("orders")`},
		"dlq is queue":    {Names{DLQ: fixed("orders")}, `Names.DLQ("orders")`},
		"dlq is retry":    {Names{DLQ: fixed("orders.retry")}, `Names.DLQ("orders")`},
		"dlq is suspects": {Names{DLQ: fixed("orders.retry.suspects")}, `Names.DLQ("orders")`},
		"dlq no text":     {Names{DLQ: fixed("\xff")}, `Names.DLQ("orders")`},
		"dlq too long":    {Names{DLQ: fixed(strings.Repeat("d", 256))}, `Names.DLQ("orders")`},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := Config{URLs: []string{"amqp://localhost"}, Names: row.names}.withDefaults()
			_, err := newLayout(&cfg, "orders")
			bad, _ := errors.AsType[*redeliver.ConfigError](err)
			switch {
			case row.field == "" && err != nil, row.field != "" && (bad == nil || len(bad.Problems) != 1 || bad.Problems[0].Field != row.field):
				t.Errorf("%v, want a problem with %q", err, row.field)
			}
		})
	}
}
