package redelivertest

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/limits"
)

// timedEvent is an event and its time.
type timedEvent struct {
	at    time.Time
	event redeliver.Event
}

// Outcome describes what happened to one message in one group.
type Outcome struct {
	// ID is the message's UUID, or topic/0/offset@time if it has none.
	ID string
	// Committed reports whether it was handled.
	Committed bool
	// State is its latest state. State.Reason says why the message is in the DLQ; it is empty
	// otherwise.
	State redeliver.State
	// Attempts are the runs of its handler that ended, with their errors.
	Attempts []redeliver.Attempted
	// Waits are its waits on delay topics.
	Waits []Wait
	// Took is the time from its publishing to its end, or to its latest event. In a synctest bubble it is
	// exactly the sum of its delays and the time that its handler slept.
	Took time.Duration

	began time.Time
	lines []string
}

// Wait is one wait for a retry.
type Wait struct {
	State     redeliver.State // State.Due is when it may run
	Delay     time.Duration   // the delay that was chosen
	Where     string          // the delay topic
	Postponed bool            // no attempt was counted for it
}

// String returns a log of the message, with a line for each event.
func (o Outcome) String() string { return o.ID + strings.Join(o.lines, "") }

// Events waits until everything is at rest (see [Broker.Wait]), and returns all events of the
// group's clients about the topic, in order.
func (s *Subscription) Events() []redeliver.Event {
	s.q.b.tb.Helper()
	s.q.b.Wait()
	var all []redeliver.Event
	for _, n := range s.timedEvents() {
		all = append(all, n.event)
	}
	return all
}

// Outcome waits until everything is at rest (see [Broker.Wait]), and returns the outcome of a message. It fails the
// test if the group never got the message.
func (s *Subscription) Outcome(id string) Outcome {
	s.q.b.tb.Helper()
	all := s.Outcomes()
	ids := make([]string, len(all))
	for i, o := range all {
		if o.ID == id {
			return o
		}
		ids[i] = o.ID
	}
	s.q.b.tb.Fatalf("redelivertest: %s got no message %q of %s; it got %q", s.q.group, id, s.q.topic, ids)
	return Outcome{}
}

// Outcomes is [Subscription.Outcome] for all messages that the group got.
func (s *Subscription) Outcomes() []Outcome {
	s.q.b.tb.Helper()
	s.q.b.Wait()
	var all []Outcome
	at := make(map[string]int)
	for _, n := range s.timedEvents() {
		st, ok := stateOf(n.event)
		if !ok {
			continue
		}
		i, known := at[st.ID]
		if !known {
			i = len(all)
			at[st.ID] = i
			o := Outcome{ID: st.ID, began: st.Source.Timestamp}
			if o.began.IsZero() {
				o.began = n.at
			}
			all = append(all, o)
		}
		all[i].addEvent(n, st)
	}
	return all
}

func (s *Subscription) timedEvents() []timedEvent {
	s.q.b.mu.Lock()
	defer s.q.b.mu.Unlock()
	return slices.Clone(s.q.events)
}

// addEvent adds an event.
func (o *Outcome) addEvent(n timedEvent, st redeliver.State) {
	was := o.Took
	o.Took = n.at.Sub(o.began)
	switch e := n.event.(type) {
	case redeliver.Attempted:
		o.Attempts = append(o.Attempts, e)
		if e.Err == nil {
			o.linef("attempt %d", st.Attempt())
		} else {
			o.linef("attempt %d failed: %v", st.Attempt(), e.Err)
		}
		return // it keeps the previous state
	case redeliver.Committed:
		o.Committed = true
		o.linef("committed")
	case redeliver.RetryScheduled:
		o.Waits = append(o.Waits, Wait{State: st, Delay: e.Delay, Where: e.Where})
		o.linef("waits %s on %s", limits.ShortDuration(e.Delay), e.Where)
	case redeliver.MessagePostponed:
		o.Waits = append(o.Waits, Wait{State: st, Delay: e.Delay, Where: e.Where, Postponed: true})
		o.linef("postponed for %s on %s: %v", limits.ShortDuration(e.Delay), e.Where, e.Err)
	case redeliver.DeadLettered:
		o.linef("dead in %s: %s", e.Where, st.Reason)
	case redeliver.Discarded:
		o.linef("discarded: %s", st.Reason)
	case redeliver.Hopped:
		o.linef("hopped from %s to %s", e.From, e.To)
	case redeliver.Published:
		o.linef("published to %s", e.Topic)
	case redeliver.PublishFailed:
		o.linef("refused by %s, retried in %s: %v", e.Where, e.Retry, e.Err)
	case redeliver.HandlerStuck:
		o.linef("its handler still runs")
		o.Took = was
		return
	case redeliver.LateAnswer:
		o.linef("its handler returned late")
		o.Took = was
		return
	case redeliver.Abandoned:
		o.linef("abandoned")
	}
	o.State = st
}

func (o *Outcome) linef(format string, args ...any) {
	o.lines = append(o.lines, fmt.Sprintf("\n%10s  ", "+"+limits.ShortDuration(o.Took))+fmt.Sprintf(format, args...))
}

// stateOf returns the state in an event, if the event is about one message.
func stateOf(e redeliver.Event) (st redeliver.State, ok bool) {
	if v := reflect.ValueOf(e).FieldByName("State"); v.IsValid() {
		return reflect.TypeAssert[redeliver.State](v)
	}
	return redeliver.State{}, false
}
