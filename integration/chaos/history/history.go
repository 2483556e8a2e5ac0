// Package history is what is known of a chaos run, and the checker that holds it against the promises. It knows
// nothing of redeliver's code.
//
// A history is a file of lines of JSON. The writer, the consumers and the injector of faults append to the same file,
// each line with one write(2), so a SIGKILL leaves a line whole or not at all. All of them run on one machine and stamp
// by its clock; a consumer whose own clock was stepped says what that showed, too.
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

// Kind says what a line tells.
type Kind string

// The kinds of lines.
const (
	Began   Kind = "began"   // the run: Run is what it promises
	Write   Kind = "write"   // a message is about to be written
	Written Kind = "written" // the broker has confirmed it; Partition and Offset are its place, if it has one
	Begin   Kind = "begin"   // a handler was entered
	End     Kind = "end"     // it is about to return; Outcome says what
	Dead    Kind = "dead"    // a message is in the DLQ, as an independent client read it
	Odd     Kind = "odd"     // redeliver told of something that must not be, such as headers that it disbelieves
	Tried   Kind = "tried"   // redeliver told that a write of the message (its Name) after Attempt failed, and makes it again
	Fault   Kind = "fault"   // a fault begins; What and Target name it
	Healed  Kind = "healed"  // it is over
	Moved   Kind = "moved"   // the process's connection or partitions came or went: what it had in hand may be run again
	Clock   Kind = "clock"   // the process's clock was stepped; Offset is by how much it is wrong from now on, in nanoseconds
	Said    Kind = "said"    // for people: the checker does not read it
	Settled Kind = "settled" // all is healed, and the broker says that nothing is unsettled
)

// The outcomes of a handler.
const (
	OK     = "ok"     // the message is settled: its commit
	Failed = "failed" // an error that is an attempt
	Cut    = "cut"    // its context had ended: the attempt does not count
)

// DueTime is the reason of an Odd line that tells of due times only, which a clock writes that is wrong.
const DueTime = "due time"

// Line is one line of a history. Times are in nanoseconds since 1970.
type Line struct {
	At      int64  `json:"at"`
	Process string `json:"process,omitempty"`
	Kind    Kind   `json:"kind"`

	ID      string `json:"id,omitempty"`      // the message's, as its writer named it
	Name    string `json:"name,omitempty"`    // the same message's, as redeliver names it
	Load    string `json:"load,omitempty"`    // which of the run's loads it belongs to
	Key     string `json:"key,omitempty"`     // messages of one key have an order where the load says so
	Rule    Rule   `json:"rule,omitempty"`    // what its handler answers
	Attempt int    `json:"attempt,omitempty"` // from 1
	Due     int64  `json:"due,omitempty"`     // as the handler saw it
	Local   int64  `json:"local,omitempty"`   // what the process's own clock shows
	Sum     uint32 `json:"sum,omitempty"`     // of the body
	Outcome string `json:"outcome,omitempty"`
	Reason  string `json:"reason,omitempty"` // of a dead letter, or of what is odd

	Partition int32 `json:"partition,omitempty"`
	Offset    int64 `json:"offset,omitempty"`

	What   string `json:"what,omitempty"`
	Target string `json:"target,omitempty"`
	Run    *Run   `json:"run,omitempty"`
}

// Rule says what a message's handler answers.
type Rule string

// The rules.
const (
	Never  Rule = "never"  // it succeeds at once
	Once   Rule = "once"   // the first attempt fails
	Always Rule = "always" // every attempt fails: it must end in the DLQ
)

// Run is what a run has promised before it begins.
type Run struct {
	Broker string `json:"broker"`
	Seed   uint64 `json:"seed"`
	Loads  []Load `json:"loads"`
	// Linger is how long after its end a fault may still be why something was run again: a group that rebalances, a
	// client that finds its leader.
	Linger time.Duration `json:"linger"`
}

// Load is a stream of messages with a policy.
type Load struct {
	Name  string          `json:"name"`
	Steps []time.Duration `json:"steps"` // the wait after each failure: len(Steps)+1 attempts at most
	// Order is "" where messages have none, KeyOrder where first attempts of a key run one after another, PerKey where a
	// message runs when those of its key before it have ended.
	Order string `json:"order,omitempty"`
	// Suspects: the adapter sets messages aside that may have killed their process. Their first attempt has a due time.
	Suspects bool `json:"suspects,omitempty"`
}

// The orders.
const (
	KeyOrder = "KeyOrder"
	PerKey   = "PerKey"
)

// attempts is how many the rule asks for.
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

// Log appends to a history. It may be used by several goroutines, and by several processes with the same file.
type Log struct {
	file    *os.File
	process string
}

// Open opens a history to append to it in the name of a process.
func Open(path, process string) (*Log, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("opening the history: %w", err)
	}
	return &Log{f, process}, nil
}

// Close closes the file. Everything that was written is there in any case.
func (l *Log) Close() error { return l.file.Close() }

// Add writes a line. A consumer that cannot prove what it did must not go on: an error ends the process.
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

// NewReader reads from the beginning.
func NewReader(path string) *Reader { return &Reader{path: path} }

// More returns the whole lines that came since the last call.
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
