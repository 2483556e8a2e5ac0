package reader

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/IBM/sarama"

	"github.com/redeliver/redeliver/adapters/kafka/internal/diagnose"
)

// comparePolicies asks the coordinator for the policies of the group's members. It reports other policies, and when
// none is left. Each member asks, because only the group's leader gets the policies when members join. It needs
// Describe on the group. Without an answer, retries with another policy still reveal it, see [engine.Subscription.CheckPolicyOf].
func (r *Reader) comparePolicies() {
	found, err := r.admin().Sarama.DescribeConsumerGroups([]string{r.Layout.Group})
	if err != nil || len(found) != 1 || found[0].Err != sarama.ErrNoError {
		return
	}
	if found[0].State != "Stable" {
		r.keeper.Recheck() // the next sweep checks again
		return
	}
	g := diagnose.MembersOf(found[0], r.Layout.Origin)
	same := g.Unreported == 0
	for _, p := range slices.Sorted(maps.Keys(g.Policies)) {
		if p != r.Layout.Fingerprint {
			r.Sub.ReportOtherPolicy(p, fmt.Sprintf("it runs on %s", strings.Join(g.Policies[p], ", ")))
			same = false
		}
	}
	if same {
		r.Sub.ReportOnePolicy()
	}
}
