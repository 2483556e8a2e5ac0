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

// scenario is a few seconds of an hour: 300 messages, some of them poison, and an
// attempt in ten with bad luck.
func scenario(outages ...simulate.Outage) simulate.Scenario {
	return simulate.Scenario{
		Policy: redeliver.Policy{
			MaxRetries: 3, Backoff: redeliver.ExponentialBackoff{Base: 200 * time.Millisecond, Max: 800 * time.Millisecond},
			Levels: []time.Duration{200 * time.Millisecond, 400 * time.Millisecond, 800 * time.Millisecond},
		},
		For: 6 * time.Second, Rate: 50, Poison: 0.05, Errors: 0.1, Outages: outages, Seed: 7,
	}
}

// way is what becomes of one message: when each attempt begins, counted from the first
// message, how long it waits behind each, and how it ends.
type way struct {
	began  []time.Duration
	waits  []time.Duration
	places []string // on which it waits
	reason redeliver.Reason
	ended  bool
}

// alone plays one message as package simulate does, but for itself: attempts take no
// time, and none waits for another.
func alone(s *simulate.Scenario, id int) (w way) {
	epoch := time.Unix(0, 0).UTC()
	at := arrives(s, id)
	st := redeliver.State{ID: strconv.Itoa(id), Source: redeliver.Source{Known: true, Timestamp: epoch.Add(at)}}
	for {
		w.began = append(w.began, at)
		d := s.Policy.Decide(st, s.Fails(uint32(id), st.Attempt(), at), epoch.Add(at))
		if w.ended = d.Action != redeliver.RetryLater; w.ended {
			w.reason = d.State.Reason
			return w
		}
		w.waits = append(w.waits, d.Delay)
		st, at = d.State, d.State.Due.Sub(epoch)
	}
}

func arrives(s *simulate.Scenario, id int) time.Duration {
	return time.Duration(math.Round(float64(id) / s.Rate * float64(time.Second)))
}

// sum is what all ways come to, in the words of a Result.
type sum struct {
	attempts, retries, atOnce, succeeded int
	deadBy                               map[redeliver.Reason]int
	recovered                            []time.Duration
}

func sumOf(s *simulate.Scenario, ways []way) sum {
	all := sum{deadBy: make(map[redeliver.Reason]int)}
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
			all.recovered = append(all.recovered, w.began[len(w.began)-1]-arrives(s, id))
		}
	}
	slices.Sort(all.recovered)
	return all
}

func (s *sum) dead() (n int) {
	for _, d := range s.deadBy {
		n += d
	}
	return n
}

// quantile of sorted times.
func quantile(all []time.Duration, q float64) time.Duration {
	return all[max(0, int(math.Ceil(q*float64(len(all))))-1)]
}

// rehearsal is a scenario on a real Kafka, through middleware.Retry.
type rehearsal struct {
	*testing.T
	s     simulate.Scenario
	began time.Time

	mu      sync.Mutex
	warmed  bool
	ways    []way
	left    int
	changes []redeliver.Event // what a run that does not end has to say
	ended   chan struct{}
}

// rehearse runs a scenario and returns the ways of its messages.
func rehearse(t *testing.T, s simulate.Scenario) []way {
	t.Helper()
	addrs := brokers.RequireKafka(t)
	n := int(s.For.Seconds() * s.Rate)
	r := &rehearsal{T: t, s: s, ways: make([]way, n), left: n, ended: make(chan struct{})}
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
	r.warm(put)
	tick := time.NewTicker(time.Second / time.Duration(s.Rate))
	defer tick.Stop()
	r.mu.Lock()
	r.began = time.Now()
	r.mu.Unlock() // nobody looks at it before the first message
	for id := 0; id < n; {
		for id < n && arrives(&s, id) <= time.Since(r.began) { // a tick may have been missed
			put(strconv.Itoa(id))
			id++
		}
		<-tick.C
	}
	select {
	case <-r.ended:
	case <-time.After(2 * time.Minute):
		r.mu.Lock()
		defer r.mu.Unlock()
		for id, w := range r.ways {
			if !w.ended {
				t.Logf("message %d had attempts at %v, waits %v on %q", id, w.began, w.waits, w.places)
			}
		}
		for _, e := range r.changes {
			t.Logf("%T %+v", e, e)
		}
		t.Fatalf("%d of %d messages have not ended", r.left, n)
	}
	return r.ways
}

// warmer is the id of messages that are no part of the scenario.
const warmer = "before"

// warm returns when the group reads, so that the first messages are not late by that.
func (r *rehearsal) warm(put func(id string)) {
	tick, over := time.NewTicker(100*time.Millisecond), time.After(2*time.Minute)
	defer tick.Stop()
	for reads := false; !reads; {
		put(warmer)
		select {
		case <-tick.C:
		case <-over:
			r.Fatal("nobody reads")
		}
		r.mu.Lock()
		reads = r.warmed
		r.mu.Unlock()
	}
}

