package simulate_test

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/simulate"
)

func mustRun(t *testing.T, s simulate.Scenario) *simulate.Result {
	t.Helper()
	r, err := simulate.Run(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	if r.Succeeded+r.Dead != r.Messages {
		t.Errorf("%d succeeded and %d are in the DLQ, of %d", r.Succeeded, r.Dead, r.Messages)
	}
	arrived, attempts, failed, dead := 0, 0, 0, 0
	for _, b := range r.Series {
		arrived, attempts, failed, dead = arrived+b.Arrived, attempts+b.Attempts, failed+b.Failed, dead+b.Dead
	}
	if arrived != r.Messages || attempts != r.Attempts || dead != r.Dead || failed != r.Attempts-r.Succeeded {
		t.Errorf("the bars have %d messages, %d attempts, %d failures, %d dead; in all there are %d, %d, %d, %d",
			arrived, attempts, failed, dead, r.Messages, r.Attempts, r.Attempts-r.Succeeded, r.Dead)
	}
	return r
}

var steps = redeliver.Policy{MaxRetries: 3, Backoff: redeliver.Steps(time.Second, 10*time.Second, 95*time.Second), Levels: []time.Duration{time.Second, 5 * time.Second, 30 * time.Second, time.Minute}}

func TestAllSucceed(t *testing.T) {
	r := mustRun(t, simulate.Scenario{})
	if r.Messages != 36_000 || r.FirstAttempt != r.Messages || r.Attempts != r.Messages || r.Retries != 0 || r.PeakLoad != 10 {
		t.Errorf("%d messages, %d at once, %d attempts, %d retries, peak load %d", r.Messages, r.FirstAttempt, r.Attempts, r.Retries, r.PeakLoad)
	}
	if r.ToSuccess.Max != 0 || len(r.Series) != simulate.DefaultBars {
		t.Errorf("%v, %d bars", r.ToSuccess, len(r.Series))
	}
}

// One message never succeeds. Its times are known to the millisecond.
func TestOneMessageThatNeverSucceeds(t *testing.T) {
	r := mustRun(t, simulate.Scenario{Policy: steps, Duration: time.Second, Rate: 1, PoisonShare: 1, Bars: 1, HandlerTime: 2 * time.Second})
	if r.Attempts != 4 || r.Retries != 3 || r.DeadBy[redeliver.ReasonExhausted] != 1 || r.Failures[simulate.ErrPoison.Error()] != 4 {
		t.Errorf("%d attempts, %d retries, dead: %v, failures: %v", r.Attempts, r.Retries, r.DeadBy, r.Failures)
	}
	if want := simulate.Seconds((4*2 + 1 + 10 + 95) * time.Second); r.Done != want {
		t.Errorf("done after %s, want %s", r.Done, want)
	}
	// 1s; 10s = 5s + 5s; 95s = 1m + 30s + 5s.
	for i, want := range []struct {
		passed int
		sum    float64
	}{{1, 1}, {3, 15}, {1, 30}, {1, 60}} {
		sum := 0.0
		for _, b := range r.Series {
			sum += b.Waiting[i]
		}
		if l := r.Levels[i]; l.Passed != want.passed || math.Abs(sum-want.sum) > 1e-9 || l.Peak != 1 {
			t.Errorf("level %s: %d passed, were there %.3f s, peak %g; want %+v", l.Name, l.Passed, sum, l.Peak, want)
		}
	}
	for _, o := range r.Operations {
		want := map[string]simulate.Operations{
			"kafka":    {Broker: "kafka", Writes: 7, Reads: 7},
			"rabbitmq": {Broker: "rabbitmq", Writes: 7, Reads: 7, Acks: 7},
			"sqs":      {Broker: "sqs", Writes: 1, Reads: 1, Acks: 1, Cost: 3 * 0.40 / 1e6},
		}[o.Broker]
		if o != want {
			t.Errorf("%+v, want %+v", o, want)
		}
	}
}

func TestAnOutage(t *testing.T) {
	r := mustRun(t, simulate.Scenario{
		Policy: steps, Duration: time.Minute, Rate: 100, Outages: []simulate.Outage{{From: 10 * time.Second, To: 20 * time.Second}},
	})
	if r.Dead != 0 || r.FirstAttempt != 5000 || r.Failures[simulate.ErrOutage.Error()] != r.Retries {
		t.Errorf("%d dead, %d at once, %v failures, %d retries", r.Dead, r.FirstAttempt, r.Failures, r.Retries)
	}
	// A message that fails at 10 s is tried again at 11 s and 21 s; the last at 20.99 s succeeds at once.
	if r.Recovered.Max != simulate.Seconds(11*time.Second) || r.ToSuccess.P50 != 0 || r.PeakLoad != 200 {
		t.Errorf("recovered after at most %s, peak load %d", r.Recovered.Max, r.PeakLoad)
	}
	half := mustRun(t, simulate.Scenario{
		Policy: steps, Duration: time.Minute, Rate: 100, Outages: []simulate.Outage{{From: 10 * time.Second, To: 20 * time.Second, Share: 0.5}},
	})
	if share := float64(6000-half.FirstAttempt) / 1000; share < 0.4 || share > 0.6 {
		t.Errorf("%.2f of the messages failed in an outage of one half", share)
	}
}

func TestSharesAreMet(t *testing.T) {
	r := mustRun(t, simulate.Scenario{Policy: redeliver.Policy{MaxRetries: redeliver.NoRetries}, Rate: 50, PoisonShare: 0.1, ErrorShare: 0.2})
	if share := float64(r.Dead) / float64(r.Messages); share < 0.27 || share > 0.29 {
		t.Errorf("%.3f are in the DLQ, want 0.1 + 0.9 * 0.2", share)
	}
	s := simulate.Scenario{Rate: 50, PoisonShare: 0.1, ErrorShare: 0.2}
	if a, b := mustRun(t, s), mustRun(t, s); !reflect.DeepEqual(a.Series, b.Series) {
		t.Error("two runs of one scenario differ")
	}
	other := s
	other.Seed = 1
	if a, b := mustRun(t, s), mustRun(t, other); reflect.DeepEqual(a.Series, b.Series) {
		t.Error("the seed changes nothing")
	}
}

// Run calls the policy's own functions with the state.
func TestThePolicyDecides(t *testing.T) {
	p := redeliver.Policy{
		MaxRetries: 5, Immediate: 1, Backoff: redeliver.Fixed(time.Minute), MaxAge: 150 * time.Second,
		Classify: func(err error) redeliver.Class {
			if errors.Is(err, simulate.ErrOutage) {
				return redeliver.Class{Kind: redeliver.KindPostpone}
			}
			return redeliver.Class{}
		},
	}
	r := mustRun(t, simulate.Scenario{Policy: p, Duration: time.Second, Rate: 1, PoisonShare: 1})
	// Two attempts run at once, the next ones after 1 and 2 minutes. A retry after 3 minutes would exceed MaxAge.
	if r.Attempts != 4 || r.DeadBy[redeliver.ReasonExpired] != 1 {
		t.Errorf("%d attempts, dead: %v", r.Attempts, r.DeadBy)
	}
	p.MaxAge = 0
	out := mustRun(t, simulate.Scenario{Policy: p, Duration: time.Second, Rate: 1, Outages: []simulate.Outage{{To: time.Hour}}})
	if out.Dead != 0 || out.Recovered.Max < simulate.Seconds(time.Hour) {
		t.Errorf("%d postponed messages are in the DLQ, and the others recovered after %s", out.Dead, out.Recovered.Max)
	}
	long := mustRun(t, simulate.Scenario{Policy: p, Duration: time.Second, Rate: 1, Outages: []simulate.Outage{{To: 48 * time.Hour}}})
	if long.DeadBy[redeliver.ReasonExpired] != 1 || long.Done > simulate.Seconds(25*time.Hour) {
		t.Errorf("postponed forever: %+v", long.DeadBy)
	}
}

// A message that waits too long for a slot expires, and does not use a slot.
func TestMessagesThatWaitForTooLongExpire(t *testing.T) {
	p := redeliver.Policy{MaxAge: 10 * time.Second}
	r := mustRun(t, simulate.Scenario{Policy: p, Duration: 100 * time.Second, Rate: 2, HandlerTime: time.Second, Concurrency: 1})
	if dead := r.DeadBy[redeliver.ReasonExpired]; dead != r.Dead || r.Attempts+dead != 200 || dead < 85 || dead > 95 || r.ToSuccess.Max > simulate.Seconds(11*time.Second) {
		t.Errorf("%d attempts, dead %v, the latest success after %s; want half dead without an attempt, and none later than 11s", r.Attempts, r.DeadBy, r.ToSuccess.Max)
	}
}

func TestConcurrencyBoundsAttempts(t *testing.T) {
	r := mustRun(t, simulate.Scenario{Duration: 10 * time.Second, Rate: 100, HandlerTime: 50 * time.Millisecond, Concurrency: 2})
	if r.PeakLoad != 40 || r.Done != simulate.Seconds(25010*time.Millisecond) {
		t.Errorf("at most %d in a second, done after %s; want 40, after 25.01 s: one slot is idle at first", r.PeakLoad, r.Done)
	}
}

// Short bars and a long run make the bars longer, and no message is lost.
func TestBarsGrow(t *testing.T) {
	p := redeliver.Policy{MaxRetries: 2, Backoff: redeliver.Fixed(10 * time.Hour)}
	r := mustRun(t, simulate.Scenario{Policy: p, Duration: time.Second, Rate: 10, PoisonShare: 1, Bars: 100})
	sum := 0.0
	for _, b := range r.Series {
		for _, w := range b.Waiting {
			sum += w * time.Duration(b.To-b.From).Seconds()
		}
	}
	if want := 10 * 20 * 3600.0; math.Abs(sum-want) > 1e-3 || len(r.Series) > 10_000 {
		t.Errorf("messages waited %.3f s in all, want %g; %d bars", sum, want, len(r.Series))
	}
}

func TestBadScenarios(t *testing.T) {
	_, err := simulate.Run(t.Context(), simulate.Scenario{
		Policy: redeliver.Policy{MaxRetries: -2}, Duration: -1, Rate: math.NaN(), PoisonShare: 1.5, ErrorShare: -0.1, HandlerTime: -1, Concurrency: -1, Bars: -1,
		Outages: []simulate.Outage{{From: 2, To: 1, Share: 2}},
	})
	if !errors.Is(err, redeliver.ErrConfig) {
		t.Fatal(err)
	}
	for _, field := range []string{"Policy.MaxRetries", "Duration", "Rate", "PoisonShare", "ErrorShare", "HandlerTime", "Concurrency", "Bars", "Outages[0].Share", "Outages[0].To"} {
		if !strings.Contains(err.Error(), field+" is ") {
			t.Errorf("%s is not in the error: %v", field, err)
		}
	}
	if _, err := simulate.Run(t.Context(), simulate.Scenario{Duration: 24 * time.Hour, Rate: 1e9}); !errors.Is(err, redeliver.ErrConfig) {
		t.Errorf("too many messages: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := simulate.Run(ctx, simulate.Scenario{}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

func TestTimesAreSecondsInJSON(t *testing.T) {
	r := mustRun(t, simulate.Scenario{Policy: steps, Duration: time.Second, Rate: 1, PoisonShare: 1, Bars: 2})
	text, err := json.Marshal(r)
	if err != nil || !strings.Contains(string(text), `"done":106`) || !strings.Contains(string(text), `"to":0.5`) {
		t.Errorf("%s, %v", text, err)
	}
}

// A day of a hundred thousand messages, a third of which fail once or more. The benchmark has a million.
func TestADay(t *testing.T) {
	r := mustRun(t, simulate.Scenario{
		Policy: redeliver.Policy{MaxRetries: 16, Backoff: redeliver.RocketMQ()}, Duration: 24 * time.Hour, Rate: 1e5 / 86400.0,
		ErrorShare: 0.3, PoisonShare: 0.001, Outages: []simulate.Outage{{From: 6 * time.Hour, To: 8 * time.Hour}},
	})
	if r.Messages != 100_000 || r.Dead == 0 {
		t.Errorf("%d messages, %d dead", r.Messages, r.Dead)
	}
}

func BenchmarkAMillionMessages(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := simulate.Run(b.Context(), simulate.Scenario{
			Policy: redeliver.Policy{MaxRetries: 16, Backoff: redeliver.RocketMQ()}, Duration: 24 * time.Hour, Rate: 1e6 / 86400.0,
			ErrorShare: 0.3, PoisonShare: 0.001, Outages: []simulate.Outage{{From: 6 * time.Hour, To: 8 * time.Hour}},
		}); err != nil {
			b.Fatal(err)
		}
	}
}
