package otel

import (
	"context"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/observed"
	"github.com/redeliver/redeliver/observe"
)

// series has the attributes of a subscription: as options for frequent measurements, and alone for the others.
type series struct {
	attrs        []attribute.KeyValue // without spare capacity, so that append copies it
	plain        []metric.AddOption
	operation    []metric.AddOption
	first, retry []metric.RecordOption // for attempts that succeed
	late         []metric.RecordOption
}

func (s *Sink) series(p place) *series {
	attrs := slices.Clip(subscription(s.system, p))
	process := slices.Clip(append(attrs, attrOperation.String(opProcess)))
	plain := with(attrs...)
	return &series{
		attrs: attrs, plain: []metric.AddOption{plain}, late: []metric.RecordOption{plain},
		operation: []metric.AddOption{with(process...)},
		first:     []metric.RecordOption{with(append(process, attrRetry.Bool(false))...)},
		retry:     []metric.RecordOption{with(append(process, attrRetry.Bool(true))...)},
	}
}

// background is the context of measurements, because an event has none.
var background = context.Background()

// Counter implements [redeliver.CountingSink]. Successes at the first attempt are counted without an event.
func (s *Sink) Counter(of redeliver.Sink, origin, group string) (observe.Counter, redeliver.Sink) {
	if of != redeliver.Sink(s) {
		return nil, of
	}
	return &attemptCounter{s, s.places.of(place{origin, group})}, nil
}

// attemptCounter counts the messages of a subscription that succeed at the first attempt.
type attemptCounter struct {
	sink *Sink
	of   *series
}

// Attempted implements [redeliver.Counter].
func (c *attemptCounter) Attempted(took time.Duration) {
	c.sink.duration.Record(background, took.Seconds(), c.of.first...)
	c.sink.consumed.Add(background, 1, c.of.operation...)
}

// Committed implements [redeliver.Counter].
func (c *attemptCounter) Committed() { c.sink.committed.Add(background, 1, c.of.plain...) }

// Event implements [redeliver.Sink].
func (s *Sink) Event(e redeliver.Event) {
	switch e := e.(type) {
	case redeliver.Attempted:
		s.attempted(&e)
	case redeliver.Committed:
		s.count(s.committed, &e.State)
		if e.State.Replays > 0 {
			s.count(s.replayed, &e.State, attrOutcome.String("committed"))
		}
	case redeliver.RetryScheduled:
		s.count(s.scheduled, &e.State, attrLevel.String(observed.Level(e.Where)))
	case redeliver.MessagePostponed:
		s.count(s.postponed, &e.State)
	case redeliver.DeadLettered:
		s.count(s.dead, &e.State, attrReason.String(string(e.State.Reason)))
		if e.State.Replays > 0 {
			s.count(s.replayed, &e.State, attrOutcome.String("dead_lettered"))
		}
	case redeliver.Discarded:
		s.count(s.discarded, &e.State, attrReason.String(string(e.State.Reason)))
	case redeliver.Hopped:
		s.count(s.hopped, &e.State)
	case redeliver.Published:
		s.count(s.published, &e.State)
	case redeliver.PublishFailed:
		s.count(s.refused, &e.State)
	case redeliver.HandlerStuck:
		s.setStuck(&e.State, e.Stuck)
	case redeliver.LateAnswer:
		s.count(s.late, &e.State)
		s.setStuck(&e.State, e.Stuck)
	case redeliver.HeadersIgnored:
		s.ignored.Add(background, 1, with(attrSystem.String(s.system), attrDest.String(e.Topic)))
	case redeliver.Abandoned:
		s.count(s.abandoned, &e.State)
	case redeliver.MessagesLost:
		s.lost.Add(background, max(1, e.Count), s.places.of(place{e.Origin, e.Group}).plain...)
	case redeliver.SubscriptionChanged:
		of := s.places.of(place{e.Origin, e.Group})
		for _, t := range observed.Transitions[e.Change] {
			s.impaired.Record(background, map[bool]int64{true: 1}[t.Begins], with(append(of.attrs, attrTrouble.String(t.Problem))...))
		}
	}
}

func placeOf(st *redeliver.State) place { return place{st.Origin, st.Group} }

func (s *Sink) count(c metric.Int64Counter, st *redeliver.State, more ...attribute.KeyValue) {
	of := s.places.of(placeOf(st))
	if len(more) == 0 {
		c.Add(background, 1, of.plain...)
		return
	}
	c.Add(background, 1, with(append(of.attrs, more...)...))
}

func (s *Sink) setStuck(st *redeliver.State, n int64) {
	s.stuck.Record(background, n, s.places.of(placeOf(st)).late...)
}

func (s *Sink) attempted(e *redeliver.Attempted) {
	of := s.places.of(placeOf(&e.State))
	again := e.State.Attempts > 0
	took := e.Took.Seconds()
	switch {
	case e.Err != nil:
		s.duration.Record(background, took, with(append(of.attrs, attrOperation.String(opProcess),
			attrRetry.Bool(again), attrErrorType.String(observed.ErrorType(e.Err)))...))
	case again:
		s.duration.Record(background, took, of.retry...)
	default:
		s.duration.Record(background, took, of.first...)
	}
	late, waited := observed.Lateness(e)
	if waited {
		s.lateness.Record(background, late.Seconds(), of.late...)
	}
	if waited || !again {
		s.consumed.Add(background, 1, of.operation...)
	}
}
