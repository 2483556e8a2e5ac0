package kafka

import (
	"errors"
	"slices"
	"time"

	"github.com/IBM/sarama"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/delayqueue"
)

// Rungs are the levels above the longest wait that the policy plans: 15s, 1m, 10m and 1h. Only a handler or a publisher asks for
// such a wait, and most never do. So their topics are created when the first such wait comes. That message goes to the
// largest level that is there and hops over it. Meanwhile a member creates all rungs and joins the group anew, once.
//
// A process writes to a rung only while a session of its own reads it. Whenever a member joins, it looks which rungs are
// there. So each message on a rung has a reader: the members that join because the writer did, or because it died, find it.
//
// With the order PerKey, and where redeliver creates no topics, there are no rungs: the whole ladder is needed at start.

// rungsAgain is after how long a member looks for rungs again that it could not create, or does not read yet.
const rungsAgain = time.Minute

// rungs has the topics of the rungs created. It belongs to the janitor, but for the bell.
type rungs struct {
	bell  chan struct{} // a message would wait on one
	tried time.Time
}

// want has the janitor create what is missing.
func (g *rungs) want() {
	select {
	case g.bell <- struct{}{}:
	default:
	}
}

func (l *layout) isRung(cfg Config, level time.Duration) bool {
	return level-slack > l.longestWait() && len(l.policy.Levels) == 0 && l.policy.Order != redeliver.PerKey && !cfg.NoProvisioning
}

// starts is the ladder without the rungs: the levels that are there from the start.
func (l *layout) starts() delayqueue.Ladder {
	starts := make(delayqueue.Ladder, 0, len(l.ladder))
	for _, t := range l.topics {
		if t.kind == delayTopic && !t.old && !t.rung {
			starts = append(starts, t.level)
		}
	}
	return starts
}

func (x *extraLevels) has(level time.Duration) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.Contains(x.now, level)
}

// reach has the process write to the rungs that the session reads. The session has begun.
func (r *reader) reach() {
	x := &r.extra
	x.mu.Lock()
	defer x.mu.Unlock()
	x.session = nil
	for _, t := range r.layout.topics {
		if _, reads := r.levels[t.name]; reads && t.rung {
			x.session = append(x.session, t.level)
		}
	}
	r.reachLocked()
}

// reachLocked computes again which levels are written to.
func (r *reader) reachLocked() {
	reach := r.layout.starts()
	for _, level := range r.extra.session {
		if slices.Contains(r.extra.now, level) && !slices.Contains(r.extra.unfit, level) {
			reach = append(reach, level)
		}
	}
	r.layout.reach.Store(&reach)
}

// findRungs looks for rungs that another member has created since the last look. A cluster that does not answer changes nothing.
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
	there, err := r.client.admin.topics(names...)
	if err != nil || len(there) == 0 {
		return
	}
	x := &r.extra
	for _, t := range r.layout.topics {
		if there[t.name] == nil || !t.rung {
			continue
		}
		problems, err := r.problemsOf(t)
		x.mu.Lock()
		if !slices.Contains(x.now, t.level) {
			x.now = append(slices.Clone(x.now), t.level) // somebody may read the old one
			slices.Sort(x.now)
		}
		if err != nil || len(problems) > 0 { // compareSettings says why, or finds that nothing is wrong
			x.unfit = append(x.unfit, t.level)
			x.suspect.Store(true)
		}
		x.mu.Unlock()
	}
}

// problemsOf says what is wrong with the settings of one topic that exists.
func (r *reader) problemsOf(t ownTopic) (problems redeliver.Problems, err error) {
	settings, err := r.client.admin.settings(t.name)
	if err == nil {
		r.layout.checkSettings(r.client.cfg, t, settings[t.name], &problems)
	}
	return problems, err
}

// createRungs creates the rungs that are missing, and has the reader join anew to read all that are there.
func (r *reader) createRungs() {
	if time.Since(r.rungs.tried) < rungsAgain {
		return
	}
	r.rungs.tried = time.Now()
	if err := r.tryToCreateRungs(); err != nil {
		r.tellAgain("rungs", redeliver.ChangeTopicMissing, "longer waits hop over the levels that are there, again and again", err)
	}
	r.extra.suspect.Store(true) // a broker may not know them yet
	_, _ = r.look()
}

func (r *reader) tryToCreateRungs() error {
	var names []string
	for _, t := range r.layout.topics {
		if t.rung {
			names = append(names, t.name)
		}
	}
	there, err := r.client.admin.topics(names...)
	if err != nil {
		return err
	}
	var created []string
	var errs []error
	for _, t := range r.layout.topics {
		if !t.rung || there[t.name] != nil {
			continue
		}
		if _, err := r.client.admin.create(t, r.layout.neededRetention()); err != nil {
			errs = append(errs, err)
			continue
		}
		created = append(created, t.name)
	}
	if len(created) > 0 {
		errs = append(errs, r.client.admin.awaitLeaders(created...))
	}
	return errors.Join(errs...)
}

// compareSettings looks whether our topics can still hold the policy, as a start does. It reports what cannot, and a rung that
// cannot is not written to. there is all topics.
func (r *reader) compareSettings(there map[string]*sarama.TopicMetadata) error {
	now, err := r.client.layoutOf(r.layout.origin, there)
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
	r.reachLocked()
	x.mu.Unlock()
	if refused != nil {
		r.tellAgain("settings", redeliver.ChangeTopicUnfit, "the subscription goes on; its next start is refused", refused)
	}
	if len(now.unfit) > 0 {
		r.tellAgain("settings of rungs", redeliver.ChangeTopicUnfit, "longer waits hop over the other levels", now.unfit.Err())
	}
	return nil
}
