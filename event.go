package redeliver

import "time"

// Sink receives events. Many goroutines call Event at once while they handle messages, so it must be quick and must not
// block. A sink does not change what the library does.
type Sink interface{ Event(Event) }

// SinkFunc makes a function a [Sink].
type SinkFunc func(Event)

// Event implements [Sink].
func (f SinkFunc) Event(e Event) { f(e) }

// Event is one of the structs of this file. Only this package defines events; a minor version may add some.
type Event interface{ event() }

// Attempted: an attempt ended. It is reported before anything is done about the outcome.
type Attempted struct {
	State State         // before the attempt: State.Attempt() is its number
	Err   error         // nil when the handler succeeded
	Start time.Time     // when the handler was entered
	Took  time.Duration // how long it ran
}

// Committed: the message was handled and acked to the broker's client.
type Committed struct{ State State }

// RetryScheduled: the message waits for its next attempt. It is reported after the broker has confirmed the write, before the source
// is acked.
type RetryScheduled struct {
	State State         // State.Due is when it may run
	Delay time.Duration // as decided
	Where string        // the topic or queue it waits on
	Err   error         // what failed
}

// MessagePostponed: the message was put aside, and no attempt was counted. It is reported after the broker has confirmed the write.
type MessagePostponed struct {
	State State
	Delay time.Duration
	Where string
	Err   error
}

// DeadLettered: the message is in the DLQ. It is reported after the broker has confirmed the write, before the source is acked.
type DeadLettered struct {
	State State // State.Reason says why
	Where string
	Err   error
}

// Discarded: the message will not be retried, and there is no DLQ, because the configuration says Discard. It is reported before the
// source is acked. After that no copy is left.
type Discarded struct {
	State State // State.Reason says why
	Err   error
}

// Hopped: a message was written to another place without an attempt. It is reported after the broker has confirmed the write.
// Usually the message moved from one level to a shorter one. With OrderThroughRetries it may also wait on a level because an earlier message
// of its key has failed. In adapters/pubsub it may come back from a delay topic. In adapters/kafkashare it goes to the retry topic
// at its third delivery.
type Hopped struct {
	State    State
	From, To string
}

// Published: a delayed publish reached its topic. It is reported after the broker has confirmed the write.
type Published struct {
	State State
	Topic string
}

// PublishFailed: the broker did not accept the copy of a message. The source stays unacked, the intake is paused, and the write
// is tried again after Retry. A delayed publish that is due pauses nothing. After eight tries it waits on a level for a
// minute, as do the others that are due meanwhile.
type PublishFailed struct {
	State State
	Where string
	Err   error
	Try   int           // the number of the try, from 1
	Retry time.Duration // the pause before the next try
}

// HandlerStuck: a handler ignores its context. It still runs although its Timeout is over and its message was settled.
type HandlerStuck struct {
	State   State
	Timeout time.Duration
	Stuck   int64 // handlers of this subscription that are stuck now
}

// LateAnswer: a stuck handler returned, or a message was settled after the end of its batch ([ErrBatchEnded]). The answer
// was ignored.
type LateAnswer struct {
	State State
	Err   error
	Stuck int64 // handlers of this subscription that are still stuck
}

// HeadersIgnored: redeliver ignored headers of its own in a message: they are invalid, of another group, or on a topic that
// redeliver does not write.
type HeadersIgnored struct {
	Topic    string
	ID       string
	Findings []Finding
}

// Abandoned: the end of the session or of the process ended an attempt early. The attempt is not counted; the message stays unacked
// and comes back.
type Abandoned struct {
	State State
	Err   error
}

// MessagesLost: messages that the group had not settled have disappeared from one of redeliver's topics or, on Kafka, from the
// origin, because the retention was too short, or the topic was deleted. Or a share group of Kafka drops a message at its delivery
// limit.
type MessagesLost struct {
	Origin, Group string
	Where         string // the topic, and the partition if only one is concerned
	Count         int64  // an upper bound; 0 if unknown
	Detail        string // what happened, and what to do
}

// SubscriptionChanged: a subscription's connection, partitions or intake changed. There is one event for each change, not one for
// each try. A state that lasts is reported again every minute.
type SubscriptionChanged struct {
	Origin, Group string
	Change        Change
	Detail        string
	Err           error // nil if nothing is wrong after the change
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
