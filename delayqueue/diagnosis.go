package delayqueue

import "time"

// DefaultLate is Examination.Late where nothing is said.
const DefaultLate = time.Minute

// Examination says how a subscription is looked at from outside: by an adapter's
// Doctor, which changes nothing and takes part in no group.
type Examination struct {
	// Late is how long a message may have been due before that is a symptom. A handler
	// that works on it settles it only when it has ended. Default 1 min.
	Late time.Duration
	// AnyPolicy takes the policy from the levels that there are, instead of comparing
	// them with the client's: it is not known with which one the group runs. Default
	// false.
	AnyPolicy bool
}

// Patience is Late, or its default.
func (e Examination) Patience() time.Duration {
	if e.Late > 0 {
		return e.Late
	}
	return DefaultLate
}

// SymptomKind is what is wrong.
type SymptomKind string

// The kinds of symptoms.
const (
	SymptomMissing   SymptomKind = "missing"   // a topic or queue is not there
	SymptomSettings  SymptomKind = "settings"  // one has settings under which messages are lost or nothing works
	SymptomRetention SymptomKind = "retention" // one forgets messages before their wait is over
	SymptomOrphan    SymptomKind = "orphan"    // a level that no policy uses any more, or nobody reads
	SymptomLate      SymptomKind = "late"      // messages are due and do not run
	SymptomPolicies  SymptomKind = "policies"  // members of a group run different policies
	SymptomConsumer  SymptomKind = "consumer"  // messages wait, and nobody reads
)

// Symptom is one thing that somebody should see to.
type Symptom struct {
	Kind  SymptomKind
	Place string // the topic, queue or group
	Text  string // what was found, and what to do
}

// Diagnosis is what an examination has found.
type Diagnosis struct {
	Origin, Group string // on brokers without groups both are the queue
	Symptoms      []Symptom
	// Checked is what was looked at. What is in neither list does not exist on the
	// broker.
	Checked []string
	// NotChecked is what was not looked at, and why: it may be well or not.
	NotChecked []string
}

// Find adds a symptom.
func (d *Diagnosis) Find(kind SymptomKind, place, text string) {
	d.Symptoms = append(d.Symptoms, Symptom{kind, place, text})
}
