package simulate

import (
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/delayqueue"
)

// Result is the result of a scenario. Times are since the first message arrived.
type Result struct {
	Messages     int `json:"messages"`
	Succeeded    int `json:"succeeded"`
	FirstAttempt int `json:"first_attempt"` // those that succeeded in the first attempt
	Dead         int `json:"dead"`
	// DeadBy is the number of messages in the DLQ by reason.
	DeadBy map[redeliver.Reason]int `json:"dead_by,omitempty"`

	Attempts int `json:"attempts"`
	Retries  int `json:"retries"` // attempts of messages that had failed or were postponed before
	// Failures is the number of failed attempts by their error.
	Failures map[string]int `json:"failures,omitempty"`

	// Done is when the last attempt ended.
	Done Seconds `json:"done"`
	// ToSuccess is the time from arrival to success of all messages that succeeded. Recovered is that of messages that
	// had failed before.
	ToSuccess Quantiles `json:"to_success"`
	Recovered Quantiles `json:"recovered"`
	// PeakLoad is the largest number of attempts that began in the same second.
	PeakLoad int `json:"peak_load"`

	Levels []Level `json:"levels"`
	Series []Bar   `json:"series"`
	// Operations are the operations that the run needs on each broker.
	Operations []Operations `json:"operations"`

	ladder delayqueue.Ladder
	jitter time.Duration   // the maximum that the backoff adds
	bar    time.Duration   // the length of each bar of Series
	whole  [][]int         // by level and bar: the change in the number of messages that wait for the whole bar
	took   []time.Duration // time to each success
	after  []time.Duration // the same, for messages that had failed before
	second time.Duration   // the second that is being counted
	load   int             // attempts in that second
	waits  waitCounts
}

// Seconds is a duration that is a number of seconds in JSON.
type Seconds time.Duration

// String formats the duration as time.Duration does, rounded to milliseconds.
func (s Seconds) String() string { return time.Duration(s).Round(time.Millisecond).String() }

// MarshalJSON implements [json.Marshaler].
func (s Seconds) MarshalJSON() ([]byte, error) {
	return strconv.AppendFloat(nil, time.Duration(s).Round(time.Millisecond).Seconds(), 'f', -1, 64), nil
}

// Quantiles are quantiles of a duration.
type Quantiles struct {
	P50 Seconds `json:"p50"`
	P90 Seconds `json:"p90"`
	P99 Seconds `json:"p99"`
	Max Seconds `json:"max"`
}

// Level describes the messages that waited on one level.
type Level struct {
	Level  Seconds `json:"level"`
	Name   string  `json:"name"`
	Passed int     `json:"passed"` // messages that were written to it
	Peak   float64 `json:"peak"`   // the highest Waiting of a bar
}

// Bar is one interval of the series.
type Bar struct {
	From     Seconds   `json:"from"`
	To       Seconds   `json:"to"`
	Arrived  int       `json:"arrived"`
	Attempts int       `json:"attempts"` // attempts that began
	Failed   int       `json:"failed"`   // attempts that ended in it and failed
	Dead     int       `json:"dead"`     // written to the DLQ
	Waiting  []float64 `json:"waiting"`  // mean number of waiting messages for each of Levels
}

func newResult(s *Scenario, ladder delayqueue.Ladder) *Result {
	r := &Result{
		Messages: s.messages(), DeadBy: make(map[redeliver.Reason]int), Failures: make(map[string]int),
		ladder: ladder, bar: max(1, s.Duration/time.Duration(s.Bars)), whole: make([][]int, len(ladder)),
	}
	_, r.jitter, _ = s.Policy.Delays()
	for _, d := range ladder {
		r.Levels = append(r.Levels, Level{Level: Seconds(d), Name: delayqueue.LevelName(d)})
	}
	r.took = make([]time.Duration, 0, r.Messages)
	return r
}

// at returns the bar that contains a time, and adds missing bars before it. All bars have one length, which doubles
// when there would be too many.
func (r *Result) at(t time.Duration) *Bar {
	for int(t/r.bar) >= maxBars {
		r.mergeBars()
	}
	for i := len(r.Series); i <= int(t/r.bar); i++ {
		r.Series = append(r.Series, Bar{From: Seconds(i) * Seconds(r.bar), To: Seconds(i+1) * Seconds(r.bar), Waiting: make([]float64, len(r.Levels))})
		for l := range r.whole {
			r.whole[l] = append(r.whole[l], 0)
		}
	}
	return &r.Series[t/r.bar]
}

