// Package live runs the plan of a world on a driver, and records its history.
package live

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/redeliver/redeliver"

	"github.com/redeliver/redeliver/integration/worlds/plan"
)

// Driver has the brokers of one world, and runs services on them.
type Driver interface {
	// Write writes a message once, from a program that does not use redeliver.
	Write(m plan.Message, body []byte) (partition int32, offset int64, err error)
	// Process prepares a process. Run runs it until ctx ends, and returns when it has stopped. Kill takes its network away,
	// forever.
	Process(p *Process) (run func(ctx context.Context) error, kill func())
	// Do begins a word about a process or a group, which target names, and returns a function that ends it, or nil.
	Do(o plan.Word, target string) (heal func(), err error)
	// DeadLetters returns the dead letters of a service that it has not returned before, read by an independent client.
	DeadLetters(s plan.Service) ([]DeadLetter, error)
	// Stuck reports why the world cannot be judged: a known fault of the fake broker. It is "" if there is none.
	Stuck(s plan.Service) string
}

// Deleter is a driver whose words delete messages.
type Deleter interface {
	// Deleted returns the copies of messages that words have deleted since the last call.
	Deleted() []Copy
}

// Denier is a driver that sees which requests a right that was taken away has denied.
type Denier interface {
	// Denials returns them, for each process and request. They are of words that have ended since the last call.
	Denials() []Denial
}

// Denial is that a process's requests were denied.
type Denial struct {
	First   time.Time
	Process string
	Request string
	Count   int
}

// Copy is a copy of a message on a level, or the message on its origin.
type Copy struct {
	At      time.Time // when it was deleted
	Body    []byte
	Group   string // whose level it was; "" if it was on the origin
	Attempt int    // after so many attempts
	Topic   string
	Place   string // where it was, such as topic/partition/offset
	Skipped bool   // it is still there, but the group does not read it
}

// DeadLetter is a message in a DLQ.
type DeadLetter struct {
	Body    []byte
	Key     string
	Header  string // the user's header
	Name    string // redeliver's id
	Reason  string
	Attempt int
	Place   string // where it is, such as topic/partition/offset
}

// Record is a message as a handler gets it.
type Record struct {
	Topic  string
	Body   []byte
	Key    string
	Header string // the user's header
}

// UserHeader is the name of the header that each message has. Its value is the message's id.
const UserHeader = "h"

// Process is one run of a service's program.
type Process struct {
	Name    string
	Slot    int
	Service plan.Service
	Version plan.Version
	Sink    redeliver.Sink
	// Handle is the service's handler.
	Handle func(ctx context.Context, r Record) error

	killed atomic.Bool
	cancel context.CancelFunc
	kill   func()
	done   chan struct{}
}

// Killed reports whether the process was killed. A killed process must not do anything that others can see.
func (p *Process) Killed() bool { return p.killed.Load() }
