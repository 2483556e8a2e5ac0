package kafka

import (
	"errors"
	"slices"
	"time"

	"github.com/IBM/sarama"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/delayqueue"
)

// Rungs are the levels above the longest wait that the policy plans: 15s, 1m, 10m and 1h. Only handlers and publishers
// ask for such waits, and most never do. So a member creates the topics of all rungs when the first such wait comes,
// and then joins the group again. Meanwhile that message hops over the largest level that exists.
//
// A process writes to a rung only while its own session reads it. Whenever a member joins, it looks for rungs. So each
// message on a rung has a reader: members that join because the writer joined or died find the rung.
//
// With the order PerKey and with NoProvisioning there are no rungs: the whole ladder must exist at start.

// rungsRetryPause is the time between two attempts of a member to create rungs.
const rungsRetryPause = time.Minute

// rungs creates the topics of the rungs. Only the janitor uses it, except requested.
type rungs struct {
	requested chan struct{} // a message should wait on a rung
	lastTry   time.Time
}

// request makes the janitor create missing rungs.
func (g *rungs) request() {
	select {
	case g.requested <- struct{}{}:
	default:
	}
}

func (l *layout) isRung(cfg Config, level time.Duration) bool {
	return level-slack > l.longestWait() && len(l.policy.Levels) == 0 && l.policy.Order != redeliver.PerKey && !cfg.NoProvisioning
}

// initialLevels returns the ladder without the rungs: the levels that exist from the start.
func (l *layout) initialLevels() delayqueue.Ladder {
	initial := make(delayqueue.Ladder, 0, len(l.ladder))
	for _, t := range l.topics {
		if t.kind == delayTopic && !t.old && !t.rung {
			initial = append(initial, t.level)
		}
	}
	return initial
}

func (x *extraLevels) has(level time.Duration) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.Contains(x.present, level)
}

// setWritableLevels allows writes to the rungs that the new session reads.
func (r *reader) setWritableLevels() {
	x := &r.extra
	x.mu.Lock()
	defer x.mu.Unlock()
	x.session = nil
	for _, t := range r.layout.topics {
		if _, reads := r.levels[t.name]; reads && t.rung {
			x.session = append(x.session, t.level)
		}
	}
	r.updateWritableLocked()
}

// updateWritableLocked computes which levels may be written to.
func (r *reader) updateWritableLocked() {
	writable := r.layout.initialLevels()
	for _, level := range r.extra.session {
		if slices.Contains(r.extra.present, level) && !slices.Contains(r.extra.unfit, level) {
			writable = append(writable, level)
		}
	}
	r.layout.writable.Store(&writable)
}

// findRungs looks for rungs that another member has created. It changes nothing if the cluster does not answer.
func (r *reader) findRungs() {
	var names []string
	for _, t := range r.layout.topics {
		if t.rung && !r.extra.has(t.level) {
			names = append(names, t.name)
		}
	}
	if len(names) == 0 {
		return
	}
	existing, err := r.client.admin.Topics(names...)
	if err != nil || len(existing) == 0 {
		return
	}
	x := &r.extra
	for _, t := range r.layout.topics {
		if existing[t.name] == nil || !t.rung {
			continue
		}
		problems, err := r.problemsOf(t)
		x.mu.Lock()
		if !slices.Contains(x.present, t.level) {
			x.present = append(slices.Clone(x.present), t.level) // cloned, because others may read the old slice
			slices.Sort(x.present)
		}
		if err != nil || len(problems) > 0 { // compareSettings will report the problems, or find none
			x.unfit = append(x.unfit, t.level)
			x.recheck.Store(true)
		}
		x.mu.Unlock()
	}
}

// problemsOf returns the problems of an existing topic's settings.
func (r *reader) problemsOf(t ownTopic) (problems redeliver.Problems, err error) {
	settings, err := r.client.admin.Settings(t.name)
	if err == nil {
		r.layout.checkSettings(r.client.cfg, t, settings[t.name], &problems)
	}
	return problems, err
}

// createRungs creates missing rungs, and makes the reader join again to read all that exist.
func (r *reader) createRungs() {
	if time.Since(r.rungs.lastTry) < rungsRetryPause {
		return
	}
	r.rungs.lastTry = time.Now()
	if err := r.tryToCreateRungs(); err != nil {
		r.reportOften("rungs", redeliver.ChangeTopicMissing, "longer waits hop over the levels that are there, again and again", err)
	}
	r.extra.recheck.Store(true) // a broker may not know them yet
	_, _ = r.checkTopics()
}

func (r *reader) tryToCreateRungs() error {
	var names []string
	for _, t := range r.layout.topics {
		if t.rung {
			names = append(names, t.name)
		}
	}
	existing, err := r.client.admin.Topics(names...)
	if err != nil {
		return err
	}
	var created []string
	var errs []error
	for _, t := range r.layout.topics {
		if !t.rung || existing[t.name] != nil {
			continue
		}
		if _, err := r.client.admin.CreateTopic(t.spec(), r.layout.neededRetention()); err != nil {
			errs = append(errs, err)
			continue
		}
		created = append(created, t.name)
	}
	if len(created) > 0 {
		errs = append(errs, r.client.admin.AwaitLeaders(created...))
	}
	return errors.Join(errs...)
}

// compareSettings checks whether our topics can still hold the policy, as a start does. It reports those that cannot,
// and stops writes to such rungs. existing has all topics.
func (r *reader) compareSettings(existing map[string]*sarama.TopicMetadata) error {
	now, err := r.client.layoutOf(r.layout.origin, r.layout.group, existing)
	if err != nil {
		return err
	}
	err = r.client.verify(now)
	refused, ok := errors.AsType[*redeliver.ConfigError](err)
	if err != nil && !ok {
		return err
	}
	x := &r.extra
	x.mu.Lock()
	x.unfit = nil
	for _, t := range now.topics {
		if t.unfit {
			x.unfit = append(x.unfit, t.level)
		}
	}
	r.updateWritableLocked()
	x.mu.Unlock()
	if refused != nil {
		r.reportOften("settings", redeliver.ChangeTopicUnfit, "the subscription continues; its next start is refused", refused)
	}
	if len(now.unfit) > 0 {
		r.reportOften("settings of rungs", redeliver.ChangeTopicUnfit, "longer waits hop over the other levels", now.unfit.Err())
	}
	return nil
}
