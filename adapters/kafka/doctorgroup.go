package kafka

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/IBM/sarama"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/delayqueue"
	"github.com/redeliver/redeliver/doctor"
)

// policyPrefix begins what a member says of itself when it joins its group: which
// policy it runs, so that Doctor can compare.
const policyPrefix = "redeliver-policy="

// perKeySuffix ends it where the Order is PerKey: nothing can be released there.
const perKeySuffix = " PerKey"

// announced is what a member says of itself, where its balance strategy leaves that to
// us. Sticky ones read it as their own.
func (c Config) announced(topic string, cfg *sarama.Config) []byte {
	said := cfg.Consumer.Group.Member.UserData
	for _, s := range cfg.Consumer.Group.Rebalance.GroupStrategies {
		if !slices.Contains([]string{sarama.RangeBalanceStrategyName, sarama.RoundRobinBalanceStrategyName, copartitioned{}.Name()}, s.Name()) {
			return said
		}
	}
	if len(said) > 0 || cfg.Consumer.Group.Rebalance.Strategy != nil {
		return said
	}
	policy := c.policy(topic)
	said = []byte(policyPrefix + delayqueue.Fingerprint(policy))
	if policy.Order == redeliver.PerKey {
		said = append(said, perKeySuffix...)
	}
	return said
}

// groupState is what the coordinator tells of a group that is at rest.
type groupState struct {
	topics   map[string]int // members that read it
	policies map[string][]string
	silent   int // members that do not say which policy they run
}

// reads reports whether a member reads a topic. It is true where nobody knows.
func (g *groupState) reads(topic string) bool { return g == nil || g.topics[topic] > 0 }

const (
	restTries = 20
	restPause = 500 * time.Millisecond
)

// group asks the coordinator; nil where it does not tell, and the diagnosis says why.
func (d *examination) group(ctx context.Context) *groupState {
	unknown := func(why string) *groupState {
		d.NotChecked = append(d.NotChecked, "the members of group "+d.l.group+" and their policies ("+why+")")
		return nil
	}
	why := ""
	for range restTries {
		found, err := d.c.admin.sarama.DescribeConsumerGroups([]string{d.l.group})
		if err == nil && len(found) == 1 {
			err = found[0].Err
		}
		switch {
		case errors.Is(err, sarama.ErrGroupAuthorizationFailed):
			return unknown("the user needs Describe on the group")
		case moves(err):
			why = err.Error()
		case err != nil && !errors.Is(err, sarama.ErrNoError) && !errors.Is(err, sarama.ErrGroupIDNotFound):
			return unknown(err.Error())
		case len(found) != 1:
			return unknown("the coordinator does not answer")
		case slices.Contains([]string{"Stable", "Empty", "Dead"}, found[0].State):
			d.Checked = append(d.Checked, "the members of group "+d.l.group)
			return d.l.members(found[0])
		default:
			why = "it is " + found[0].State // it rebalances
		}
		if !rest(ctx) {
			return unknown(ctx.Err().Error())
		}
	}
	return unknown(why)
}

// moves reports whether the group's coordinator is about to be another, or has just begun.
func moves(err error) bool {
	return errors.Is(err, sarama.ErrOffsetsLoadInProgress) || errors.Is(err, sarama.ErrConsumerCoordinatorNotAvailable) || errors.Is(err, sarama.ErrNotCoordinatorForConsumer)
}

// rest waits for a moment; it is false when ctx has ended.
func rest(ctx context.Context) bool {
	select {
	case <-time.After(restPause):
		return true
	case <-ctx.Done():
		return false
	}
}

