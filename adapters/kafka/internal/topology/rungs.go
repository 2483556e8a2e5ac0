package topology

import (
	"errors"
	"slices"
	"time"

	"github.com/IBM/sarama"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka/internal/cluster"
	"github.com/redeliver/redeliver/internal/check"
)

// Rungs are the levels above the longest wait that the policy plans: 15s, 1m, 10m and 1h. Only handlers and publishers
// ask for such waits, and most never do. So a member creates the topics of all rungs when the first such wait comes,
// and then joins the group again. Meanwhile that message hops over the largest level that exists.
//
// A process writes to a rung only while its own session reads it. Whenever a member joins, it looks for rungs. So each
// message on a rung has a reader: members that join because the writer joined or died find the rung.
//
// With OrderThroughRetries and with NoProvisioning there are no rungs: the whole ladder must exist at start.

// rungsRetryPause is the time between two attempts of a member to create rungs.
const rungsRetryPause = time.Minute

func (l *Layout) isRung(cfg Config, level time.Duration) bool {
	return level-slack > l.longestWait() && len(l.Policy.Levels) == 0 && !l.isPerKey() && !cfg.NoProvisioning
}

// RequestRungs makes RungsRequested ready.
func (k *Keeper) RequestRungs() {
	select {
	case k.rungsRequested <- struct{}{}:
	default:
	}
}

// RungsRequested receives when CreateRungs should be called: a message should wait on a rung that cannot be written to.
func (k *Keeper) RungsRequested() <-chan struct{} { return k.rungsRequested }

// reads reports whether the next session reads a level beside the initial ones.
func (k *Keeper) reads(level time.Duration) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Contains(k.present, level)
}

// rungs returns the topics of the rungs for which wanted reports true, and their names.
func (l *Layout) rungs(wanted func(Topic) bool) (topics []Topic, names []string) {
	for _, t := range l.Topics {
		if t.Rung && wanted(t) {
			topics, names = append(topics, t), append(names, t.Name)
		}
	}
	return topics, names
}

// FindRungs looks for rungs that another member has created. It changes nothing if the cluster does not answer.
func (k *Keeper) FindRungs() {
	rungs, names := k.layout.rungs(func(t Topic) bool { return !k.reads(t.Level) })
	if len(rungs) == 0 {
		return
	}
	existing, err := k.provisioner.Admin.Unobserved().Topics(names...)
	if err != nil && !cluster.IsDenied(err) { // rungs are created on demand, so the user may lack rights on them
		return
	}
	for _, t := range rungs {
		if existing[t.Name] == nil {
			continue
		}
		problems, err := k.problemsOf(t)
		k.mu.Lock()
		if !slices.Contains(k.present, t.Level) {
			k.present = append(slices.Clone(k.present), t.Level) // cloned, because others may read the old slice
			slices.Sort(k.present)
		}
		if err != nil || len(problems) > 0 { // compareSettings will report the problems, or find none
			k.unfit = append(k.unfit, t.Level)
			k.Recheck()
		}
		k.mu.Unlock()
	}
}

// problemsOf returns the problems of an existing topic's settings.
func (k *Keeper) problemsOf(t Topic) (problems check.Problems, err error) {
	settings, err := k.provisioner.Admin.Settings(t.Name)
	if err == nil {
		k.layout.checkSettings(k.provisioner.Config, t, settings[t.Name], &problems)
	}
	return problems, err
}

// CreateRungs creates missing rungs, and ends the session so that the next one reads all that exist. One goroutine may
// call it.
func (k *Keeper) CreateRungs() {
	if time.Since(k.lastRungsTry) < rungsRetryPause {
		return
	}
	k.lastRungsTry = time.Now()
	if err := k.tryToCreateRungs(); err != nil {
		k.report("rungs", redeliver.ChangeTopicMissing, "longer waits hop over the levels that are there, again and again", err)
	}
	k.Recheck() // a broker may not know them yet
	_, _ = k.CheckTopics()
}

func (k *Keeper) tryToCreateRungs() error {
	rungs, names := k.layout.rungs(func(Topic) bool { return true })
	admin := k.provisioner.Admin.Unobserved() // longer waits hop over the other levels
	existing, err := admin.Topics(names...)
	if err != nil {
		return err
	}
	var created []string
	var errs []error
	for _, t := range rungs {
		if existing[t.Name] != nil {
			continue
		}
		if _, err := admin.CreateTopic(t.spec()); err != nil {
			errs = append(errs, err)
			continue
		}
		created = append(created, t.Name)
	}
	if len(created) > 0 {
		errs = append(errs, admin.AwaitLeaders(created...))
	}
	return errors.Join(errs...)
}

// compareSettings checks whether our topics can still hold the policy, as a start does. It reports those that cannot,
// and stops writes to such rungs. existing has all topics. It changes nothing if the cluster does not answer.
func (k *Keeper) compareSettings(existing map[string]*sarama.TopicMetadata) {
	l := k.layout
	now, err := k.provisioner.layoutOf(l.Origin, l.Group, l.Policy, existing)
	if err != nil {
		return
	}
	err = k.provisioner.Verify(now)
	refused, ok := errors.AsType[*redeliver.ConfigError](err)
	if err != nil && !ok {
		return
	}
	k.mu.Lock()
	k.unfit = nil
	for _, t := range now.Topics {
		if t.Unfit {
			k.unfit = append(k.unfit, t.Level)
		}
	}
	k.updateWritableLocked()
	k.mu.Unlock()
	if refused != nil {
		k.report("settings", redeliver.ChangeTopicUnfit, "the subscription continues; its next start is refused", refused)
	}
	if len(now.Unfit) > 0 {
		k.report("settings of rungs", redeliver.ChangeTopicUnfit, "longer waits hop over the other levels", now.Unfit.Err())
	}
}
