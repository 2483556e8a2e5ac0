package engine

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/check"
	"github.com/redeliver/redeliver/internal/wait"
)

// CheckPolicyNames refuses policies of single topics or queues that do not exist and that the client does not read. Such
// a name is misspelled: the topic that was meant would run the default policy. read are the names that the client reads.
// exists is asked about the others; an error means that it cannot be known, and refuses nothing. kind is "topic" or
// "queue".
func CheckPolicyNames(kind string, policies map[string]redeliver.Policy, read []string, exists func(name string) (bool, error)) error {
	var ps check.Problems
	for _, name := range slices.Sorted(maps.Keys(policies)) {
		if slices.Contains(read, name) {
			continue
		}
		if found, err := exists(name); found || err != nil {
			continue
		}
		ps.Add(fmt.Sprintf("%ss[%q]", strings.ToUpper(kind[:1])+kind[1:], name), "set", fmt.Sprintf(
			"must name a %s that exists or is read: %s %s does not exist, and nothing reads it. Correct the name, or remove it. This client reads %s",
			kind, kind, name, strings.Join(read, ", ")))
	}
	return ps.Err()
}

// subscribeTime is how long a client may take for all its calls of Subscribe.
const subscribeTime = 30 * time.Second

// PolicyNames reports policies of single topics or queues that nothing reads, for brokers on which a later Subscribe may
// create the topic or queue, so that the first one cannot refuse them.
type PolicyNames struct{ checked atomic.Bool }

// Watch calls check once for the client, after the time that its calls of Subscribe may take, and reports its error.
func (n *PolicyNames) Watch(ctx context.Context, sub *Subscription, check func(context.Context) error) {
	if wait.For(ctx, subscribeTime) != nil || n.checked.Swap(true) {
		return
	}
	if err := check(ctx); err != nil && ctx.Err() == nil {
		sub.EmitChange(redeliver.ChangePolicyUnused, "", err)
	}
}
