package topology

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/IBM/sarama"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka/internal/cluster"
	"github.com/redeliver/redeliver/internal/engine"
)

// Keeper keeps the topics of a running member usable, and knows which of them the member reads and may write to. It
// creates our deleted topics again, creates rungs when they are needed, verifies settings, and ends the session when
// the topics to read have changed.
//
// Beside its initial levels, a member reads rungs and levels of other policies. They come and go: the first long wait
// creates the rungs, a deploy that is rolled back leaves levels that only newer members knew, and empty levels are
// deleted.
type Keeper struct {
	provisioner *Provisioner
	layout      *Layout
	sub         *engine.Subscription
	report      ReportAtIntervals
	recheck     atomic.Bool // topics or policies may have changed

	mu         sync.Mutex
	present    []time.Duration    // existing levels beside the initial ones, ascending
	missing    []string           // missing topics among the initial ones
	endSession context.CancelFunc // ends the session: the next one reads the present levels
	session    []time.Duration    // rungs that the session reads
	unfit      []time.Duration    // rungs whose settings would lose messages

	rungsRequested chan struct{} // a message should wait on a rung
	lastRungsTry   time.Time     // used only by CreateRungs

	restoreMu  sync.Mutex
	restoredAt map[string]time.Time // when deleted topics were created again
	restored   cluster.TopicIDs     // the ids that they got
}

// ReportAtIntervals reports a problem of the subscription once, and again while it lasts. The argument what identifies
// the problem.
type ReportAtIntervals func(what string, change redeliver.Change, detail string, err error)

// NewKeeper returns the keeper of a member. layout is provisioned.
func NewKeeper(p *Provisioner, layout *Layout, sub *engine.Subscription, report ReportAtIntervals) *Keeper {
	k := &Keeper{provisioner: p, layout: layout, sub: sub, report: report, rungsRequested: make(chan struct{}, 1),
		restoredAt: make(map[string]time.Time), restored: make(cluster.TopicIDs)}
	for _, t := range layout.Topics {
		if (t.Old || t.Rung && t.Exists) && (!layout.isPerKey() || t.Partitions == layout.Partitions) {
			k.present = append(k.present, t.Level)
		}
		if t.Unfit {
			k.unfit = append(k.unfit, t.Level)
		}
	}
	slices.Sort(k.present)
	return k
}

// Subscription returns the topics to read now: the origin, and the topics on which messages wait with their levels, 0
// for the retry topic.
func (k *Keeper) Subscription() (names []string, levels map[string]time.Duration) {
	k.mu.Lock()
	present, missing := k.present, k.missing
	k.mu.Unlock()
	l := k.layout
	names = []string{l.Origin}
	levels = make(map[string]time.Duration)
	add := func(name string, level time.Duration) {
		names = append(names, name)
		levels[name] = level
	}
	for _, t := range l.Topics {
		if t.Waits() && !t.Old && !t.Rung && !slices.Contains(missing, t.Name) {
			add(t.Name, t.Level)
		}
	}
	for _, level := range present {
		add(k.provisioner.Config.Names.DelayTopic(l.Origin, l.Group, level), level)
	}
	return names, levels
}

// SetEndSession sets the function that ends the next session.
func (k *Keeper) SetEndSession(endSession context.CancelFunc) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.endSession = endSession
}

// BeginSession allows writes to the rungs that the new session reads.
func (k *Keeper) BeginSession(levels map[string]time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.session = nil
	for _, t := range k.layout.Topics {
		if _, reads := levels[t.Name]; reads && t.Rung {
			k.session = append(k.session, t.Level)
		}
	}
	k.updateWritableLocked()
}

// updateWritableLocked computes which levels may be written to.
func (k *Keeper) updateWritableLocked() {
	writable := k.layout.initialLevels()
	for _, level := range k.session {
		if slices.Contains(k.present, level) && !slices.Contains(k.unfit, level) {
			writable = append(writable, level)
		}
	}
	k.layout.writable.Store(&writable)
}

// Rejoin ends the session, if there is one, and with it those of all members.
func (k *Keeper) Rejoin() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.rejoinLocked()
}

func (k *Keeper) rejoinLocked() {
	if k.endSession != nil {
		k.endSession()
	}
}

// Recheck makes the next CheckIfDue check even if no check is due.
func (k *Keeper) Recheck() { k.recheck.Store(true) }

// CheckIfDue checks our topics and their settings if a check is due or Recheck was called.
func (k *Keeper) CheckIfDue(due bool) {
	if !k.recheck.Swap(false) && !due {
		return
	}
	existing, err := k.CheckTopics()
	if err != nil {
		k.Recheck()
		return
	}
	k.compareSettings(existing)
}

