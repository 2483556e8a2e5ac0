//go:build prove

package kafka_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka"
	"github.com/redeliver/redeliver/delayqueue"
	"github.com/redeliver/redeliver/integration/brokers"
	"github.com/redeliver/redeliver/internal/kafkatest"
	"github.com/redeliver/redeliver/middleware"
	"github.com/redeliver/redeliver/simulate"
)

// scenario returns a scenario of six seconds with 300 messages. Some of them always fail, and one attempt in ten of the
// others.
func scenario(outages ...simulate.Outage) simulate.Scenario {
	return simulate.Scenario{
		Policy: redeliver.Policy{
			Outage: redeliver.Outage{Off: true}, MaxRetries: 3, Backoff: redeliver.ExponentialBackoff{Base: 200 * time.Millisecond, Max: 800 * time.Millisecond},
			Levels: []time.Duration{200 * time.Millisecond, 400 * time.Millisecond, 800 * time.Millisecond},
		},
		Duration: 6 * time.Second, Rate: 50, PoisonShare: 0.05, ErrorShare: 0.1, Outages: outages, Seed: 7,
	}
}

// outcome is the life of one message.
type outcome struct {
	began  []time.Duration // attempts, counted from the first message
	waits  []time.Duration // after each failed attempt
	places []string        // topics on which it waits
	reason redeliver.Reason
	ended  bool
}

// playAlone simulates one message as package simulate does, but alone: attempts take no time, and none waits for
// another.
func playAlone(s *simulate.Scenario, id int) (w outcome) {
	epoch := time.Unix(0, 0).UTC()
	at := arrival(s, id)
	st := redeliver.State{ID: strconv.Itoa(id), Source: redeliver.Source{Known: true, Timestamp: epoch.Add(at)}}
	for {
		w.began = append(w.began, at)
		d := s.Policy.Decide(st, s.Fails(uint32(id), st.Attempt(), at), epoch.Add(at))
		if w.ended = d.Action != redeliver.ActionRetryLater; w.ended {
			w.reason = d.State.Reason
			return w
		}
		w.waits = append(w.waits, d.Delay)
		st, at = d.State, d.State.Due.Sub(epoch)
	}
}

func arrival(s *simulate.Scenario, id int) time.Duration {
	return time.Duration(math.Round(float64(id) / s.Rate * float64(time.Second)))
}

// totals sums all outcomes, in the terms of a Result.
type totals struct {
	attempts, retries, atOnce, succeeded int
	deadBy                               map[redeliver.Reason]int
	recovered                            []time.Duration
}

func totalsOf(s *simulate.Scenario, ways []outcome) totals {
	all := totals{deadBy: make(map[redeliver.Reason]int)}
	for id, w := range ways {
		all.attempts += len(w.began)
		all.retries += len(w.began) - 1
		switch {
		case w.reason != "":
			all.deadBy[w.reason]++
		case len(w.began) == 1:
			all.atOnce++
			all.succeeded++
		default:
			all.succeeded++
			all.recovered = append(all.recovered, w.began[len(w.began)-1]-arrival(s, id))
		}
	}
	slices.Sort(all.recovered)
	return all
}

func (s *totals) dead() (n int) {
	for _, d := range s.deadBy {
		n += d
	}
	return n
}

// quantile returns a quantile of sorted times.
func quantile(all []time.Duration, q float64) time.Duration {
	return all[max(0, int(math.Ceil(q*float64(len(all))))-1)]
}

// realRun is a scenario on a real Kafka, through middleware.Retry.
type realRun struct {
	*testing.T
	s     simulate.Scenario
	began time.Time

	mu      sync.Mutex
	warmed  bool // a message of warmUp has run
	ways    []outcome
	left    int               // messages that have not ended
	changes []redeliver.Event // for the report of a run that does not end
	ended   chan struct{}
}

