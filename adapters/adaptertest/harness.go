// Package adaptertest is the contract of a redeliver adapter as tests. An adapter
// is one when Run passes on it: on each promise that a program can check there is
// one test, named after it.
//
//	func TestConformance(t *testing.T) {
//		adaptertest.Run(t, adaptertest.Harness{Name: "mybroker", Features: ..., Open: open, Put: put, ...})
//	}
//
// A feature that the broker lacks is a false in [Features]. Everything else must hold.
//
// The kit asks a subscription what it has in hand, see [redeliver.LoadSink]. The engine counts that for all adapters.
package adaptertest

import (
	"context"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/middleware"
)

// Harness is an adapter and its broker, as the kit uses them. Every function may
// be called by many tests at once, and fails its test when something is wrong.
// Put, PutBack and Dead use a client that is not the adapter's.
type Harness struct {
	// Name is the broker's, as it stands in the guarantee table.
	Name     string
	Features Features
	// MaxHeaders is how many headers a message may have, the ID not counted. 0: no
	// bound that the kit would meet.
	MaxHeaders int
	// Oversized maps a place to a function that returns a message which the origin takes
	// and the place does not: with redeliver's state it is too large, or the function
	// lowers a limit of the place. A message that is too large for the DLQ is too large
	// for Waits, too. The kit calls it when a service of the group has subscribed to the
	// origin. A place without a function takes whatever the origin takes.
	Oversized map[Place]func(t testing.TB, origin, group string) Message
	// TwoParts tells that the message of Oversized[DLQ] goes to the DLQ in two parts, each
	// with all headers. Else it goes there without its body and its headers.
	TwoParts bool
	// Forged returns st in the adapter's own headers, as a producer may forge them,
	// beside those of [redeliver.State.AppendHeaders]. Nil: there are no others.
	Forged func(st redeliver.State) []Header
	// ReadsAhead tells that a process reads what stands behind a message of its key, or
	// group, and holds it, where the policy's order is redeliver.PerKey.
	ReadsAhead bool
	// CrashesBeside is how often a message may kill its process beside others, before it
	// runs alone. Default 2.
	CrashesBeside int
	// Wrap runs a test: in a bubble with a virtual clock, say. Nil: it is called,
	// many at once. Within it no subtest is run, all goroutines of the kit's own
	// end before it does, and what the kit waits for it waits for in it.
	Wrap func(t *testing.T, test func(t *testing.T))
	// Origin makes a new, empty origin that n new groups read (one, where
	// Features.ManyGroups is false), and returns the names of both as they stand
	// in redeliver.State. On brokers where a group is a queue, that is made too,
	// and where only one reads the origin it has the origin's name.
	Origin func(t testing.TB, n int) (origin string, groups []string)
	// Open starts a service, which the kit closes or kills. It must not
	// subscribe to anything. Errors of the configuration are returned.
	Open func(t testing.TB, cfg Config) (Service, error)
	// ConsumeBatch makes a service that handles batches in the broker's own form,
	// beside which there is nothing of Watermill. run is it, until its context ends;
	// kill is [Service].Kill. Nil where there is no such form.
	ConsumeBatch func(t testing.TB, cfg Config, bc middleware.BatchConfig, fn BatchFunc) (run func(context.Context) error, kill func())
	// Put writes messages to an origin, for all its groups, in order. They have
	// no Ours.
	Put func(t testing.TB, origin string, msgs ...Message)
	// PutBack writes messages, with Ours as redeliver's headers, to where they
	// come back to one group without waiting. Like Dead and Refuse, it is called
	// only when a service of the group has subscribed to the origin before.
	PutBack func(t testing.TB, origin, group string, msgs ...Message)
	// Dead returns what is in the DLQ of a group, without taking it out, as
	// soon as there are at least n messages, or what there is after Timeout.
	Dead func(t testing.TB, origin, group string, n int) []Message
	// DLQTopic is the DLQ of a group as a service subscribes to it, and the group that it is of then: a new one where
	// Features.ManyGroups is true, else the DLQ. Nil: the kit does not check that a DLQ can have a consumer.
	DLQTopic func(origin, group string) (topic, reader string)
	// Seen is a message that a handler got, as the broker's own record behind
	// it shows it to the handler, with the ID where it had one. Headers are all
	// that the handler can see, but for the one that carries the ID. Key and
	// Body must not be shared with the record.
	Seen func(msg *message.Message) Message
	// Refuse makes the broker refuse, or not confirm, what is written to a
	// place of a group, until restore is called. Nil where Features.Refuse is false.
	Refuse func(t testing.TB, origin, group string, what Place) (restore func())
}

// Place is where a failed message is written to.
type Place string

// The places.
const (
	Levels Place = "where messages wait" // every level, and the way back
	DLQ    Place = "the DLQ"
)

// Timeout bounds every wait of the kit for something that must happen. A dead
// runner's replay that another resumes took 80 s with one core for everything.
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
	// Close ends it in order.
	Close(ctx context.Context) error
	// Kill ends it as SIGKILL would, as seen from the broker: its connections
	// are cut, nothing is settled, and it never comes back. It does not wait for
	// handlers. Close is called some time after it, and must let go of what is
	// left in this process.
	Kill()
}

// Undecodable is a body that the harness's decoder must refuse. The others it
// must take.
const Undecodable = "\x00adaptertest: no message"

// Message is a message as a client of the broker sees it.
type Message struct {
	// ID is the UUID of Watermill, where the adapter looks for it. Empty: none
	// is written, and the adapter makes one.
	ID string
	// Key is the key that orders messages. Nil for none, and where neither
	// Features.KeyOrder nor Features.PerKey is true.
	Key []byte
	// Body is nil for a null body, where the broker knows one.
	Body []byte
	// Headers are the user's, in order. ID is not among them. Names are not
	// empty, and values are text where Features.BinaryHeaders is false.
	Headers []Header
	// Ours are redeliver's headers: on what the kit reads, in the DLQ alone.
	Ours []redeliver.Header
}

// Header is one header of a user's.
type Header struct {
	Name  string
	Value []byte
}

// Features are what a broker can do. What is false needs a row in the guarantee
// table of the README, with the broker's own documentation; CheckTable compares.
type Features struct {
	KeyOrder         bool // messages of one key run one after another, in order
	BinaryHeaders    bool // a header's value may be any bytes
	DuplicateHeaders bool // a header may stand twice, and headers have an order
	NullBody         bool // a null body is not an empty one
	CountsCrashes    bool // a message that kills its process ends in the DLQ
	ForeignHeaders   bool // a user's own redeliver- headers survive on retries
	Refuse           bool // the harness can make the broker refuse writes
	ManyGroups       bool // one origin may be read by several groups
	KeepsAttempts    bool // the end of a process neither loses nor adds attempts of its messages
	DelayedPublish   bool // a message may be published for later
	Blocking         bool // a policy may have redeliver.Blocking order
	PerKey           bool // a policy may have redeliver.PerKey order
	SlowHoldsUpNone  bool // while one message runs, however long, all others go on
}
