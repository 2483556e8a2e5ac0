package redeliver_test

import (
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/limits"
)

func TestValidPoliciesAreAccepted(t *testing.T) {
	for name, p := range map[string]redeliver.Policy{
		"zero":              {},
		"nothing":           {MaxRetries: redeliver.NoRetries, Timeout: redeliver.NoTimeout},
		"RocketMQ":          {Backoff: redeliver.RocketMQ()},
		"all immediate":     {MaxRetries: 3, Immediate: 3},
		"all of RocketMQ's": {Backoff: redeliver.RocketMQ(), Immediate: 16},
		"most":              {MaxRetries: limits.MaxAttempts, MaxLevels: 64, Timeout: redeliver.MaxWait, Backoff: redeliver.Fixed(redeliver.MaxWait)},
		"least":             {MaxRetries: 1, MaxLevels: 1, Timeout: 1, MaxAge: 1, Backoff: redeliver.Fixed(time.Millisecond)},
		"levels":            {Levels: []time.Duration{time.Millisecond, time.Second, redeliver.MaxWait}},
		"cenkalti":          {Backoff: redeliver.FromBackOff(func() backoff.BackOff { return backoff.NewConstantBackOff(1) })},
		"own backoff":       {Backoff: noDelays{}},
		"one crash":         {MaxCrashes: 1},
		"a hundred crashes": {MaxCrashes: 100},
		"no growth":         {Backoff: redeliver.ExponentialBackoff{Base: 2 * time.Second, Max: 2 * time.Second}},
		"most with jitter":  {Backoff: redeliver.ExponentialBackoff{Max: redeliver.MaxWait - time.Second}},
		"least of guards":   {Outage: redeliver.Outage{MinKeys: 2, Share: 0.1, Probe: 10 * time.Millisecond}},
		"most of guards":    {Outage: redeliver.Outage{Share: 1, Probe: time.Hour, MaxPause: time.Hour}},
	} {
		if err := p.Validate("Policy"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Outages are detected unless Off is set. Other guards are off unless a field is set. The other fields have their defaults.
func TestDefaultsOfGuards(t *testing.T) {
	p := redeliver.Policy{
		Outage: redeliver.Outage{Probe: time.Minute}, DeadLetterRate: redeliver.DeadLetterRate{Probes: 3},
	}
	want := redeliver.Policy{
		Outage:         redeliver.Outage{MinKeys: 20, Share: 0.8, Window: time.Minute, Probe: time.Minute, MaxPause: time.Minute, Probes: 3},
		DeadLetterRate: redeliver.DeadLetterRate{Max: 100, Window: time.Minute, Pause: time.Minute, Probes: 3},
	}.WithDefaults()
	if got := p.WithDefaults(); !reflect.DeepEqual(got, want) || p.Validate("P") != nil {
		t.Errorf("%+v, want %+v; %v", got, want, p.Validate("P"))
	}
	for order, keys := range map[redeliver.Order]int{redeliver.OrderFirstAttempts: 20, redeliver.OrderThroughRetries: 20, redeliver.OrderBlocking: 3} {
		if o := (redeliver.Policy{Order: order}).WithDefaults().Outage; o.MinKeys != keys || o.MaxPause != 30*time.Second || o.Probe != time.Second {
			t.Errorf("%s: %+v", order, o)
		}
	}
	off := redeliver.Policy{Outage: redeliver.Outage{Off: true}}
	if o := off.WithDefaults().Outage; !o.Off || o != off.Outage || off.Validate("P") != nil {
		t.Errorf("off is %+v, %v", o, off.Validate("P"))
	}
	if (redeliver.Policy{}).WithDefaults().Outage.Off || (redeliver.Policy{}).WithDefaults().DeadLetterRate != (redeliver.DeadLetterRate{}) {
		t.Error("outages alone are detected by default")
	}
	if p.Fingerprint() != (redeliver.Policy{}).Fingerprint() {
		t.Error("guards plan no waits, and change no schedule")
	}
}

// Each invalid value has one problem, which names the field, the value and the rule.
func TestInvalidPoliciesAreRefused(t *testing.T) {
	ms := time.Millisecond
	for want, p := range map[string]redeliver.Policy{
		"P.MaxRetries is -2: must be from 1 to 1000000, 0 for the default, or NoRetries":                                        {MaxRetries: -2},
		"P.MaxRetries is 1000001: must be from 1 to 1000000, 0 for the default, or NoRetries":                                   {MaxRetries: limits.MaxAttempts + 1},
		"P.Immediate is -1: must be from 0 to MaxRetries, 3: immediate tries are retries":                                       {Immediate: -1},
		"P.Immediate is 4: must be from 0 to MaxRetries, 3: immediate tries are retries":                                        {Immediate: 4},
		"P.Immediate is 1: must be from 0 to MaxRetries, 0: immediate tries are retries":                                        {MaxRetries: redeliver.NoRetries, Immediate: 1},
		"P.MaxTimeout is 4m0s: must be at least Timeout, 5m0s, or 0 for four times that":                                        {MaxTimeout: 4 * time.Minute},
		"P.Timeout is -1s: must be positive, 0 for the default, or NoTimeout":                                                   {Timeout: -time.Second},
		"P.Timeout is 2562047h47m16.854775807s: must not be longer than 8784h0m0s":                                              {Timeout: math.MaxInt64},
		"P.MaxTimeout is 2562047h47m16.854775807s: must not be longer than 8784h0m0s":                                           {MaxTimeout: math.MaxInt64},
		"P.Rate.PerSecond is 0: must be from 0.000001 to 1000000, or 0 without a Burst for no bound":                            {Rate: redeliver.Rate{Burst: 1}},
		"P.Rate.PerSecond is NaN: must be from 0.000001 to 1000000, or 0 without a Burst for no bound":                          {Rate: redeliver.Rate{PerSecond: math.NaN(), Burst: 1}},
		"P.Rate.Burst is -1: must be from 1 to 1000000, or 0 for the default":                                                   {Rate: redeliver.Rate{PerSecond: 1, Burst: -1}},
		"P.MaxAge is -1s: must not be negative; 0 for no bound":                                                                 {MaxAge: -time.Second},
		"P.MaxCrashes is -1: must be from 1 to 100, 0 for the default":                                                          {MaxCrashes: -1},
		"P.MaxCrashes is 101: must be from 1 to 100, 0 for the default":                                                         {MaxCrashes: 101},
		"P.Outage.MinKeys is 1: must be from 2 to 1000, or 0 for the default":                                                   {Outage: redeliver.Outage{MinKeys: 1}},
		"P.Outage.Share is NaN: must be from 0.1 to 1, or 0 for the default":                                                    {Outage: redeliver.Outage{Share: math.NaN()}},
		"P.Outage.Share is 1.1: must be from 0.1 to 1, or 0 for the default":                                                    {Outage: redeliver.Outage{Share: 1.1}},
		"P.Outage.Window is 1ms: must be from 1s to 1h0m0s, or 0 for the default":                                               {Outage: redeliver.Outage{Window: ms}},
		"P.Outage.MaxPause is 2h0m0s: must be from 10ms to 1h0m0s, or 0 for the default":                                        {Outage: redeliver.Outage{MaxPause: 2 * time.Hour}},
		"P.Outage.Probe is 2s: must be from 10ms to MaxPause, 1s, or 0 for the default":                                         {Outage: redeliver.Outage{Probe: 2 * time.Second, MaxPause: time.Second}},
		"P.Outage.Probe is 9ms: must be from 10ms to MaxPause, 30s, or 0 for the default":                                       {Outage: redeliver.Outage{Probe: 9 * ms}},
		"P.Outage.Share is 0.09: must be from 0.1 to 1, or 0 for the default":                                                   {Outage: redeliver.Outage{Share: 0.09}},
		"P.Outage.Off is true: must be false if another field of Outage is set":                                                 {Outage: redeliver.Outage{Off: true, MinKeys: 5}},
		"P.Outage.Probes is -1: must be from 1 to 100, or 0 for the default":                                                    {Outage: redeliver.Outage{Probes: -1}},
		"P.DeadLetterRate.Max is -1: must be at least 1, or 0 for the default":                                                  {DeadLetterRate: redeliver.DeadLetterRate{Max: -1}},
		"P.DeadLetterRate.Window is 1ms: must be from 1s to 24h0m0s, or 0 for the default":                                      {DeadLetterRate: redeliver.DeadLetterRate{Window: ms}},
		"P.DeadLetterRate.Pause is 1ns: must be from 10ms to 24h0m0s, or 0 for the default":                                     {DeadLetterRate: redeliver.DeadLetterRate{Pause: 1}},
		"P.DeadLetterRate.Probes is -1: must be at least 1, or 0 for the default":                                               {DeadLetterRate: redeliver.DeadLetterRate{Probes: -1}},
		"P.MaxLevels is -1: must be from 1 to 64, 0 for the default":                                                            {MaxLevels: -1},
		"P.MaxLevels is 65: must be from 1 to 64, 0 for the default":                                                            {MaxLevels: 65},
		"P.Levels[0] is 0s: must be at least 1ms; for retries without a wait use Immediate":                                     {Levels: []time.Duration{0}},
		"P.Levels[1] is 8785h0m0s: must not be longer than 8784h0m0s":                                                           {Levels: []time.Duration{ms, redeliver.MaxWait + time.Hour}},
		"P.Levels[1] is 1.5ms: must be in whole milliseconds":                                                                   {Levels: []time.Duration{ms, 3 * ms / 2}},
		"P.Levels[1] is 1s: must be longer than the level before it, 1s":                                                        {Levels: []time.Duration{time.Second, time.Second}},
		"P.Levels[2] is 2s: must be longer than the level before it, 1m0s":                                                      {Levels: []time.Duration{time.Second, time.Minute, 2 * time.Second}},
		"P.Backoff is without steps: must have at least one delay":                                                              {Backoff: redeliver.Steps()},
		"P.Backoff is 0s: must be at least 1ms; for retries without a wait use Immediate":                                       {Backoff: redeliver.Steps(time.Second, 0)},
		"P.Backoff is -1s: must be at least 1ms; for retries without a wait use Immediate":                                      {Backoff: redeliver.Fixed(-time.Second)},
		"P.Backoff is 2562047h47m16.854775807s: must not be longer than 8784h0m0s":                                              {Backoff: redeliver.Fixed(math.MaxInt64)},
		"P.Backoff is FromBackOff(nil): needs a function that returns a new BackOff":                                            {Backoff: redeliver.FromBackOff(nil)},
		"P.Backoff.Base is -1s: must be at least 1ms; for retries without a wait use Immediate":                                 {Backoff: redeliver.ExponentialBackoff{Base: -time.Second}},
		"P.Backoff.Max is 1s: must not be shorter than Base, 2s":                                                                {Backoff: redeliver.ExponentialBackoff{Base: 2 * time.Second, Max: time.Second}},
		"P.Backoff.Max is 11s: must be at least 12s, because it bounds the delay with its jitter: Base and its share of Jitter": {Backoff: redeliver.ExponentialBackoff{Base: 10 * time.Second, Max: 11 * time.Second, Jitter: 0.2}},
		"P.Backoff.Factor is 0.5: must be from 1 to 100, or 0 for the default, 2":                                               {Backoff: redeliver.ExponentialBackoff{Factor: 0.5}},
		"P.Backoff.Factor is NaN: must be from 1 to 100, or 0 for the default, 2":                                               {Backoff: redeliver.ExponentialBackoff{Factor: math.NaN()}},
		"P.Backoff.Factor is +Inf: must be from 1 to 100, or 0 for the default, 2":                                              {Backoff: redeliver.ExponentialBackoff{Factor: math.Inf(1)}},
		"P.Backoff.Jitter is 1.5: must be a share of the delay, from 0 to 1":                                                    {Backoff: redeliver.ExponentialBackoff{Jitter: 1.5}},
		"P.Backoff.Jitter is -0.1: must be a share of the delay, from 0 to 1":                                                   {Backoff: redeliver.ExponentialBackoff{Jitter: -0.1}},
		"P.Backoff.Jitter is NaN: must be a share of the delay, from 0 to 1":                                                    {Backoff: redeliver.ExponentialBackoff{Jitter: math.NaN()}},
		"P.Backoff.Max is 8785h0m0s: must not be longer than 8784h0m0s":                                                         {Backoff: redeliver.ExponentialBackoff{Max: redeliver.MaxWait + time.Hour}},
		"P.Backoff.Max is 8784h0m0s: must with the jitter, up to Base, 1s, not be longer than 8784h0m0s":                        {Backoff: redeliver.ExponentialBackoff{Max: redeliver.MaxWait}}, // otherwise dead-lettered by chance
	} {
		err := p.Validate("P")
		var ce *redeliver.ConfigError
		if !errors.As(err, &ce) || !errors.Is(err, redeliver.ErrConfig) {
			t.Errorf("want %q, got no ConfigError: %v", want, err)
			continue
		}
		if len(ce.Problems) != 1 || ce.Problems[0].String() != want {
			t.Errorf("problems\n got %v\nwant %s", ce.Problems, want)
		}
		if err.Error() != "configuration refused: "+want {
			t.Errorf("text %q", err)
		}
	}
}

func TestAllProblemsOfAPolicyAreReportedAtOnce(t *testing.T) {
	err := redeliver.Policy{
		MaxRetries: -2, Immediate: 9, Timeout: -2, MaxAge: -1, MaxLevels: 99,
		Backoff: redeliver.ExponentialBackoff{Base: -1}, Levels: []time.Duration{time.Second, -1},
	}.Validate(`Topics["refunds"]`)
	var ce *redeliver.ConfigError
	if !errors.As(err, &ce) {
		t.Fatalf("no ConfigError: %v", err)
	}
	var fields []string
	for _, p := range ce.Problems {
		fields = append(fields, strings.TrimPrefix(p.Field, `Topics["refunds"].`))
	}
	want := []string{"MaxRetries", "Immediate", "Timeout", "MaxAge", "Backoff.Base", "MaxLevels", "Levels[1]", "Levels[1]", "Levels[1]"}
	if !reflect.DeepEqual(fields, want) {
		t.Errorf("fields %q, want %q", fields, want)
	}
}

// Zero means the default in every field. A new field must be filled in by
// WithDefaults, or be listed here with the reason why zero is its default.
func TestWithDefaultsFillsEveryField(t *testing.T) {
	zeroIs := map[string]string{
		"Immediate": "none", "MaxAge": "no bound", "Rate": "no bound", "Classify": "all errors are retried", "Invalid": "all messages are valid",
		"ErrorText": "the Error method", "Order": "OrderFirstAttempts", "Levels": "made by package delayqueue of the backoff's delays",
		"DeadLetterRate": "off",
	}
	v := reflect.ValueOf(redeliver.Policy{}.WithDefaults())
	for i := range v.NumField() {
		name := v.Type().Field(i).Name
		if _, exempt := zeroIs[name]; exempt != v.Field(i).IsZero() {
			t.Errorf("%s is %v, zero is its default: %t", name, v.Field(i), exempt)
		}
		delete(zeroIs, name)
	}
	if len(zeroIs) > 0 {
		t.Errorf("no such fields: %v", zeroIs)
	}
	want := redeliver.Policy{MaxRetries: 3, Backoff: redeliver.Exponential(), Timeout: 5 * time.Minute, MaxTimeout: 20 * time.Minute, MaxLevels: 8, MaxCrashes: 3,
		Outage: redeliver.Outage{MinKeys: 20, Share: 0.8, Window: time.Minute, Probe: time.Second, MaxPause: 30 * time.Second, Probes: 3}}
	if got := (redeliver.Policy{}).WithDefaults(); !reflect.DeepEqual(got, want) {
		t.Errorf("defaults %+v, want %+v", got, want)
	}
}

func TestWithDefaultsKeepsSetFields(t *testing.T) {
	set := redeliver.Policy{
		MaxRetries: redeliver.NoRetries, Immediate: 1, Backoff: redeliver.RocketMQ(), Timeout: redeliver.NoTimeout, MaxAge: time.Hour,
		Levels: []time.Duration{time.Second}, MaxLevels: 2, MaxCrashes: 5, Order: redeliver.OrderNone, Outage: redeliver.Outage{Off: true},
	}
	if got := set.WithDefaults(); !reflect.DeepEqual(got, set) {
		t.Errorf("defaults changed %+v to %+v", set, got)
	}
	if once, twice := (redeliver.Policy{}).WithDefaults(), (redeliver.Policy{}).WithDefaults().WithDefaults(); !reflect.DeepEqual(once, twice) {
		t.Errorf("defaults of defaults are %+v", twice)
	}
}

// ownList is a user's DelayLister that requires n not to be negative.
type ownList struct{ noDelays }

func (ownList) Delays(n int) ([]time.Duration, time.Duration) { return make([]time.Duration, n), 0 }

func TestPolicyListsItsDelays(t *testing.T) {
	s := time.Second
	for name, row := range map[string]struct {
		policy redeliver.Policy
		delays []time.Duration
		jitter time.Duration
		ok     bool
	}{
		"default":                        {redeliver.Policy{}, []time.Duration{s, 2 * s, 4 * s}, s, true},
		"one immediate":                  {redeliver.Policy{Immediate: 1}, []time.Duration{s, 2 * s}, s, true},
		"none":                           {redeliver.Policy{MaxRetries: redeliver.NoRetries}, []time.Duration{}, s, true},
		"more immediate":                 {redeliver.Policy{MaxRetries: redeliver.NoRetries, Immediate: 2}, []time.Duration{}, s, true}, // refused by Validate
		"steps":                          {redeliver.Policy{Backoff: redeliver.Steps(s, 5*s)}, []time.Duration{s, 5 * s, 5 * s}, 0, true},
		"more immediate, own":            {redeliver.Policy{MaxRetries: 1, Immediate: 2, Backoff: ownList{}}, []time.Duration{}, 0, true},
		"a backoff that lists no delays": {redeliver.Policy{Backoff: noDelays{}}, nil, 0, false},
	} {
		delays, jitter, ok := row.policy.Delays()
		if !reflect.DeepEqual(delays, row.delays) || jitter != row.jitter || ok != row.ok {
			t.Errorf("%s: %v + %s, %t; want %v + %s, %t", name, delays, jitter, ok, row.delays, row.jitter, row.ok)
		}
	}
}

// Equal schedules have equal fingerprints, and each field that changes the
// schedule changes it.
func TestFingerprintNamesTheSchedule(t *testing.T) {
	base := redeliver.Policy{}
	same := map[string]redeliver.Policy{
		"itself":                base,
		"with defaults":         base.WithDefaults(),
		"another timeout":       {Timeout: time.Hour},
		"other functions":       {ErrorText: error.Error, Classify: func(error) redeliver.Class { return redeliver.Class{} }},
		"spelt out":             {MaxRetries: 3, Backoff: redeliver.ExponentialBackoff{Base: time.Second, Max: time.Minute}},
		"a max out of reach":    {Backoff: redeliver.ExponentialBackoff{Max: time.Hour}},
		"levels that are empty": {Levels: []time.Duration{}},
	}
	for name, p := range same {
		if got, want := p.Fingerprint(), base.Fingerprint(); got != want {
			t.Errorf("%s: fingerprint %s, want %s", name, got, want)
		}
	}
	seen := map[string]string{base.Fingerprint(): "default"}
	for name, p := range map[string]redeliver.Policy{
		"retries":          {MaxRetries: 4},
		"no retries":       {MaxRetries: redeliver.NoRetries},
		"immediate":        {Immediate: 1},
		"age":              {MaxAge: time.Hour},
		"backoff":          {Backoff: redeliver.Fixed(time.Second)},
		"steps":            {Backoff: redeliver.Steps(time.Second, 2*time.Second, 4*time.Second)}, // as default, without jitter
		"base":             {Backoff: redeliver.ExponentialBackoff{Base: 2 * time.Second}},
		"silent backoff":   {Backoff: noDelays{}},
		"silent backoff 2": {Backoff: tenSeconds{}},
		"levels":           {Levels: []time.Duration{time.Second}},
		"number of levels": {MaxLevels: 3},
	} {
		f := p.Fingerprint()
		if other, dup := seen[f]; dup {
			t.Errorf("%s has the fingerprint of %s", name, other)
		}
		if seen[f] = name; len(f) != 16 {
			t.Errorf("%s: fingerprint %q, want 16 hex digits", name, f)
		}
	}
}
