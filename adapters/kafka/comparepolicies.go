package kafka

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/IBM/sarama"
)

// compare asks the coordinator which policies the group's members run, and tells when
// another one is among them, or no more. Each member asks, because only the group's
// leader hears of it when they join. Who may read the group may ask; where the
// coordinator does not answer, what comes back tells as well, see
// [engine.Subscription.Met].
func (r *reader) comparePolicies() {
	found, err := r.client.admin.sarama.DescribeConsumerGroups([]string{r.layout.group})
	if err != nil || len(found) != 1 || found[0].Err != sarama.ErrNoError {
		return
	}
	if found[0].State != "Stable" {
		r.extra.recheck.Store(true) // it is looked at again at the next sweep
		return
	}
	g := r.layout.members(found[0])
	same := g.unreported == 0
	for _, p := range slices.Sorted(maps.Keys(g.policies)) {
		if p != r.layout.fingerprint {
			r.sub.Differs(p, fmt.Sprintf("it runs on %s", strings.Join(g.policies[p], ", ")))
			same = false
		}
	}
	if same {
		r.sub.Agrees()
	}
}
