// Package plan has the plans of worlds, and generates them from seeds. A plan is data without any code of redeliver, so
// that a history contains it and the checker can read it.
package plan

import (
	"slices"
	"time"
)

// World is a plan. Times count from the beginning of the world.
type World struct {
	Seed     uint64
	Broker   string
	Nodes    int // brokers of the cluster
	Topics   []Topic
	Services []Service
	Messages []Message
	Words    []Word
	Span     time.Duration // messages are written, and words begin, before its end; then everything is healed
	Bounds   Bounds
	RealTime bool // waits of the runner take real time, and are short
}

// Bounds are the rules of a broker that differ from Kafka's. The zero value has Kafka's.
type Bounds struct {
	Order  string        // messages have this order with any policy
	Pause  time.Duration // how much longer a process may still begin messages that it had when the group was paused
	Linger time.Duration // how long after its end a fault may still be the reason why something runs again
	Settle time.Duration // how long a settled message may still run again after a kill
	Slack  time.Duration // how much later than redeliver the history may notice the end of a Timeout
}

// Topic is an origin.
type Topic struct {
	Name       string
	Partitions int
}

// Service is a consumer group and the processes that run it.
type Service struct {
	Group     string
	Topics    []string
	Way       Way
	Balance   string // the strategy of the group: range, sticky, cooperative
	Static    bool   // members have instance ids
	Processes int
	Drain     time.Duration
	// SkipExisting means that the group skips what its topics have when it begins.
	SkipExisting bool
	// Versions are the policies that its deploys bring, one after another.
	Versions []Version
}

// Way is the way in to redeliver.
type Way string

// The ways in.
const (
	Consume      Way = "Consume"
	ConsumeBatch Way = "ConsumeBatch"
	Router       Way = "Router"
	Wrap         Way = "Wrap"
)

// The orders.
const (
	OrderFirstAttempts  = "OrderFirstAttempts"
	OrderNone           = "OrderNone"
	OrderBlocking       = "OrderBlocking"
	OrderThroughRetries = "OrderThroughRetries"
)

// Version is the policy and the limits of one release of a service. Its fields are those of redeliver's Policy and Config.
type Version struct {
	Order              string
	MaxRetries         int
	Immediate          int
	Steps              []time.Duration // waits before delayed retries; the last one is repeated
	Timeout            time.Duration
	MaxAge             time.Duration // 0 is no limit
	Rate               float64       // attempts a second; 0 is no limit
	Outage             bool          // the detection of outages is on
	MaxInFlight        int
	MaxRetriesInFlight int
	MinInFlight        int
	MaxWaiting         int
	BatchSize          int
	BatchTimeout       time.Duration
}

// Wait returns the minimum wait after the failure of an attempt, counted from 1.
func (v Version) Wait(attempt int) time.Duration {
	n := attempt - 1 - v.Immediate
	if n < 0 {
		return 0
	}
	return v.Steps[min(n, len(v.Steps)-1)]
}

// Longest returns the longest wait.
func (v Version) Longest() time.Duration { return slices.Max(v.Steps) }

// Message is a message and the answers of its handlers, in every service.
type Message struct {
	ID     string
	Topic  string
	Key    string
	At     time.Duration // when it is written
	Script []Step        // by attempt; the last one is repeated
	// Delay is of a message that a producer with redeliver publishes for later.
	Delay time.Duration
	// Expires is the time of the world at which its producer lets the message expire; 0 is never.
	Expires time.Duration
}

// Step is what a handler does in one attempt.
type Step struct {
	Answer Answer
	Takes  time.Duration
	Wait   time.Duration // of RetryAfter and Pause
	Until  time.Duration // of Postpone: the message is postponed until this time of the world, then the answer is OK
	Extend time.Duration // the attempt is extended by this before it takes its time
}

// Answer is what a handler returns.
type Answer string

// The answers.
const (
	OK         Answer = "ok"
	Fail       Answer = "fail"
	Panic      Answer = "panic"
	Hang       Answer = "hang" // it ignores its context and returns late
	Slow       Answer = "slow" // it returns when its context ends
	Permanent  Answer = "permanent"
	Reject     Answer = "reject"
	RetryAfter Answer = "retry after"
	Postpone   Answer = "postpone"
	Pause      Answer = "pause"
)

// Step returns the step of an attempt, counted from 1.
func (m Message) Step(attempt int) Step { return m.Script[min(attempt, len(m.Script))-1] }

// Word is something that happens in a world beside its messages.
type Word struct {
	At      time.Duration
	What    string
	Service int
	Process int
	Topic   string
	For     time.Duration // how long it lasts, or the pause before a restart
	Keys    []int16       // the requests that fail: Kafka's keys, or the driver's numbers
	Error   string        // with which error
	Count   int           // how many requests fail; -1 is all, for For
	Top     bool          // Kafka: in the response's top-level error
	Again   bool          // an administrator creates the deleted topic again after For
}

// The words.
const (
	Kill         = "kill"    // a process dies, and starts again after For
	Restart      = "restart" // a process stops politely and starts again
	Scale        = "scale"   // one more process joins, and leaves after For
	Cut          = "cut"     // all connections of a process end
	Stall        = "stall"   // the network of a process stands still for For
	Refuse       = "refuse"  // requests fail with an error
	Late         = "late"    // requests are answered For later
	LostAnswers  = "lost answers"
	Deploy       = "deploy"        // the next version, process by process
	PauseGroup   = "pause"         // an operator pauses the group for For
	Elect        = "elect"         // partitions get other leaders
	MoveGroups   = "coordinators"  // groups get other coordinators
	Grow         = "grow"          // a topic gets more partitions
	Deny         = "deny"          // a right is taken away for For
	Twice        = "twice"         // messages in flight come again, as a broker may deliver them
	SmallCommits = "small commits" // the broker's limit of commit metadata is lowered for For
	Dependency   = "dependency"    // all handlers of a service fail with one error for For
	Block        = "block"         // the broker takes no messages from its connections for For
	Close        = "close"         // the broker closes the connections of a service
	Limit        = "limit"         // an administrator sets a limit, which Error names, for For
)

// The words of administrators and operators.
const (
	DeleteOrigin  = "delete origin"  // a topic is deleted with its messages, and created again after For
	DeleteLevel   = "delete level"   // a topic on which messages wait
	DeleteRetry   = "delete retry"   // the topic of messages that wait for less than the shortest level
	DeleteDLQ     = "delete DLQ"     // and created again if Again
	ExpireOrigin  = "expire origin"  // a limited retention deletes the older messages
	ExpireLevel   = "expire level"   // the same on a topic on which messages wait
	Replay        = "replay"         // of a DLQ: whole, with a canary, or interrupted and resumed
	Purge         = "purge"          // of everything in a DLQ
	ExpireOffsets = "expire offsets" // all processes stop for For, and the group's offsets are deleted
	ResetOffsets  = "reset offsets"  // all processes stop for For, and the group's offsets on the origin are set
)
