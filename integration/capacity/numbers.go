package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// The results are arithmetic upon measurements that scatter by a tenth, so they have two digits.

// about writes two digits: "5.2", "31,000".
func about(v float64) string {
	if v == 0 {
		return "0"
	}
	step := math.Pow(10, math.Floor(math.Log10(math.Abs(v)))-1)
	v = math.Round(v/step) * step
	if step < 1 {
		return strconv.FormatFloat(v, 'f', max(0, int(-math.Floor(math.Log10(step)))), 64)
	}
	return whole(v)
}

// whole writes a whole number with commas.
func whole(v float64) string {
	s := strconv.FormatFloat(math.Round(v), 'f', 0, 64)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// size writes decimal units, as networks and disks are sold.
func size(v float64) string {
	for _, unit := range []string{"B", "kB", "MB", "GB", "TB"} {
		if v < 1000 {
			return about(v) + " " + unit
		}
		v /= 1000
	}
	return about(v) + " PB"
}

// span writes seconds in the unit that suits them.
func span(seconds float64) string {
	switch {
	case seconds >= 2*86_400:
		return about(seconds/86_400) + " days"
	case seconds >= 2*3600:
		return about(seconds/3600) + " h"
	case seconds >= 120:
		return about(seconds/60) + " min"
	default:
		return about(seconds) + " s"
	}
}

func dollars(v float64) string { return fmt.Sprintf("%s USD", strings.TrimSpace(about(v))) }