// CheckTopics creates our deleted topics again, ends the session if the levels to read have changed, and returns all
// topics. It changes nothing if the cluster does not answer.
func (k *Keeper) CheckTopics() (map[string]*sarama.TopicMetadata, error) {
	l := k.layout
	existing, err := k.listTopics()
	if err != nil {
		return nil, err
	}
	existing, missing, err := k.restore(existing)
	if err != nil {
		return nil, err
	}
	if len(missing) > 0 {
		k.Recheck() // the next CheckIfDue looks for them again
	}
	missing = slices.DeleteFunc(missing, func(name string) bool { return !l.waits(name) }) // members do not read these
	present := k.keepEqualPartitions(l.otherLevels(k.provisioner.Config.Names, existing, l.initialLevels()), existing)
	k.mu.Lock()
	defer k.mu.Unlock()
	if slices.Equal(present, k.present) && slices.Equal(missing, k.missing) {
		return existing, nil
	}
	k.present, k.missing = present, missing
	k.updateWritableLocked()
	k.rejoinLocked()
	return existing, nil
}

// Expected returns the topics that should exist: the origin, and ours.
func (k *Keeper) Expected() []string {
	return append(k.layout.names(func(t Topic) bool { return !t.Old && (!t.Rung || k.reads(t.Level)) }), k.layout.Origin)
}

// listTopics returns all topics. It returns an error if the origin is missing: then the broker does not know all topics
// yet.
func (k *Keeper) listTopics() (map[string]*sarama.TopicMetadata, error) {
	l := k.layout
	existing, err := k.provisioner.Admin.Topics()
	if err != nil {
		return nil, err
	}
	var unlisted []string
	for _, name := range k.Expected() {
		if existing[name] == nil {
			unlisted = append(unlisted, name)
		}
	}
	if err := k.provisioner.askFor(unlisted); err != nil {
		return nil, err
	}
	if existing[l.Origin] == nil {
		return nil, fmt.Errorf("kafka: listing topics: %s does not exist", l.Origin)
	}
	return existing, nil
}

// keepEqualPartitions drops and reports levels with another number of partitions than the origin if the order is
// OrderThroughRetries.
func (k *Keeper) keepEqualPartitions(levels []time.Duration, existing map[string]*sarama.TopicMetadata) []time.Duration {
	l := k.layout
	if !l.isPerKey() {
		return levels
	}
	want := len(existing[l.Origin].Partitions)
	return slices.DeleteFunc(levels, func(level time.Duration) bool {
		name := k.provisioner.Config.Names.DelayTopic(l.Origin, l.Group, level)
		n := len(existing[name].Partitions)
		if n != want {
			err := l.unequalPartitions(name, n, want)
			k.report(name+" "+err.Error(), redeliver.ChangeNotRead, name+": its messages wait; trying again", err)
		}
		return n != want
	})
}

// EqualizePartitions makes sure that topics on which messages wait have as many partitions as the origin. If the origin
// has grown, EqualizePartitions adds partitions to them and returns an error: the next session reads these. ctx is the
// session's.
func (k *Keeper) EqualizePartitions(ctx context.Context, topics []string) error {
	l, p := k.layout, k.provisioner
	existing, err := k.CheckTopics()
	if err != nil || ctx.Err() != nil { // the session is about to end
		return err
	}
	want := len(existing[l.Origin].Partitions)
	mayGrow := !p.Config.NoProvisioning && len(topics)*want <= p.Config.MaxPartitions
	var grown []string
	for _, topic := range topics {
		n := 0
		if t := existing[topic]; t != nil {
			n = len(t.Partitions)
		}
		switch {
		case n == want:
		case 0 < n && n < want && mayGrow:
			if err := p.Admin.AddPartitions(topic, want); err != nil {
				return fmt.Errorf("%w (%w)", l.unequalPartitions(topic, n, want), err)
			}
			grown = append(grown, topic)
		default:
			return l.unequalPartitions(topic, n, want)
		}
	}
	if len(grown) == 0 {
		return nil
	}
	if err := p.Admin.AwaitLeaders(grown...); err != nil {
		return err
	}
	return fmt.Errorf("kafka: topic %s has more partitions than before, so %s got as many; the next session reads them", l.Origin, strings.Join(grown, ", "))
}

func (l *Layout) unequalPartitions(topic string, n, want int) error {
	return fmt.Errorf("kafka: topic %s has %d partitions and %s has %d: OrderThroughRetries needs equal numbers. %s", topic, n, l.Origin, want, equalizeHint(n, want))
}

// equalizeHint says how a topic with n partitions gets want. Kafka removes no partitions, and with OrderThroughRetries the
// messages of such a topic are not read.
func equalizeHint(n, want int) string {
	if n < want {
		return "Raise them (kafka-topics --alter --partitions)"
	}
	return "Partitions cannot be removed. Run all members with OrderFirstAttempts until the topic is empty, then delete it, and start with OrderThroughRetries again"
}
