package kafka_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka"
	"github.com/redeliver/redeliver/delayqueue"
	"github.com/redeliver/redeliver/internal/engine"
)

// changes returns the changes of this name so far.
func (e *events) changes(change string) (found []redeliver.SubscriptionChanged) {
	for _, c := range all[redeliver.SubscriptionChanged](e) {
		if string(c.Change) == change {
			found = append(found, c)
		}
	}
	return found
}

// When the other member has left, they report that all agree.
func TestOnKafkaMembersWithDifferentPoliciesBothReportIt(t *testing.T) {
	t.Parallel()
	p := newDoctorCase(t)
	other := p.policy
	other.MaxRetries = 1
	member := func(policy redeliver.Policy) (*kafka.Client, *events) {
		c, ev := open(t, p.config(policy))
		kafka.SweepEvery(c, 100*time.Millisecond)
		route(t, c, p.topic, failFirst(0))
		ev.awaitJoined(t, 1)
		return c, ev
	}
	_, first := member(p.policy)
	_, second := member(p.policy)
	third, last := member(other)
	prints := []string{delayqueue.Fingerprint(p.policy), delayqueue.Fingerprint(other)}
	for name, ev := range map[string]*events{"the first": first, "the second": second, "the other": last} {
		eventually(t, name+" reports that policies differ", func() bool { return len(ev.changes("policies differ")) == 1 })
		c := ev.changes("policies differ")[0]
		if !errors.Is(c.Err, engine.ErrPolicies) || !strings.Contains(c.Detail, prints[0]) || !strings.Contains(c.Detail, prints[1]) || c.Origin != p.topic || c.Group != p.group {
			t.Errorf("%s reported %+v", name, c)
		}
		if n := len(ev.changes("policies agree")); n > 0 {
			t.Errorf("%s reports that they agree", name)
		}
	}
	if err := third.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, ev := range map[string]*events{"the first": first, "the second": second} {
		eventually(t, name+" reports that policies agree", func() bool { return len(ev.changes("policies agree")) == 1 })
		if n := len(ev.changes("policies differ")); n != 1 {
			t.Errorf("%s reported %d times that policies differ", name, n)
		}
	}
}
