//go:build prove

package main

import (
	"context"
	"encoding/xml"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redeliver/redeliver/integration/brokers"
)

// TestTrial runs all services through an outage of two seconds on Kafka. Its counts must add up, and its report must be
// readable. If services have not begun when the outage is over, it repeats the run with an outage four times as long.
func TestTrial(t *testing.T) {
	t.Parallel()
	brokers.RequireKafka(t)
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	all := services()
	for i := range all {
		if p := &all[i].policy; p.Outage.On() {
			p.Outage.MaxPause = time.Second // a test does not wait for 30
		}
	}
	scale := 0.04
	r := measure(ctx, t, all, scale)
	for ; slices.ContainsFunc(r.Services, func(s outcome) bool { return s.Calls == 0 }) && scale < 0.5; r = measure(ctx, t, all, scale) {
		scale *= 4
	}
	for _, s := range r.Services {
		if s.Lost > 0 || s.Done+s.Dead-s.Both != s.Messages {
			t.Errorf("%s: of %d messages %d are handled, %d in the DLQ, %d both and %d lost", s.Name, s.Messages, s.Done, s.Dead, s.Both, s.Lost)
		}
		if s.Calls == 0 {
			t.Errorf("%s: no call in the outage: the run shows nothing", s.Name)
		}
		if last := s.samples[len(s.samples)-1]; last.backlog != 0 || last.dead != s.Dead {
			t.Errorf("%s: %d wait and %d are dead at the end of the chart, and %d in the DLQ", s.Name, last.backlog, last.dead, s.Dead)
		}
	}
	p := page{Scale: scale, Began: time.Now(), Machine: machine(), Libraries: libraries(), Services: all, Results: []*result{r}}
	var text strings.Builder
	if err := p.write(&text); err != nil {
		t.Error(err)
	}
	for _, want := range []string{"| lost, handled twice, handled and dead | 0, 0, 0 |", "](outage-run-kafka.svg)", "This is a trial"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the page lacks %q:\n%s", want, text.String())
		}
	}
	for d := xml.NewDecoder(strings.NewReader(string(r.svg()))); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("the chart: %v", err)
		}
	}
}

func measure(ctx context.Context, t *testing.T, all []service, scale float64) *result {
	t.Helper()
	var said strings.Builder
	r, err := runBroker(ctx, "kafka", all, scale, &said)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("report: %s", strings.ReplaceAll(said.String(), "\n", "; "))
	return r
}

// The figures of an invented run with one message of each outcome.
func TestFigures(t *testing.T) {
	tl := newTimeline(1, 0.05) // 6 s
	tl.began = time.Now().Add(-tl.load)
	a := newAccount(tl)
	a.write(0, tl.messages)
	a.succeed(0)
	a.succeed(0) // twice
	a.addDeadLetter(1)
	a.succeed(2)
	a.addDeadLetter(2) // both
	a.addDeadLetter(3) // reported, but not in the DLQ
	f := a.figures(map[int]int{1: 2, 2: 1})
	if f.Messages != 6 || f.Done != 2 || f.Dead != 2 || f.Lost != 3 || f.Twice != 1 || f.Both != 1 || f.Copies != 1 {
		t.Errorf("%+v", f)
	}
	if a.sample(0) {
		t.Error("sample reports that all is settled while two messages are open")
	}
	a.succeed(4)
	a.succeed(5)
	if !a.sample(0) {
		t.Error("sample does not report that all is settled")
	}
	// Those of a key are 100 apart.
	b := newAccount(newTimeline(100, 0.05))
	b.write(0, 300)
	for _, id := range []int{0, 200, 100, 1, 101} {
		b.succeed(id)
	}
	if f := b.figures(nil); f.Overtook != 1 {
		t.Errorf("%d were overtaken, want the one with number 100", f.Overtook)
	}
}

func TestWrongCalls(t *testing.T) {
	for _, args := range [][]string{{"--brokers", "kafka,pulsar"}, {"--scale", "0"}, {"more"}, {"--no-such-flag"}} {
		if err := run(t.Context(), args, io.Discard, io.Discard); !errors.Is(err, errUsage) {
			t.Errorf("%q: %v, want errUsage", args, err)
		}
	}
}
