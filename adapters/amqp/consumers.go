package amqp

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"
)

// compareEvery is how often a subscription reads the policies of its queue's consumers. The management API knows a
// new consumer within seconds.
const compareEvery = 15 * time.Second

// comparePolicies reports until ctx ends when consumers of the queue run another policy, and when they stop. Without
// a management API that answers, only returning messages show it, see [engine.Subscription.Met].
func (r *reader) comparePolicies(ctx context.Context) {
	m := r.client.cfg.management()
	if m == nil || r.sub.Sink == nil {
		return
	}
	ticker := time.NewTicker(compareEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		asking, cancel := context.WithTimeout(ctx, r.client.cfg.DialTimeout)
		runs, silent, err := m.Consumers(asking, r.layout.Queue)
		cancel()
		if err != nil {
			continue
		}
		same := silent == 0 && len(runs) > 0
		for _, p := range slices.Sorted(maps.Keys(runs)) {
			if p != r.layout.Fingerprint {
				r.sub.Differs(p, "it runs on "+strings.Join(runs[p], ", "))
				same = false
			}
		}
		if same {
			r.sub.Agrees()
		}
	}
}
