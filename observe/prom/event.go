package prom

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/observed"
	"github.com/redeliver/redeliver/observe"
)

// place is a subscription.
type place struct{ origin, group string }

func placeOf(st *redeliver.State) place { return place{st.Origin, st.Group} }

// series has the metrics that every message changes. Looking them up by their labels for each message would be most of
// the cost.
type series struct {
	first, retry      prometheus.Observer // for attempts that succeed
	lateness          prometheus.Observer
	committed         prometheus.Counter
	replayCommitted   prometheus.Counter
	replayDeadLetters prometheus.Counter
}

// seriesOf returns the series of a subscription. The counters that alerts use exist from the first event on, because a
// counter that begins with 1 shows no increase.
func (s *Sink) seriesOf(p place) *series {
	s.mu.RLock()
	found := s.known[p]
	s.mu.RUnlock()
	if found != nil {
		return found
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if found = s.known[p]; found == nil {
		found = &series{
			first: s.duration.WithLabelValues(p.origin, p.group, "false", ""), retry: s.duration.WithLabelValues(p.origin, p.group, "true", ""),
			lateness: s.lateness.WithLabelValues(p.origin, p.group), committed: s.committed.WithLabelValues(p.origin, p.group),
			replayCommitted:   s.replayed.WithLabelValues(p.origin, p.group, "committed"),
			replayDeadLetters: s.replayed.WithLabelValues(p.origin, p.group, "dead_lettered"),
		}
		s.dead.WithLabelValues(p.origin, p.group, string(redeliver.ReasonExhausted))
		s.refused.WithLabelValues(p.origin, p.group)
		s.lost.WithLabelValues(p.origin, p.group)
		s.known[p] = found
	}
	return found
}

// Counter implements [redeliver.CountingSink]. Successes at the first attempt are counted without an event.
func (s *Sink) Counter(of redeliver.Sink, origin, group string) (observe.Counter, redeliver.Sink) {
	if of != redeliver.Sink(s) {
		return nil, of
	}
	return s.seriesOf(place{origin, group}), nil
}

// Attempted implements [redeliver.Counter].
func (s *series) Attempted(took time.Duration) { s.first.Observe(took.Seconds()) }

// Committed implements [redeliver.Counter].
func (s *series) Committed() { s.committed.Inc() }

// Event implements [redeliver.Sink].
func (s *Sink) Event(e redeliver.Event) {
	switch e := e.(type) {
	case redeliver.Attempted:
		s.attempted(&e)
	case redeliver.Committed:
		known := s.seriesOf(placeOf(&e.State))
		known.committed.Inc()
		if e.State.Replays > 0 {
			known.replayCommitted.Inc()
		}
	case redeliver.RetryScheduled:
		s.scheduled.WithLabelValues(e.State.Origin, e.State.Group, observed.Level(e.Where)).Inc()
	case redeliver.MessagePostponed:
		s.postponed.WithLabelValues(e.State.Origin, e.State.Group).Inc()
	case redeliver.DeadLettered:
		if e.State.Replays > 0 {
			s.seriesOf(placeOf(&e.State)).replayDeadLetters.Inc()
		}
		s.dead.WithLabelValues(e.State.Origin, e.State.Group, string(e.State.Reason)).Inc()
	case redeliver.Discarded:
		s.discarded.WithLabelValues(e.State.Origin, e.State.Group, string(e.State.Reason)).Inc()
	case redeliver.Hopped:
		s.hopped.WithLabelValues(e.State.Origin, e.State.Group).Inc()
	case redeliver.Published:
		s.published.WithLabelValues(e.State.Origin, e.State.Group).Inc()
	case redeliver.PublishFailed:
		s.refused.WithLabelValues(e.State.Origin, e.State.Group).Inc()
	case redeliver.HandlerStuck:
		s.stuck.WithLabelValues(e.State.Origin, e.State.Group).Set(float64(e.Stuck))
	case redeliver.LateAnswer:
		s.late.WithLabelValues(e.State.Origin, e.State.Group).Inc()
		s.stuck.WithLabelValues(e.State.Origin, e.State.Group).Set(float64(e.Stuck))
	case redeliver.HeadersIgnored:
		s.ignored.WithLabelValues(e.Topic).Inc()
	case redeliver.Abandoned:
		s.abandoned.WithLabelValues(e.State.Origin, e.State.Group).Inc()
	case redeliver.MessagesLost:
		s.seriesOf(place{e.Origin, e.Group})
		s.lost.WithLabelValues(e.Origin, e.Group).Add(float64(max(1, e.Count)))
	case redeliver.SubscriptionChanged:
		s.changed(&e)
	}
}

func (s *Sink) attempted(e *redeliver.Attempted) {
	st := &e.State
	known := s.seriesOf(placeOf(st))
	again := st.Attempts > 0
	switch {
	case e.Err != nil:
		s.duration.WithLabelValues(st.Origin, st.Group, strconv.FormatBool(again), observed.ErrorType(e.Err)).Observe(e.Took.Seconds())
	case again:
		known.retry.Observe(e.Took.Seconds())
	default:
		known.first.Observe(e.Took.Seconds())
	}
	if late, ok := observed.Lateness(e); ok {
		known.lateness.Observe(late.Seconds())
	}
}

// oneIf returns 1 for true and 0 for false.
func oneIf(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// changed records the present problems of a subscription. Changes arrive in the order in which they happened.
func (s *Sink) changed(e *redeliver.SubscriptionChanged) {
	s.seriesOf(place{e.Origin, e.Group}) // so that its counters begin with 0
	for _, t := range observed.Transitions[e.Change] {
		s.impaired.WithLabelValues(e.Origin, e.Group, t.Problem).Set(oneIf(t.Begins))
	}
}
