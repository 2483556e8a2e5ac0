package diagnose

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
	"github.com/redeliver/redeliver/adapters/kafka/internal/topiclog"
	"github.com/redeliver/redeliver/delayqueue"
	"github.com/redeliver/redeliver/doctor"
	"github.com/redeliver/redeliver/internal/wait"
)

// policyPrefix begins the user data of a member. It names the member's policy.
const policyPrefix = "redeliver-policy="

// perKeySuffix ends that data if the Order is PerKey: nothing can be released then.
const perKeySuffix = " PerKey"

// UserData returns the data with which a member announces its policy to the group.
func UserData(policy redeliver.Policy) []byte {
	data := policyPrefix + delayqueue.Fingerprint(policy)
	if policy.Order == redeliver.PerKey {
		data += perKeySuffix
	}
	return []byte(data)
}

// Members is the coordinator's description of a group that does not rebalance.
type Members struct {
	Policies   map[string][]string // members by fingerprint of the policy that they announce
	Unreported int                 // members that do not announce their policy
	PerKey     bool                // a member announces the order PerKey

	topics map[string]int // number of members that read a topic
}

// reads reports whether a member reads a topic. It returns true if that is not known.
func (g *Members) reads(topic string) bool { return g == nil || g.topics[topic] > 0 }

const (
	maxGroupTries = 20
	groupPause    = 500 * time.Millisecond
)

// describeGroup asks the coordinator about the group. If it gets no answer, it returns nil and adds the reason to
// NotChecked.
func (d *examination) describeGroup(ctx context.Context) *Members {
	unknown := func(why string) *Members {
		d.NotChecked = append(d.NotChecked, "the members of group "+d.layout.Group+" and their policies ("+why+")")
		return nil
	}
	why := ""
	for range maxGroupTries {
		found, err := d.admin.Sarama.DescribeConsumerGroups([]string{d.layout.Group})
		if err == nil && len(found) == 1 {
			err = found[0].Err
		}
		switch {
		case errors.Is(err, sarama.ErrGroupAuthorizationFailed):
			return unknown("the user needs Describe on the group")
		case isCoordinatorMoving(err):
			why = err.Error()
		case err != nil && !errors.Is(err, sarama.ErrNoError) && !errors.Is(err, sarama.ErrGroupIDNotFound):
			return unknown(err.Error())
		case len(found) != 1:
			return unknown("the coordinator does not answer")
		case slices.Contains([]string{"Stable", "Empty", "Dead"}, found[0].State):
			d.Checked = append(d.Checked, "the members of group "+d.layout.Group)
			return MembersOf(found[0], d.layout.Origin)
		default:
			why = "it is " + found[0].State // it rebalances
		}
		if wait.For(ctx, groupPause) != nil {
			return unknown(ctx.Err().Error())
		}
	}
	return unknown(why)
}

// isCoordinatorMoving reports whether the group's coordinator is changing or has just started.
func isCoordinatorMoving(err error) bool {
	return errors.Is(err, sarama.ErrOffsetsLoadInProgress) || errors.Is(err, sarama.ErrConsumerCoordinatorNotAvailable) || errors.Is(err, sarama.ErrNotCoordinatorForConsumer)
}

// MembersOf reads the user data of the members that read the origin.
func MembersOf(found *sarama.GroupDescription, origin string) *Members {
	g := &Members{topics: make(map[string]int), Policies: make(map[string][]string)}
	for _, m := range found.Members {
		meta, err := m.GetMemberMetadata()
		if err != nil || meta == nil {
			g.Unreported++
			continue
		}
		for _, t := range meta.Topics {
			g.topics[t]++
		}
		if !slices.Contains(meta.Topics, origin) {
			continue
		}
		if policy, ok := strings.CutPrefix(string(meta.UserData), policyPrefix); ok {
			policy, perKey := strings.CutSuffix(policy, perKeySuffix)
			g.PerKey = g.PerKey || perKey
			g.Policies[policy] = append(g.Policies[policy], fmt.Sprintf("%s (%s)", m.ClientHost, m.ClientId))
		} else {
			g.Unreported++
		}
	}
	return g
}

// checkPolicies checks whether all members run one policy.
func (d *examination) checkPolicies(g *Members) {
	if g == nil {
		return
	}
	if g.Unreported > 0 {
		d.NotChecked = append(d.NotChecked, fmt.Sprintf("the policies of %d members of group %s (they do not report one: an older version, or their own balance strategy)", g.Unreported, d.layout.Group))
	}
	if len(g.Policies) > 0 {
		d.Checked = append(d.Checked, "the policies of the members")
	}
	var runs []string
	for _, p := range slices.Sorted(maps.Keys(g.Policies)) {
		slices.Sort(g.Policies[p])
		runs = append(runs, fmt.Sprintf("%s runs on %s", p, strings.Join(g.Policies[p], ", ")))
	}
	ours := d.layout.Fingerprint
	switch {
	case len(runs) > 1:
		d.Add(doctor.SymptomPolicies, d.layout.Group, "members run different policies: "+strings.Join(runs, "; ")+". Which one decides depends on the member that gets a message: finish a running deployment")
	case len(runs) == 1 && !d.options.AnyPolicy && g.Policies[ours] == nil:
		d.Add(doctor.SymptomPolicies, d.layout.Group, "the members run a policy other than the given one, which is "+ours+": "+runs[0])
	}
}

// lag has the unsettled offsets of a topic, by partition.
type lag map[int32]unsettled

type unsettled struct{ from, end int64 }

func (u unsettled) count() int64 { return u.end - u.from }

func (l lag) total() (n int64) {
	for _, u := range l {
		n += max(0, u.count())
	}
	return n
}

// maxMarkers bounds the offsets at the end of a partition that may all be markers of transactions.
const maxMarkers = 100

// lags returns the unsettled offsets of a group, by topic. It returns nil without the right to ask.
func (d *examination) lags(ctx context.Context, group string, topics []string) (map[string]lag, error) {
	partitions := make(map[string][]int32)
	for _, topic := range topics {
		all, err := d.admin.Client.Partitions(topic)
		if err != nil {
			return nil, fmt.Errorf("kafka: asking for the partitions of %s: %w", topic, err)
		}
		partitions[topic] = all
	}
	committed, err := d.admin.GroupOffsetsIfAny(group, partitions)
	for try := 1; isCoordinatorMoving(err) && try < maxGroupTries && wait.For(ctx, groupPause) == nil; try++ {
		committed, err = d.admin.GroupOffsetsIfAny(group, partitions)
	}
	if errors.Is(err, sarama.ErrGroupAuthorizationFailed) {
		return nil, nil //nolint:nilnil // it is unknown, which is no failure
	}
	if err != nil {
		return nil, err
	}
	lags := make(map[string]lag, len(topics))
	for _, topic := range topics {
		log := topiclog.Reader{Client: d.admin.Client, Topic: topic}
		lags[topic] = make(lag)
		for _, p := range partitions[topic] {
			start, end, err := log.Bounds(ctx, p)
			if err != nil {
				return nil, err
			}
			from := start
			if offset, err := committed.Offset(topic, p); err == nil && offset > start {
				from = min(offset, end)
			}
			if n := end - from; n > 0 && n <= maxMarkers {
				// Members do not commit markers of transactions.
				if page, err := log.Read(ctx, p, from); err == nil && len(page.Records) == 0 {
					from = min(max(from, page.Next), end)
				}
			}
			lags[topic][p] = unsettled{from, end}
		}
	}
	return lags, nil
}
