// Package history records a chaos run or a world, and has the checker that compares the record with the promises. It uses none of
// redeliver's code.
//
// A history is a file of JSON lines. The writer, the consumers and the injector of faults append to the same file, each
// line with one write(2), so a SIGKILL leaves a line complete or absent. All of them run on one machine and use its
// clock for timestamps. A consumer whose own clock was stepped also records the time of that clock.
package history

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// Kind is the kind of a line.
type Kind string

// The kinds of lines.
const (
	Began   Kind = "began"   // the run begins; Run has its promises
	Write   Kind = "write"   // a message is about to be written
	Written Kind = "written" // the broker has confirmed it; Partition and Offset are its place, if it has one
	Begin   Kind = "begin"   // a handler was entered
	End     Kind = "end"     // the handler is about to return Outcome
	Dead    Kind = "dead"    // a message is in the DLQ, as an independent client read it
	Odd     Kind = "odd"     // redeliver reported something that must not happen, such as implausible headers
	Tried   Kind = "tried"   // redeliver reported that a write of the message Name after Attempt failed and is repeated
	Fault   Kind = "fault"   // a fault begins; What and Target name it
	Healed  Kind = "healed"  // the fault is over
	Moved   Kind = "moved"   // the process's connection or partitions came or went: its messages in hand may run again
	Clock   Kind = "clock"   // the process's clock was stepped; Offset is its error from now on, in nanoseconds
	Said    Kind = "said"    // for people; the checker ignores it
	Settled Kind = "settled" // all is healed, and the broker reports that no message is unsettled
	Started Kind = "started" // in a world, a process of the group Load starts; What is the number of its version
	Stopped Kind = "stopped" // in a world, the process has stopped politely
	Event   Kind = "event"   // in a world, redeliver reported an event; What is its name, or the change of a subscription
)

// The outcomes of a handler.
const (
	OK     = "ok"     // the message is settled: its commit
	Failed = "failed" // an error that counts as an attempt
	Cut    = "cut"    // its context had ended: the attempt does not count
)

// DueTime is the reason of an Odd line that is only about due times, which a wrong clock writes.
const DueTime = "due time"

// Line is one line of a history. Times are in nanoseconds since 1970.
type Line struct {
	At      int64  `json:"at"`
	Process string `json:"process,omitempty"`
	Kind    Kind   `json:"kind"`

	ID      string `json:"id,omitempty"`      // the writer's id of the message
	Name    string `json:"name,omitempty"`    // redeliver's id of the same message
	Load    string `json:"load,omitempty"`    // the load to which it belongs
	Key     string `json:"key,omitempty"`     // messages of one key have an order if the load says so
	Rule    Rule   `json:"rule,omitempty"`    // the result of its handler
	Attempt int    `json:"attempt,omitempty"` // from 1
	Due     int64  `json:"due,omitempty"`     // as the handler got it
	Local   int64  `json:"local,omitempty"`   // time of the process's own clock
	Sum     uint32 `json:"sum,omitempty"`     // of the body
	Outcome string `json:"outcome,omitempty"`
	Reason  string `json:"reason,omitempty"` // of a dead letter, or of an Odd line

	Partition int32 `json:"partition,omitempty"`
	Offset    int64 `json:"offset,omitempty"`

	What   string `json:"what,omitempty"`
	Target string `json:"target,omitempty"`
	Run    *Run   `json:"run,omitempty"`
}

// Rule determines the results of a message's handler.
type Rule string

// The rules.
const (
	Never  Rule = "never"  // every attempt succeeds
	Once   Rule = "once"   // the first attempt fails
	Always Rule = "always" // every attempt fails: it must end in the DLQ
)

// Run has the promises of a run.
type Run struct {
	Broker string `json:"broker"`
	Seed   uint64 `json:"seed"`
	Loads  []Load `json:"loads"`
	// Linger is how long after its end a fault may still explain a repeated run, for example while a group rebalances
	// or a client finds its leader.
	Linger time.Duration `json:"linger"`
	// World is the plan of a world.
	World json.RawMessage `json:"world,omitempty"`
}

// Load is a stream of messages with a policy.
type Load struct {
	Name  string          `json:"name"`
	Steps []time.Duration `json:"steps"` // the wait after each failure: at most len(Steps)+1 attempts
	// Order is "" for messages without an order, OrderFirstAttempts if first attempts of a key run one after another, and OrderThroughRetries
	// if a message runs only after the earlier ones of its key have ended.
	Order string `json:"order,omitempty"`
	// Suspects means that the adapter sets aside messages that may have killed their process. Their first attempt has a
	// due time.
	Suspects bool `json:"suspects,omitempty"`
}

// The orders.
const (
	OrderFirstAttempts  = "OrderFirstAttempts"
	OrderThroughRetries = "OrderThroughRetries"
)

// attempts returns the number of attempts that the rule asks for.
func (l Load) attempts(r Rule) int {
	switch r {
	case Once:
		return 2
	case Always:
		return len(l.Steps) + 1
	default:
		return 1
	}
}

// Log appends to a history. Several goroutines may use it, and several processes may use the same file.
type Log struct {
	file    *os.File
	process string
}

// Open opens a history to append lines of a process.
func Open(path, process string) (*Log, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("opening the history: %w", err)
	}
	return &Log{f, process}, nil
}

// Close closes the file. Lines that were added are in the file in any case.
func (l *Log) Close() error { return l.file.Close() }

// Add writes a line. An error ends the process, because a consumer that cannot record what it did must not continue.
func (l *Log) Add(line Line) {
	if line.At == 0 {
		line.At = time.Now().UnixNano()
	}
	if line.Process == "" {
		line.Process = l.process
	}
	text, err := json.Marshal(line)
	if err == nil {
		_, err = l.file.Write(append(text, '\n'))
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "writing the history: %v\n", err)
		os.Exit(3)
	}
}

// Reader reads a history while it grows.
type Reader struct {
	path string
	at   int64
}

// NewReader returns a reader that begins at the first line.
func NewReader(path string) *Reader { return &Reader{path: path} }

// More returns the complete lines that were added since the last call.
func (r *Reader) More() ([]Line, error) {
	f, err := os.Open(r.path)
	if err != nil {
		return nil, fmt.Errorf("reading the history: %w", err)
	}
	defer f.Close()
	if _, err := f.Seek(r.at, io.SeekStart); err != nil {
		return nil, fmt.Errorf("reading the history: %w", err)
	}
	in := bufio.NewReader(f)
	var lines []Line
	for {
		text, err := in.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return lines, nil
		}
		if err != nil {
			return lines, fmt.Errorf("reading the history: %w", err)
		}
		var line Line
		if err := json.Unmarshal(text, &line); err != nil {
			return lines, fmt.Errorf("reading the history at byte %d: %w", r.at, err)
		}
		lines = append(lines, line)
		r.at += int64(len(text))
	}
}