// runReal runs a scenario and returns the outcomes of its messages.
func runReal(t *testing.T, s simulate.Scenario) []outcome {
	t.Helper()
	addrs := brokers.RequireKafka(t)
	n := int(s.Duration.Seconds() * s.Rate)
	r := &realRun{T: t, s: s, ways: make([]outcome, n), left: n, ended: make(chan struct{})}
	topic := "simulated-" + strings.ToLower(rand.Text()[:8])
	cl, err := kgo.NewClient(kgo.UnknownTopicRetries(50), kgo.SeedBrokers(addrs...), kgo.ProducerLinger(0))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	admin := kadm.NewClient(cl)
	kafkatest.MakeTopic(t, admin, 2, nil, topic)
	client, err := kafka.Open(t.Context(), kafka.Config{Brokers: addrs, Group: topic, Policy: s.Policy, Sink: redeliver.SinkFunc(r.event)})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close(context.Background()) }()
	router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	if err != nil {
		t.Fatal(err)
	}
	router.AddMiddleware(middleware.Retry())
	router.AddConsumerHandler("play", topic, client.Subscriber(), r.handle)
	over := make(chan error, 1)
	go func() { over <- router.Run(t.Context()) }()
	defer func() { _ = router.Close() }()
	select {
	case <-router.Running():
	case err := <-over:
		t.Fatalf("the router ended: %v", err)
	}
	put := func(id string) {
		rec := &kgo.Record{Topic: topic, Value: []byte(id), Headers: []kgo.RecordHeader{{Key: kafka.UUIDHeader, Value: []byte(id)}}}
		cl.Produce(context.Background(), rec, func(_ *kgo.Record, err error) {
			if err != nil {
				t.Error(err)
			}
		})
	}
	r.warmUp(put)
	tick := time.NewTicker(time.Second / time.Duration(s.Rate))
	defer tick.Stop()
	r.mu.Lock()
	r.began = time.Now()
	r.mu.Unlock()
	for id := 0; id < n; {
		for id < n && arrival(&s, id) <= time.Since(r.began) { // a tick may have been missed
			put(strconv.Itoa(id))
			id++
		}
		<-tick.C
	}
	r.awaitEnd()
	return r.ways
}