func (r *rehearsal) handle(msg *message.Message) error {
	now := time.Now()
	st, _ := redeliver.FromContext(msg.Context())
	r.mu.Lock()
	defer r.mu.Unlock()
	id, err := strconv.Atoi(msg.UUID)
	if err != nil { // of warm
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

func (r *rehearsal) event(e redeliver.Event) {
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

// simulated is what package simulate says, which must be what its messages come to
// when each is played alone.
func simulated(t *testing.T, s simulate.Scenario) (*simulate.Result, []way) {
	t.Helper()
	res, err := simulate.Run(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	ways := make([]way, res.Messages)
	for id := range ways {
		ways[id] = alone(&s, id)
	}
	all := sumOf(&s, ways)
	if all.attempts != res.Attempts || all.retries != res.Retries || all.atOnce != res.AtOnce || all.succeeded != res.Succeeded || !maps.Equal(all.deadBy, res.DeadBy) {
		t.Fatalf("the messages alone come to %+v, together to %+v", all, res)
	}
	return res, ways
}

// Where nothing depends on the time, a real run is what was simulated: every message has
// the same attempts, the same waits to the nanosecond, on the same levels, and the same
// end.
func TestASimulationIsWhatARealRunDoes(t *testing.T) {
	t.Parallel()
	s := scenario()
	res, want := simulated(t, s)
	got := rehearse(t, s)
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
		t.Errorf("nothing to see: %d dead, %d retries", res.Dead, res.Retries)
	}
	// A message that was a moment late for its level waits on a shorter one. Their number depends on the
	// machine.
	ladder := delayqueue.NewLadder(s.Policy)
	passed, exactly, all := make(map[string]int), 0, 0
	for id, w := range got {
		for i, place := range w.places {
			name := place[strings.LastIndexByte(place, '.')+1:]
			level, _ := delayqueue.ParseLevel(name) // 0 of the way back
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
			t.Errorf("%d messages waited on %s, simulated are %d", passed[l.Name], l.Name, l.Passed)
		}
		levels = append(levels, fmt.Sprintf("%s %d (%d)", l.Name, l.Passed, passed[l.Name]))
	}
	t.Logf("report: simulated and real are the same: %d messages, %d attempts, %d dead; on levels (real in brackets) %s; %d of %d waits on the level that was planned",
		res.Messages, res.Attempts, res.Dead, strings.Join(levels, ", "), exactly, all)
}

// lateness is by how much real attempts began behind the simulated ones, but for one of a hundred.
func lateness(got, want []way) time.Duration {
	var behind []time.Duration
	for id, w := range got {
		for i := range min(len(w.began), len(want[id].began)) {
			behind = append(behind, w.began[i]-want[id].began[i])
		}
	}
	slices.Sort(behind)
	return max(0, quantile(behind, 0.99))
}

// With an outage the time counts: an attempt that a broker delivers late may begin behind
// it. So the real run must lie between what is simulated without lateness and with as
// much as was measured, within a fiftieth of the messages.
func TestASimulatedOutageIsWhatARealRunDoes(t *testing.T) {
	t.Parallel()
	outage := simulate.Outage{From: 2 * time.Second, To: 4 * time.Second}
	s := scenario(outage)
	res, want := simulated(t, s)
	ways := rehearse(t, s)
	late := lateness(ways, want)
	// On a machine that stood still for the outage nobody met it, and there is nothing to compare.
	for again := 0; late > 500*time.Millisecond && again < 4; again++ {
		t.Logf("rehearsed again, with a lateness of %s", late)
		ways = rehearse(t, s)
		late = lateness(ways, want)
	}
	got := sumOf(&s, ways)
	// An attempt that is late meets an outage that is earlier: the beginning of it by as
	// much as the machine was late then, and its end by as much as it was late then.
	const steps = 4
	least, most := sumOf(&s, want), sumOf(&s, want)
	quick, slow := least.recovered, least.recovered
	for from := range steps + 1 {
		for to := range steps + 1 {
			earlier := simulate.Outage{From: max(0, outage.From-late*time.Duration(from)/steps), To: outage.To - late*time.Duration(to)/steps}
			if earlier.To <= earlier.From {
				continue
			}
			shifted := scenario(earlier)
			_, moved := simulated(t, shifted)
			all := sumOf(&s, moved)
			least.attempts, most.attempts = min(least.attempts, all.attempts), max(most.attempts, all.attempts)
			least.succeeded, most.succeeded = min(least.succeeded, all.succeeded), max(most.succeeded, all.succeeded)
			least.atOnce, most.atOnce = min(least.atOnce, all.atOnce), max(most.atOnce, all.atOnce)
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
	within("attempts", got.attempts, least.attempts, most.attempts)
	within("messages succeeded", got.succeeded, least.succeeded, most.succeeded)
	within("messages succeeded at once", got.atOnce, least.atOnce, most.atOnce)
	if res.Dead < res.Messages/20 {
		t.Errorf("nothing to see: %d dead", res.Dead)
	}
	half, low, high := quantile(got.recovered, 0.5), quantile(quick, 0.5), quantile(slow, 0.5)+time.Duration(s.Policy.MaxRetries)*late // each attempt may be late
	if slip := 100 * time.Millisecond; half < low-slip || half > high+slip {
		t.Errorf("half of what failed had succeeded within %s; simulated are %s to %s", half, low, high)
	}
	t.Logf("report: simulated %d attempts, %d dead, half recovered within %s; real %d, %d, %s, with a lateness of %s (99 %%)", res.Attempts, res.Dead,
		time.Duration(res.Recovered.P50).Round(time.Millisecond), got.attempts, got.dead(), half.Round(time.Millisecond), late.Round(time.Millisecond))
}
