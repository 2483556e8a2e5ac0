package cli

import (
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/redeliver/redeliver"
)

// Only the detection of outages is on by default, and an invalid value is refused.
func TestRunGuards(t *testing.T) {
	read := func(args ...string) redeliver.Policy {
		t.Helper()
		var g guardFlags
		flags := pflag.NewFlagSet("run", pflag.ContinueOnError)
		g.flags(flags)
		if err := flags.Parse(args); err != nil {
			t.Fatal(err)
		}
		var p redeliver.Policy
		g.setFields(&p)
		return p
	}
	if p := read("--outage=false"); !p.Outage.Off {
		t.Errorf("--outage=false is %+v", p.Outage)
	}
	if p := read(); p.Outage.Off || p.DeadLetterRate != (redeliver.DeadLetterRate{}) || p.Rate != (redeliver.Rate{}) {
		t.Errorf("no caller asked for %+v", p)
	}
	p := read("--dead-letter-rate", "50")
	if p.Outage.Off || p.DeadLetterRate.Max != 50 || p.Validate("Policy") != nil {
		t.Errorf("%+v: %v", p, p.Validate("Policy"))
	}
	p = read("--rate-limit", "2.5", "--burst", "4")
	if want := (redeliver.Rate{PerSecond: 2.5, Burst: 4}); p.Rate != want || p.Validate("Policy") != nil {
		t.Errorf("%+v, want %+v: %v", p.Rate, want, p.Validate("Policy"))
	}
	p = read("--burst", "4")
	if err := p.Validate("Policy"); err == nil || !strings.Contains(inFlags(err), "--rate-limit is 0") {
		t.Errorf("a burst without a rate is accepted: %v", err)
	}
	p = read("--dead-letter-rate", "-1")
	if err := p.Validate("Policy"); err == nil || !strings.Contains(err.Error(), "Policy.DeadLetterRate.Max") {
		t.Errorf("a negative rate is not refused: %v", err)
	}
}
