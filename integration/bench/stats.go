package main

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// figure is one quantity over the runs.
type figure struct {
	Name    string    `json:"name"`
	Unit    string    `json:"unit"`
	Runs    []float64 `json:"runs"`
	Median  float64   `json:"median"`
	Min     float64   `json:"min"`
	Max     float64   `json:"max"`
	Target  *target   `json:"target,omitempty"`
	Verdict string    `json:"verdict,omitempty"`
	// Of a row that grows: what was measured, and at which point.
	Quantity string  `json:"quantity,omitempty"`
	At       float64 `json:"at,omitempty"`
}

// target is a bound that a figure should keep.
type target struct {
	AtLeast bool    `json:"at_least"` // else at most
	Value   float64 `json:"value"`
}

func atLeast(v float64) *target { return &target{true, v} }
func atMost(v float64) *target  { return &target{false, v} }

func (t target) kept(v float64) bool {
	if t.AtLeast {
		return v >= t.Value
	}
	return v <= t.Value
}

func (t target) text(unit string) string {
	if t.AtLeast {
		return "≥" + number(t.Value, unit)
	}
	return "≤" + number(t.Value, unit)
}

// Verdicts. A range that crosses the target shows nothing, whatever its median is.
const (
	verdictMet      = "met"
	verdictMissed   = "MISSED"
	verdictNotShown = "not shown"
)

func (f *figure) finish() {
	sorted := slices.Sorted(slices.Values(f.Runs))
	if len(sorted) == 0 {
		f.Verdict = ""
		if f.Target != nil {
			f.Verdict = verdictNotShown
		}
		return
	}
	f.Min, f.Max, f.Median = sorted[0], sorted[len(sorted)-1], sorted[len(sorted)/2]
	if n := len(sorted); n%2 == 0 {
		f.Median = (sorted[n/2-1] + sorted[n/2]) / 2
	}
	if f.Target == nil {
		return
	}
	switch low, high := f.Target.kept(f.Min), f.Target.kept(f.Max); {
	case low && high:
		f.Verdict = verdictMet
	case !low && !high:
		f.Verdict = verdictMissed
	default:
		f.Verdict = verdictNotShown
	}
}

// text is the median and the range.
func (f *figure) text() string {
	switch {
	case len(f.Runs) == 0:
		return "-"
	case f.Min == f.Max:
		return number(f.Median, f.Unit)
	default:
		return fmt.Sprintf("%s (%s–%s)", number(f.Median, f.Unit), number(f.Min, ""), number(f.Max, ""))
	}
}

// number writes three to four digits, with commas, and the unit: "248,100 msg/s", "1.24x", "9.3 ms".
func number(v float64, unit string) string {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return "-"
	}
	var s string
	switch a := math.Abs(v); {
	case a >= 100_000:
		s = commas(math.Round(v/1000) * 1000)
	case a >= 10_000:
		s = commas(math.Round(v/100) * 100)
	case a >= 1000:
		s = commas(math.Round(v/10) * 10)
	case a >= 100 || v == math.Trunc(v):
		s = strconv.FormatFloat(v, 'f', 0, 64)
	case a >= 10:
		s = strconv.FormatFloat(v, 'f', 1, 64)
	default:
		s = strconv.FormatFloat(v, 'f', 2, 64)
	}
	switch unit {
	case "":
		return s
	case "x":
		return s + unit
	default:
		return s + " " + unit
	}
}

func commas(v float64) string {
	s := strconv.FormatFloat(math.Abs(v), 'f', 0, 64)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	if v < 0 {
		s = "-" + s
	}
	return s
}

// count writes a whole number with commas, unrounded.
func count(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// cell escapes text for a Markdown table.
func cell(s string) string { return strings.ReplaceAll(s, "|", `\|`) }