// awaitEnd returns when all messages have ended.
func (r *realRun) awaitEnd() {
	select {
	case <-r.ended:
		return
	case <-time.After(2 * time.Minute):
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, w := range r.ways {
		if !w.ended {
			r.Logf("message %d had attempts at %v, waits %v on %q", id, w.began, w.waits, w.places)
		}
	}
	for _, e := range r.changes {
		r.Logf("%T %+v", e, e)
	}
	r.Fatalf("%d of %d messages have not ended", r.left, len(r.ways))
}

// warmUpID is the id of messages outside the scenario.
const warmUpID = "before"

// warmUp returns when the group reads, so that the first messages are not late.
func (r *realRun) warmUp(put func(id string)) {
	tick, over := time.NewTicker(100*time.Millisecond), time.After(2*time.Minute)
	defer tick.Stop()
	for reads := false; !reads; {
		put(warmUpID)
		select {
		case <-tick.C:
		case <-over:
			r.Fatal("no member reads")
		}
		r.mu.Lock()
		reads = r.warmed
		r.mu.Unlock()
	}
}

func (r *realRun) handle(msg *message.Message) error {
	now := time.Now()
	st, _ := redeliver.FromContext(msg.Context())
	r.mu.Lock()
	defer r.mu.Unlock()
	id, err := strconv.Atoi(msg.UUID)
	if err != nil { // of warmUp
		r.warmed = true
		return nil
	}
	at := now.Sub(r.began)
	w := &r.ways[id]
	w.began = append(w.began, at)
	if len(w.began) != st.Attempt() {
		r.Errorf("run %d of message %d is attempt %d", len(w.began), id, st.Attempt())
	}
	return r.s.Fails(uint32(id), st.Attempt(), at)
}

func (r *realRun) event(e redeliver.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	end := func(id string, reason redeliver.Reason) {
		n, err := strconv.Atoi(id)
		if err != nil {
			return
		}
		w := &r.ways[n]
		if w.ended {
			r.Errorf("message %d ended twice", n)
			return
		}
		w.ended, w.reason = true, reason
		if r.left--; r.left == 0 {
			close(r.ended)
		}
	}
	switch e := e.(type) {
	case redeliver.Committed:
		end(e.State.ID, "")
	case redeliver.DeadLettered:
		end(e.State.ID, e.State.Reason)
	case redeliver.RetryScheduled:
		if n, err := strconv.Atoi(e.State.ID); err == nil {
			r.ways[n].waits = append(r.ways[n].waits, e.Delay)
			r.ways[n].places = append(r.ways[n].places, e.Where)
		}
	case redeliver.SubscriptionChanged, redeliver.PublishFailed, redeliver.Abandoned:
		r.changes = append(r.changes, e)
	case redeliver.Hopped:
		if n, err := strconv.Atoi(e.State.ID); err == nil {
			r.ways[n].places = append(r.ways[n].places, e.To)
		}
	}
}

// simulated returns the result of package simulate, and checks that the messages played alone come to the same totals.
func simulated(t *testing.T, s simulate.Scenario) (*simulate.Result, []outcome) {
	t.Helper()
	res, err := simulate.Run(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	ways := make([]outcome, res.Messages)
	for id := range ways {
		ways[id] = playAlone(&s, id)
	}
	all := totalsOf(&s, ways)
	if all.attempts != res.Attempts || all.retries != res.Retries || all.atOnce != res.FirstAttempt || all.succeeded != res.Succeeded || !maps.Equal(all.deadBy, res.DeadBy) {
		t.Fatalf("the messages alone come to %+v, together to %+v", all, res)
	}
	return res, ways
}

// Without an outage nothing depends on the time. Then every message has the same attempts, the same waits to the
// nanosecond, and the same end.
func TestARealRunMatchesItsSimulation(t *testing.T) {
	t.Parallel()
	s := scenario()
	res, want := simulated(t, s)
	got := runReal(t, s)
	for id := range want {
		if len(got[id].began) != len(want[id].began) || !slices.Equal(got[id].waits, want[id].waits) || got[id].reason != want[id].reason {
			t.Errorf("message %d had %d attempts, waited %v, and ended %q; simulated are %d, %v, %q",
				id, len(got[id].began), got[id].waits, got[id].reason, len(want[id].began), want[id].waits, want[id].reason)
		}
		for i, at := range got[id].began[1:] {
			if gap := at - got[id].began[i]; gap < want[id].waits[i] {
				t.Errorf("message %d waited %s before attempt %d, not %s", id, gap, i+2, want[id].waits[i])
			}
		}
	}
	if res.Dead == 0 || res.Retries < res.Messages/10 {
		t.Errorf("the scenario shows nothing: %d dead, %d retries", res.Dead, res.Retries)
	}
	// A message that was slightly too late for its level waits on a shorter one. Their number depends on the machine.
	ladder := delayqueue.NewLadder(s.Policy)
	passed, exactly, all := make(map[string]int), 0, 0
	for id, w := range got {
		for i, place := range w.places {
			name := place[strings.LastIndexByte(place, '.')+1:]
			level, _ := delayqueue.ParseLevel(name) // 0 for the retry topic
			passed[name]++
			if i >= len(want[id].waits) {
				continue
			}
			planned, _ := ladder.Next(want[id].waits[i], 100*time.Millisecond)
			if all++; level == planned {
				exactly++
			}
			if level > planned {
				t.Errorf("message %d waits %s on %s, planned is %s", id, want[id].waits[i], place, planned)
			}
		}
	}
	var levels []string
	for _, l := range res.Levels {
		if exactly == all && passed[l.Name] != l.Passed {
			t.Errorf("%d messages waited on %s, in the simulation %d", passed[l.Name], l.Name, l.Passed)
		}
		levels = append(levels, fmt.Sprintf("%s %d (%d)", l.Name, l.Passed, passed[l.Name]))
	}
	t.Logf("report: simulated and real are the same: %d messages, %d attempts, %d dead; on levels (real in brackets) %s; %d of %d waits on the level that was planned",
		res.Messages, res.Attempts, res.Dead, strings.Join(levels, ", "), exactly, all)
}

// lateness returns how late real attempts began compared with the simulated ones, ignoring one percent.
func lateness(got, want []outcome) time.Duration {
	var behind []time.Duration
	for id, w := range got {
		for i := range min(len(w.began), len(want[id].began)) {
			behind = append(behind, w.began[i]-want[id].began[i])
		}
	}
	slices.Sort(behind)
	return max(0, quantile(behind, 0.99))
}

// An outage depends on the time: a late attempt may begin after it. So the totals of the real run must be between those
// of a simulation without lateness and of one with the measured lateness, within a fiftieth of the messages.
func TestARealOutageMatchesItsSimulation(t *testing.T) {
	t.Parallel()
	outage := simulate.Outage{From: 2 * time.Second, To: 4 * time.Second}
	s := scenario(outage)
	res, want := simulated(t, s)
	ways := runReal(t, s)
	late := lateness(ways, want)
	// On a machine that stopped during the outage no message met it, so there is nothing to compare.
	for again := 0; late > 500*time.Millisecond && again < 4; again++ {
		t.Logf("run again, after a lateness of %s", late)
		ways = runReal(t, s)
		late = lateness(ways, want)
	}
	got := totalsOf(&s, ways)
	// A late attempt meets an outage earlier: its beginning and its end move by how late the machine was at each.
	const steps = 4
	minTotals, maxTotals := totalsOf(&s, want), totalsOf(&s, want)
	quick, slow := minTotals.recovered, minTotals.recovered
	for from := range steps + 1 {
		for to := range steps + 1 {
			earlier := simulate.Outage{From: max(0, outage.From-late*time.Duration(from)/steps), To: outage.To - late*time.Duration(to)/steps}
			if earlier.To <= earlier.From {
				continue
			}
			shifted := scenario(earlier)
			_, moved := simulated(t, shifted)
			all := totalsOf(&s, moved)
			minTotals.attempts, maxTotals.attempts = min(minTotals.attempts, all.attempts), max(maxTotals.attempts, all.attempts)
			minTotals.succeeded, maxTotals.succeeded = min(minTotals.succeeded, all.succeeded), max(maxTotals.succeeded, all.succeeded)
			minTotals.atOnce, maxTotals.atOnce = min(minTotals.atOnce, all.atOnce), max(maxTotals.atOnce, all.atOnce)
			if quantile(all.recovered, 0.5) < quantile(quick, 0.5) {
				quick = all.recovered
			}
			if quantile(all.recovered, 0.5) > quantile(slow, 0.5) {
				slow = all.recovered
			}
		}
	}
	margin := res.Messages / 50
	within := func(what string, n, low, high int) {
		t.Helper()
		if n < low-margin || n > high+margin {
			t.Errorf("%d %s; simulated are %d to %d, with a lateness of up to %s", n, what, low, high, late)
		}
	}
	within("attempts", got.attempts, minTotals.attempts, maxTotals.attempts)
	within("messages succeeded", got.succeeded, minTotals.succeeded, maxTotals.succeeded)
	within("messages succeeded at once", got.atOnce, minTotals.atOnce, maxTotals.atOnce)
	if res.Dead < res.Messages/20 {
		t.Errorf("the scenario shows nothing: %d dead", res.Dead)
	}
	half, low, high := quantile(got.recovered, 0.5), quantile(quick, 0.5), quantile(slow, 0.5)+time.Duration(s.Policy.MaxRetries)*late // each attempt may be late
	if slip := 100 * time.Millisecond; half < low-slip || half > high+slip {
		t.Errorf("half of what failed had succeeded within %s; simulated are %s to %s", half, low, high)
	}
	t.Logf("report: simulated %d attempts, %d dead, half recovered within %s; real %d, %d, %s, with a lateness of %s (99 %%)", res.Attempts, res.Dead,
		time.Duration(res.Recovered.P50).Round(time.Millisecond), got.attempts, got.dead(), half.Round(time.Millisecond), late.Round(time.Millisecond))
}
