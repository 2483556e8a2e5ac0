// Package adaptertest has the tests that every redeliver adapter must pass, the conformance kit.
// [Run] runs them: one test for each promise that a program can check, named after the promise.
//
//	func TestConformance(t *testing.T) {
//		adaptertest.Run(t, adaptertest.Harness{Name: "mybroker", Features: ..., Open: open, Put: put, ...})
//	}
//
// A feature that the broker does not have is false in [Features]. All other promises must be kept.
//
// The kit asks a subscription for its load, see [observe.LoadSink]. The engine counts that for all adapters.
package adaptertest

import (
	"context"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/driver"
)

// Harness is an adapter and its broker, as the kit uses them. Every function may be called by many tests at once, and
// fails its test after an error. Put, PutRetries and DeadLetters use their own client.
type Harness struct {
	// Name is the broker's name in the guarantee table.
	Name     string
	Features Features
	// MaxHeaders is the largest number of headers of a message, not counting the ID. 0 means that there is no limit, or one that
	// the kit does not reach.
	MaxHeaders int
	// Oversized maps a place to a function that returns a message that the origin accepts and the place does not. Either
	// redeliver's state makes the message too large, or the function lowers a limit of the place. A message that is too large
	// for the DLQ must also be too large for Levels. The kit calls the function when a service of the group has subscribed to
	// the origin. A place without a function accepts everything that the origin accepts.
	Oversized map[Place]func(t testing.TB, origin, group string) Message
	// Compresses means that Put compresses a large message, and that the DLQ refuses one that unpacks to 105 MB.
	Compresses bool
	// SplitsDeadLetters means that the message of Oversized[DLQ] goes to the DLQ in two parts, each with all headers.
	// Otherwise it goes there without its body and its headers.
	SplitsDeadLetters bool
	// ForgeHeaders returns st in the adapter's own headers, as a producer may forge them, beside those of
	// [driver.AppendStateHeaders]. Nil means that there are no others.
	ForgeHeaders func(st redeliver.State) []Header
	// ReadsAhead means that in OrderThroughRetries a process reads messages that must wait for another one of their key or message
	// group.
	ReadsAhead bool
	// KeepsPlaces means that a failed message keeps its place in every order, as in a group of an SQS FIFO queue.
	KeepsPlaces bool
	// MaxCrashesBeside is how often a message may kill its process while others run, before it runs alone. Default 2.
	MaxCrashesBeside int
	// Wrap runs a test, for example in a bubble with a virtual clock. Nil calls the tests directly, many at once.
	// The kit waits only inside Wrap. There it starts no subtest, and ends all its goroutines before the test ends.
	Wrap func(t *testing.T, test func(t *testing.T))
	// Origin makes a new, empty origin that n new groups read (one if Features.ManyGroups is false), and returns
	// their names as in redeliver.State. If a group is a queue, Origin creates it too. If only one group can read the
	// origin, the group has its name.
	Origin func(t testing.TB, n int) (origin string, groups []string)
	// Open starts a service that the kit closes or kills. Open subscribes to nothing, and returns errors of the
	// configuration.
	Open func(t testing.TB, cfg Config) (Service, error)
	// ConsumeBatch makes a service that handles batches in the broker's own form, without Watermill. run runs it
	// until its context ends; kill is as [Service].Kill. Nil means that there is no such form.
	ConsumeBatch func(t testing.TB, cfg Config, bc redeliver.BatchConfig, fn BatchFunc) (run func(context.Context) error, kill func())
	// Consume makes a service that handles single messages in the broker's own form, without Watermill. The message that fn
	// gets is as that of Received. run and kill are as those of ConsumeBatch. Nil means that there is no such form.
	Consume func(t testing.TB, cfg Config, fn func(ctx context.Context, m Message) error) (run func(context.Context) error, kill func())
	// Put writes messages to an origin, for all its groups, in order. They have
	// no OwnHeaders.
	Put func(t testing.TB, origin string, msgs ...Message)
	// PutRetries writes messages, with OwnHeaders as redeliver's headers, to the place from which they come back to one group
	// without waiting. Like DeadLetters and Refuse, it is only called after a service of the group has subscribed to the
	// origin.
	PutRetries func(t testing.TB, origin, group string, msgs ...Message)
	// DeadLetters returns the messages in the DLQ of a group without removing them, as soon as there are at least n, or
	// those that are there after Timeout.
	DeadLetters func(t testing.TB, origin, group string, n int) []Message
	// DLQTopic returns the topic by which a service subscribes to the DLQ of a group, and the group of that
	// subscription: a new one if Features.ManyGroups is true, otherwise the DLQ. Nil means that the kit does not
	// check whether a DLQ can have a consumer.
	DLQTopic func(origin, group string) (topic, reader string)
	// Received returns a message as the broker's own record shows it to the handler, with its ID if it had one. Headers
	// are all that the handler can see, except the one that carries the ID. Key and Body must not be shared with the
	// record.
	Received func(msg *message.Message) Message
	// Refuse makes the broker refuse, or not confirm, writes to a place of a group, until restore is called. Nil if
	// Features.Refuse is false.
	Refuse func(t testing.TB, origin, group string, what Place) (restore func())
}