// mergeBars merges bars in pairs.
func (r *Result) mergeBars() {
	r.sum()
	r.bar *= 2
	half := make([]Bar, 0, len(r.Series)/2+1)
	for i, b := range r.Series {
		if i%2 == 0 {
			b.To = b.From + Seconds(r.bar)
			half = append(half, b)
			continue
		}
		last := &half[len(half)-1]
		last.Arrived += b.Arrived
		last.Attempts += b.Attempts
		last.Failed += b.Failed
		last.Dead += b.Dead
		for l := range b.Waiting {
			last.Waiting[l] += b.Waiting[l]
		}
	}
	r.Series = half
	for l := range r.whole {
		r.whole[l] = r.whole[l][:len(half)]
	}
}

// sum adds the messages that wait for the whole of a bar to those that wait for a part of it.
func (r *Result) sum() {
	for l, more := range r.whole {
		addWaiting := 0
		for i := range more {
			addWaiting += more[i]
			r.Series[i].Waiting[l] += float64(addWaiting) * r.bar.Seconds()
		}
		clear(more)
	}
}

func (r *Result) arrive(at time.Duration) { r.at(at).Arrived++ }

func (r *Result) attempt(start, end time.Duration, again bool, failure error) {
	r.Attempts++
	if again {
		r.Retries++
	}
	r.at(start).Attempts++
	if s := start.Truncate(time.Second); s != r.second {
		r.second, r.load = s, 0
	}
	r.load++
	r.PeakLoad = max(r.PeakLoad, r.load)
	if failure != nil {
		r.at(end).Failed++
		r.Failures[failure.Error()]++
	}
	r.Done = max(r.Done, Seconds(end))
}

func (r *Result) succeed(took time.Duration, again bool) {
	r.Succeeded++
	r.took = append(r.took, took)
	if again {
		r.after = append(r.after, took)
	} else {
		r.FirstAttempt++
	}
}

func (r *Result) deadLetter(at time.Duration, why redeliver.Reason) {
	r.Dead++
	r.DeadBy[why]++
	r.at(at).Dead++
}

// slack is as in the adapters: a wait may use a level that is longer than the wait by at most slack.
const slack = 100 * time.Millisecond

// wait records the levels of a wait, as delayqueue.Arrive chooses them. Until finish, Bar.Waiting has message-seconds.
func (r *Result) wait(from, until time.Duration) {
	r.waits.add(until - from)
	level, ok := r.ladder.Next(until-from, slack)
	if !ok { // too short for any level, so it is held
		r.waits.held++
	}
	for ; ok; level, ok = r.ladder.Next(until-from, slack) {
		stays := min(level, until-from) // it is released when it is due
		if _, more := r.ladder.Next(until-from-stays, 0); !more || until-from-stays <= r.jitter {
			stays = until - from // the rest is spent on this level
		}
		i := slices.Index(r.ladder, level)
		r.Levels[i].Passed++
		r.waits.hops++
		r.addWaiting(i, from, from+stays)
		from += stays
	}
}

// addWaiting records that a message is on a level.
func (r *Result) addWaiting(level int, from, to time.Duration) {
	last := r.at(to) // also creates all bars before it
	first := r.at(from)
	if first == last {
		first.Waiting[level] += (to - from).Seconds()
		return
	}
	first.Waiting[level] += (time.Duration(first.To) - from).Seconds()
	last.Waiting[level] += (to - time.Duration(last.From)).Seconds()
	r.whole[level][from/r.bar+1]++
	r.whole[level][to/r.bar]--
}

func (r *Result) finish() {
	r.ToSuccess, r.Recovered = quantilesOf(r.took), quantilesOf(r.after)
	r.sum()
	for i := range r.Series {
		b := &r.Series[i]
		for l := range b.Waiting {
			b.Waiting[l] /= r.bar.Seconds()
			r.Levels[l].Peak = max(r.Levels[l].Peak, b.Waiting[l])
		}
	}
	r.Operations = r.waits.operations(r)
}

func quantilesOf(all []time.Duration) Quantiles {
	if len(all) == 0 {
		return Quantiles{}
	}
	slices.Sort(all)
	at := func(q float64) Seconds {
		return Seconds(all[min(len(all)-1, max(0, int(math.Ceil(q*float64(len(all))))-1))])
	}
	return Quantiles{at(0.5), at(0.9), at(0.99), at(1)}
}
