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

// told are the changes of this name so far.
func (e *events) told(change string) (found []redeliver.SubscriptionChanged) {
	for _, c := range all[redeliver.SubscriptionChanged](e) {
		if string(c.Change) == change {
			found = append(found, c)
		}
	}
	return found
}

// Two members of a group with different policies: both say so, and when the other one
// has gone, that all agree.
func TestOnKafkaMembersWithDifferentPoliciesBothTell(t *testing.T) {
	t.Parallel()
	p := newPatient(t)
	other := p.policy
	other.MaxRetries = 1
	member := func(policy redeliver.Policy) (*kafka.Client, *events) {
		c, ev := open(t, p.config(policy))
		kafka.SweepEvery(c, 100*time.Millisecond)
		route(t, c, p.topic, failFirst(0))
		ev.joined(t, 1)
		return c, ev
	}
	_, first := member(p.policy)
	_, second := member(p.policy)
	third, last := member(other)
	prints := []string{delayqueue.Fingerprint(p.policy), delayqueue.Fingerprint(other)}
	for name, ev := range map[string]*events{"the first": first, "the second": second, "the other": last} {
		eventually(t, name+" tells that policies differ", func() bool { return len(ev.told("policies differ")) == 1 })
		c := ev.told("policies differ")[0]
		if !errors.Is(c.Err, engine.ErrPolicies) || !strings.Contains(c.Detail, prints[0]) || !strings.Contains(c.Detail, prints[1]) || c.Origin != p.topic || c.Group != p.group {
			t.Errorf("%s told %+v", name, c)
		}
		if n := len(ev.told("policies agree")); n > 0 {
			t.Errorf("%s tells that they agree", name)
		}
	}
	if err := third.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, ev := range map[string]*events{"the first": first, "the second": second} {
		eventually(t, name+" tells that policies agree", func() bool { return len(ev.told("policies agree")) == 1 })
		if n := len(ev.told("policies differ")); n != 1 {
			t.Errorf("%s told %d times that policies differ", name, n)
		}
	}
}