// members reads what the members of the group that read the origin say of themselves.
func (l *layout) members(found *sarama.GroupDescription) *groupState {
	g := &groupState{topics: make(map[string]int), policies: make(map[string][]string)}
	for _, m := range found.Members {
		meta, err := m.GetMemberMetadata()
		if err != nil || meta == nil {
			g.silent++
			continue
		}
		for _, t := range meta.Topics {
			g.topics[t]++
		}
		if !slices.Contains(meta.Topics, l.origin) {
			continue
		}
		if policy, ok := strings.CutPrefix(string(meta.UserData), policyPrefix); ok {
			policy = strings.TrimSuffix(policy, perKeySuffix)
			g.policies[policy] = append(g.policies[policy], fmt.Sprintf("%s (%s)", m.ClientHost, m.ClientId))
		} else {
			g.silent++
		}
	}
	return g
}

// policies looks whether the members run one policy.
func (d *examination) policies(g *groupState) {
	if g == nil {
		return
	}
	if g.silent > 0 {
		d.NotChecked = append(d.NotChecked, fmt.Sprintf("the policies of %d members of group %s (they do not say: an older version, or a balance strategy of their own)", g.silent, d.l.group))
	}
	if len(g.policies) > 0 {
		d.Checked = append(d.Checked, "the policies of the members")
	}
	var runs []string
	for _, p := range slices.Sorted(maps.Keys(g.policies)) {
		slices.Sort(g.policies[p])
		runs = append(runs, fmt.Sprintf("%s runs on %s", p, strings.Join(g.policies[p], ", ")))
	}
	ours := delayqueue.Fingerprint(d.l.policy)
	switch {
	case len(runs) > 1:
		d.Add(doctor.SymptomPolicies, d.l.group, "members run different policies: "+strings.Join(runs, "; ")+". Which one decides depends on who gets a message: end a deployment that is under way")
	case len(runs) == 1 && !d.how.AnyPolicy && g.policies[ours] == nil:
		d.Add(doctor.SymptomPolicies, d.l.group, "the members run a policy other than the given one, which is "+ours+": "+runs[0])
	}
}

// lag is what is not settled of a topic, by partition.
type lag map[int32]unsettled

type unsettled struct{ from, end int64 }

func (u unsettled) n() int64 { return u.end - u.from }

func (l lag) all() (n int64) {
	for _, u := range l {
		n += max(0, u.n())
	}
	return n
}

// marksMost is how many offsets behind a group's last may be nothing that anybody reads.
const marksMost = 100

// lags asks what a group has not settled; nil where it may not be asked for.
func (d *examination) lags(ctx context.Context, group string, topics []string) (map[string]lag, error) {
	partitions := make(map[string][]int32)
	for _, topic := range topics {
		all, err := d.c.admin.client.Partitions(topic)
		if err != nil {
			return nil, fmt.Errorf("kafka: asking for the partitions of %s: %w", topic, err)
		}
		partitions[topic] = all
	}
	committed, err := d.c.admin.sarama.ListConsumerGroupOffsets(group, partitions)
	for try := 1; moves(err) && try < restTries && rest(ctx); try++ {
		committed, err = d.c.admin.sarama.ListConsumerGroupOffsets(group, partitions)
	}
	if errors.Is(err, sarama.ErrGroupAuthorizationFailed) {
		return nil, nil //nolint:nilnil // nobody knows, and that is no failure
	}
	if err != nil && !errors.Is(err, sarama.ErrGroupIDNotFound) { // which has never committed anything
		return nil, fmt.Errorf("kafka: asking for the offsets of group %s: %w", group, err)
	}
	lags := make(map[string]lag, len(topics))
	for _, topic := range topics {
		log := logReader{d.c.admin.client, topic}
		lags[topic] = make(lag)
		for _, p := range partitions[topic] {
			start, end, bad := log.bounds(ctx, p)
			if bad != nil {
				return nil, bad
			}
			from := start
			if err == nil {
				if block := committed.GetBlock(topic, p); block != nil && block.Offset > start {
					from = min(block.Offset, end)
				}
			}
			if n := end - from; n > 0 && n <= marksMost {
				// They may be the marks of transactions, which no member commits.
				if page, err := log.read(ctx, p, from); err == nil && len(page.records) == 0 {
					from = min(max(from, page.next), end)
				}
			}
			lags[topic][p] = unsettled{from, end}
		}
	}
	return lags, nil
}
