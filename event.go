package redeliver

import "time"

// Sink receives what happened. Event is called from many goroutines at once, on
// the way of the messages, so it must be quick and must not block. What the
// library does is the same with and without a sink.
type Sink interface{ Event(Event) }

// Selective is a Sink that says beforehand what it does not want. Of events that
// every message has, [Attempted] and [Committed], there are as many as messages:
// one that nobody wants is not made. All others are reported in any case.
type Selective interface {
	Sink
	// Wants reports whether Event should be called for events of e's type; e's
	// fields mean nothing. It is called as Event is, before each.
	Wants(e Event) bool
}

// SinkFunc is a function as a [Sink].
type SinkFunc func(Event)

// Event implements [Sink].
func (f SinkFunc) Event(e Event) { f(e) }

// Sinks passes every event that one of several sinks wants to all of them, in order: a
// [Selective] one gets what the others want, too. A nil sink is passed over.
func Sinks(sinks ...Sink) Sink {
	var all sinkList
	for _, s := range sinks {
		if s != nil {
			all = append(all, s)
		}
	}
	return all
}

type sinkList []Sink

// Event implements [Sink].
func (all sinkList) Event(e Event) {
	for _, s := range all {
		s.Event(e)
	}
}

// Wants implements [Selective].
func (all sinkList) Wants(e Event) bool {
	for _, s := range all {
		if sel, ok := s.(Selective); !ok || sel.Wants(e) {
			return true
		}
	}
	return false
}

// Event is one of the structs of this file. The set is closed; new structs may
// be added in a minor version.
type Event interface{ event() }

// Attempted: an attempt ended. Before anything is done about its outcome.
type Attempted struct {
	State State         // before the attempt: State.Attempt() is its number
	Err   error         // nil when the handler succeeded
	Start time.Time     // when the handler was entered
	Took  time.Duration // how long it ran
}

// Committed: the message was handled and acked to the broker's client.
type Committed struct{ State State }

// RetryScheduled: the message waits for its next attempt. After the broker has
// confirmed the write, before the source is acked.
type RetryScheduled struct {
	State State         // State.Due is when it may run
	Delay time.Duration // as decided
	Where string        // the topic or queue it waits on
	Err   error         // what failed
}

// MessagePostponed: the message was put aside without an attempt being counted.
// After the broker has confirmed the write.
type MessagePostponed struct {
	State State
	Delay time.Duration
	Where string
	Err   error
}

// DeadLettered: the message rests in the DLQ. After the broker has confirmed
// the write, before the source is acked.
type DeadLettered struct {
	State State // State.Reason says why
	Where string
	Err   error
}

// Discarded: the message will not be retried, and there is no DLQ, because the
// configuration says Discard. Before the source is acked: nobody has the message then.
type Discarded struct {
	State State // State.Reason says why
	Err   error
}

// Hopped: a waiting message moved on from one level to a shorter one, or was
// written to a level behind a message of its key that failed (PerKey), or came
// back from a delay topic of adapters/pubsub. After the broker has confirmed the
// write.
type Hopped struct {
	State    State
	From, To string
}

// Published: a delayed publish reached its topic. After the broker has confirmed
// the write.
type Published struct {
	State State
	Topic string
}

// PublishFailed: the broker did not take a message that must go on. Its source
// stays unacked, the intake is paused, and the publish is tried again after Retry.
type PublishFailed struct {
	State State
	Where string
	Err   error
	Try   int           // how often it was tried, from 1
	Retry time.Duration // the pause before the next try
}

// HandlerStuck: a handler still runs although its Timeout is over and its
// message has moved on: it ignores its context.
type HandlerStuck struct {
	State   State
	Timeout time.Duration
	Stuck   int64 // handlers of this subscription that are stuck now
}

// LateAnswer: a stuck handler returned at last, or a message was settled when its
// batch had ended (middleware.ErrBatchOver). The answer was ignored.
type LateAnswer struct {
	State State
	Err   error
	Stuck int64 // handlers of this subscription that are still stuck
}

// HeadersIgnored: a message carried redeliver headers that are not believed:
// on a topic that redeliver does not write, of another group, or garbage.
type HeadersIgnored struct {
	Topic    string
	ID       string
	Findings []Finding
}

// Abandoned: an attempt was cut short by the end of the session or of the
// process. It is not counted; the message stays unacked and comes back.
type Abandoned struct {
	State State
	Err   error
}

// MessagesLost: messages that waited are gone from a topic of redeliver's, although nobody
// had handled them: its retention was too short, or somebody deleted it.
type MessagesLost struct {
	Origin, Group string
	Where         string // the topic, with its partition where that is one
	Count         int64  // at most so many; 0 where nobody knows
	Detail        string // what happened, and what to do
}

// SubscriptionChanged: a subscription's connection, partitions or intake
// changed. One event for a change of state, not one for a try; what lasts is told again
// every minute.
type SubscriptionChanged struct {
	Origin, Group string
	Change        Change
	Detail        string
	Err           error // nil when the change is for the better
}

func (Attempted) event()           {}
func (Committed) event()           {}
func (RetryScheduled) event()      {}
func (MessagePostponed) event()    {}
func (DeadLettered) event()        {}
func (Discarded) event()           {}
func (Hopped) event()              {}
func (Published) event()           {}
func (PublishFailed) event()       {}
func (HandlerStuck) event()        {}
func (LateAnswer) event()          {}
func (HeadersIgnored) event()      {}
func (Abandoned) event()           {}
func (MessagesLost) event()        {}
func (SubscriptionChanged) event() {}
