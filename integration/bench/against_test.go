package main

import (
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/redeliver/redeliver/integration/brokers"
)

// Sides that read one topic must not take each other's messages, and the cleanup of a run finds groups by the topic's name.
func TestEverySideInJavaHasAGroupOfItsOwn(t *testing.T) {
	n := names{topic: "t", ours: "t-ours", peer: "t-peer"}
	var groups []string
	for _, s := range []side{ours, peer, springDefault, springTuned, springThreads, rocketDefault, rocketTuned} {
		g := n.group(s)
		if slices.Contains(groups, g) || !strings.HasPrefix(g, n.topic+"-") {
			t.Errorf("%s reads as %s, together with %q", s, g, groups)
		}
		groups = append(groups, g)
	}
}

func TestSidesInJavaGetTheirOptions(t *testing.T) {
	s := spec{Topic: "t", Group: "g", Brokers: []string{"a:1", "b:2"}, Messages: 7, Warm: 5}
	built := &brokers.JavaProject{Java: "java", Classpath: "x"}
	for _, c := range []struct {
		side    side
		failing failing
		want    []string
	}{
		{springDefault, failing{}, []string{"-Dfailing=false", "-Dtuned=false", "-Dthreads=1", "redeliver.bench.SpringSide"}},
		{springTuned, failing{1, always}, []string{"-Dfailing=true", "-Dtuned=true", "-Dthreads=1", "redeliver.bench.SpringSide"}},
		{springThreads, failing{1, always}, []string{"-Dfailing=true", "-Dtuned=true", "-Dthreads=4", "redeliver.bench.SpringSide"}},
		{rocketDefault, failing{1, always}, []string{"-Dfailing=true", "-Dtuned=false", "-Dretries=3", "redeliver.bench.RocketSide"}},
		{rocketTuned, failing{}, []string{"-Dfailing=false", "-Dtuned=true", "-Dretries=3", "redeliver.bench.RocketSide"}},
	} {
		s.Side, s.Failing = c.side, c.failing
		got := javaCommand(built, s)
		for _, word := range append(c.want, "-Dbrokers=a:1,b:2", "-Dtopic=t", "-Dgroup=g", "-Dmessages=7", "-Dwarm=5") {
			if !slices.Contains(got, word) {
				t.Errorf("%s lacks %s: %q", c.side, word, got)
			}
		}
		class := c.want[len(c.want)-1]
		if got[0] != "java" || got[len(got)-1] != class {
			t.Errorf("%s does not run %s: %q", c.side, class, got)
		}
	}
}

func TestTheRatioIsToTheBestOtherSide(t *testing.T) {
	all := []sideConfig{{side: ours, name: "redeliver", messages: 100}, {side: springTuned, name: "a", messages: 100}, {side: springDefault, name: "b", messages: 10}}
	outs := map[side]*outcome{ours: {Seconds: 1}, springTuned: {Seconds: 5}, springDefault: {Seconds: 2}}
	e := &experiment{row: &row{}, progress: io.Discard, result: &rowResult{}}
	e.addRates(all, outs, "ratio", atLeast(4))
	if f := e.result.figure("ratio", "x", nil); !slices.Equal(f.Runs, []float64{5}) || f.Target == nil {
		t.Errorf("the ratio is %v (%v), want 5 with a target", f.Runs, f.Target)
	}
	delete(outs, springTuned) // not verified
	e.addRates(all, outs, "ratio", atLeast(4))
	if f := e.result.figure("ratio", "x", nil); len(f.Runs) != 1 {
		t.Errorf("a run in which one side was not verified has a ratio: %v", f.Runs)
	}
	if f := e.result.figure("b", "msg/s", nil); !slices.Equal(f.Runs, []float64{5, 5}) {
		t.Errorf("the rates of b are %v", f.Runs)
	}
}
