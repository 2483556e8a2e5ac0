// Package doctor has the types for the method Doctor of an adapter's client. Doctor examines a subscription from
// outside: it changes nothing and joins no group.
package doctor

import (
	"fmt"
	"time"

	"github.com/redeliver/redeliver"
)

// DefaultLate is the default of Examination.Late.
const DefaultLate = time.Minute

// Examination configures a Doctor.
type Examination struct {
	// Late is how long a message may be due before Doctor reports it. A message is due until its handler has ended, so
	// choose more time than a handler takes. Default 1 min.
	Late time.Duration
	// AnyPolicy derives the policy from the existing levels instead of comparing them with the client's policy. Set it
	// when you do not know which policy the group runs. Default false.
	AnyPolicy bool
	// Group is the group to examine, on Kafka. Default: the client's.
	Group string
}

// WithDefaults returns the examination with the default of Late if it is not positive.
func (e Examination) WithDefaults() Examination {
	if e.Late <= 0 {
		e.Late = DefaultLate
	}
	return e
}

// SymptomKind is the kind of a problem.
type SymptomKind string

// The kinds of symptoms.
const (
	SymptomMissing   SymptomKind = "missing"   // a topic or queue does not exist
	SymptomSettings  SymptomKind = "settings"  // settings that lose messages or stop the subscription
	SymptomRetention SymptomKind = "retention" // messages are dropped before their wait is over
	SymptomOrphan    SymptomKind = "orphan"    // a level that the policy does not use, or that no consumer reads
	SymptomLate      SymptomKind = "late"      // messages are due and do not run
	SymptomConsumer  SymptomKind = "consumer"  // messages wait and no consumer reads them
	SymptomPaused    SymptomKind = "paused"    // an operator has paused the group
)

// Symptom is one problem.
type Symptom struct {
	Kind  SymptomKind
	Place string // the topic, queue or group
	Text  string // what was found, and what to do
}

// Diagnosis is the result of an examination.
type Diagnosis struct {
	Origin, Group string // on brokers without groups both are the queue
	Symptoms      []Symptom
	// Backlog is an estimate of the origin's messages that the group has not handled. On RabbitMQ and SQS it omits
	// those that a consumer has. It is nil if the broker does not report it.
	Backlog *int64
	// Checked lists what was examined. A topic or queue that is in neither Checked nor NotChecked does not exist on
	// the broker.
	Checked []string
	// NotChecked lists what could not be examined, and why.
	NotChecked []string
}

// AddPause adds the symptom of a paused group. It adds none if m is nil. A non-nil err says why the pause could not be
// checked.
func (d *Diagnosis) AddPause(m *redeliver.PauseMark, err error) {
	if err != nil {
		d.NotChecked = append(d.NotChecked, fmt.Sprintf("whether the group is paused (%v)", err))
		return
	}
	d.Checked = append(d.Checked, "whether the group is paused")
	if m == nil {
		return
	}
	text := "it was paused by hand"
	if !m.At.IsZero() {
		text = fmt.Sprintf("%s paused it %s ago", m.By, time.Since(m.At).Round(time.Second))
	}
	if m.NewOnly {
		text += ", new messages only"
	}
	d.Add(SymptomPaused, d.Origin, text+": "+m.Reason+". To end the pause: redeliver resume")
}

// Add adds a symptom.
func (d *Diagnosis) Add(kind SymptomKind, place, text string) {
	d.Symptoms = append(d.Symptoms, Symptom{kind, place, text})
}

// AddUnusedLevel adds the symptom of a level that the policy does not use. messages is how many wait on it, or -1 if
// that is not known. command is the broker's own command that deletes it.
func (d *Diagnosis) AddUnusedLevel(place string, messages int64, command string) {
	waiting, when := fmt.Sprintf("%d messages wait on it, and come back when they are due", messages), "it is empty and "
	switch messages {
	case -1:
		waiting = "how many messages wait on it is not known yet"
	case 0:
		waiting, when = "no message waits on it", ""
	}
	d.Add(SymptomOrphan, place, fmt.Sprintf("is a level that this policy does not use; %s. When %sno instance and no publisher uses a policy with this level, delete it: %s", waiting, when, command))
}