// Place is where a failed message is written.
type Place string

// The places.
const (
	Levels Place = "where messages wait" // every level, and the retry topic or queue
	DLQ    Place = "the DLQ"
)

// Timeout bounds every wait of the kit for something that must happen. With one core for kit and broker it took 80 s to resume the
// replay of a dead runner.
const Timeout = 2 * time.Minute

// Config is the part of an adapter's configuration that the kit sets. Zero means
// the adapter's default.
type Config struct {
	Origin, Group string
	Policy        redeliver.Policy
	Sink          redeliver.Sink
	MaxInFlight   int
	MinInFlight   int
	NackDelay     time.Duration
	DrainTimeout  time.Duration
	SendTimeout   time.Duration
}

// Service is one process of a group. Config.Origin is the topic to subscribe to.
type Service interface {
	Subscriber() message.Subscriber
	Publisher() message.Publisher
	// Close shuts it down.
	Close(ctx context.Context) error
	// Kill ends the service as SIGKILL would, as far as the broker can see: its connections are cut, and it settles nothing
	// more. Kill does not wait for handlers. Close is called some time later, and must release the service's resources in the
	// test's process.
	Kill()
}

// Undecodable is the one body that the harness's decoder must and may refuse.
const Undecodable = "\x00adaptertest: no message"

// Message is a message as a client of the broker sees it.
type Message struct {
	// ID is Watermill's UUID, in the header in which the adapter expects it. If it is empty, the message has no such header, and
	// the adapter derives an id.
	ID string
	// Key is the key that orders messages. It is nil for no key, and if both Features.OrderFirstAttempts and Features.OrderThroughRetries
	// are false.
	Key []byte
	// Body is nil for a null body, if the broker has one.
	Body []byte
	// Headers are the user's, in order, without ID. Names are not empty, and values are text if
	// Features.BinaryHeaders is false.
	Headers []Header
	// OwnHeaders are redeliver's headers. When the kit reads messages, only those in the DLQ have them.
	OwnHeaders []driver.Header
}

// Header is one header of a user.
type Header struct {
	Name  string
	Value []byte
}

// Features are the abilities of a broker. Each but Refuse has a row in docs/reference/guarantees.md, a false one with a
// link to the broker's manual: see CheckTable.
type Features struct {
	OrderFirstAttempts   bool // messages of one key run one after another, in order
	BinaryHeaders        bool // a header's value may be any bytes
	DuplicateHeaders     bool // a header may occur twice, and headers have an order
	NullBody             bool // a null body differs from an empty one
	CountsCrashes        bool // a message that kills its process goes to the DLQ
	ForeignHeaders       bool // a user's own redeliver- headers survive retries
	Refuse               bool // the harness can make the broker refuse writes
	ManyGroups           bool // several groups may read one origin
	KeepsAttempts        bool // the end of a process neither loses nor adds attempts of its messages
	DelayedPublish       bool // a message may be published for later
	OrderBlocking        bool // a policy may have redeliver.OrderBlocking
	OrderThroughRetries  bool // a policy may have redeliver.OrderThroughRetries
	KeepsAttemptsInPlace bool // KeepsAttempts, also for a message that waits in its place for its next attempt
	MessageTimes         bool // a message has the time at which it was put
	NoHeadOfLineBlocking bool // a message that runs for long blocks no other
	GroupPause           bool // an operator can pause a group; a Service is a Pauser
	NewPause             bool // an operator can pause new messages only; a Service is a NewPauser
}
