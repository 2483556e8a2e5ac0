package amqp

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// compareEvery is how often a subscription reads the policies of its queue's consumers. The management API knows a
// new consumer within seconds.
const compareEvery = 15 * time.Second

// consumers returns the connections that read a queue, by the policy that they report, and the number of consumers
// without one. A missing queue has none.
func (m *management) consumers(ctx context.Context, queue string) (runs map[string][]string, silent int, err error) {
	var found struct {
		Consumers []struct {
			Arguments object `json:"arguments"`
			Channel   object `json:"channel_details"` // empty while the broker does not know the channel
		} `json:"consumer_details"`
	}
	err = m.get(ctx, &found, url.Values{"columns": {"consumer_details"}}, "queues", m.vhost, queue)
	if answer, ok := errors.AsType[*answerError](err); ok && answer.code == http.StatusNotFound {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, err
	}
	runs = make(map[string][]string)
	for _, c := range found.Consumers {
		if policy, ok := c.Arguments[policyArg].(string); ok {
			connection, _ := c.Channel["connection_name"].(string)
			runs[policy] = append(runs[policy], connection)
		} else {
			silent++
		}
	}
	for _, p := range runs {
		slices.Sort(p)
	}
	return runs, silent, nil
}

// comparePolicies reports until ctx ends when consumers of the queue run another policy, and when they stop. Without
// a management API that answers, only returning messages show it, see [engine.Subscription.Met].
func (r *reader) comparePolicies(ctx context.Context) {
	m := newManagement(&r.client.cfg)
	if m == nil || r.sub.Sink == nil {
		return
	}
	defer m.close()
	ticker := time.NewTicker(compareEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		asking, cancel := context.WithTimeout(ctx, r.client.cfg.DialTimeout)
		runs, silent, err := m.consumers(asking, r.layout.queue)
		cancel()
		if err != nil {
			continue
		}
		same := silent == 0 && len(runs) > 0
		for _, p := range slices.Sorted(maps.Keys(runs)) {
			if p != r.layout.fingerprint {
				r.sub.Differs(p, "it runs on "+strings.Join(runs[p], ", "))
				same = false
			}
		}
		if same {
			r.sub.Agrees()
		}
	}
}
