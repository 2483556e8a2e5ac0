// Package linediff compares two texts by lines, for a person to read.
package linediff

import (
	"slices"
	"strings"

	"github.com/redeliver/redeliver/internal/limits"
)

const (
	// maxDiff is the maximum number of lines that are compared. Longer texts are shown as all removed and all added.
	maxDiff = 1500
	// maxShown is the maximum number of lines that are shown. around is the number of equal lines that are shown before
	// and after a change.
	maxShown = 400
	// maxLine is the maximum number of bytes of a line that are shown.
	maxLine = 16 << 10
	around  = 3
)

// Line is a line of a diff.
type Line struct {
	Sign string // "+", "-", "" for an equal line, "…" for omitted lines
	Text string
}

// Compare compares two texts by lines.
func Compare(before, after string) []Line {
	a, b := strings.Split(before, "\n"), strings.Split(after, "\n")
	start := 0
	for start < len(a) && start < len(b) && a[start] == b[start] {
		start++
	}
	end := 0
	for end < len(a)-start && end < len(b)-start && a[len(a)-1-end] == b[len(b)-1-end] {
		end++
	}
	var out []Line
	if start > around {
		out = append(out, Line{Sign: "…"})
	}
	for _, s := range a[max(0, start-around):start] {
		out = append(out, Line{Text: s})
	}
	out = append(out, compareMiddle(a[start:len(a)-end], b[start:len(b)-end])...)
	for _, s := range a[len(a)-end : len(a)-end+min(end, around)] {
		out = append(out, Line{Text: s})
	}
	if end > around {
		out = append(out, Line{Sign: "…"})
	}
	for i := range out {
		if len(out[i].Text) > maxLine {
			out[i].Text = limits.Cut(out[i].Text, maxLine) + "…"
		}
	}
	if len(out) > maxShown {
		out = append(out[:maxShown], Line{Sign: "…"})
	}
	return out
}

// compareMiddle compares texts that differ at both ends, using their longest common subsequence.
func compareMiddle(a, b []string) (out []Line) {
	if len(a) > maxDiff || len(b) > maxDiff {
		for _, s := range a {
			out = append(out, Line{"-", s})
		}
		for _, s := range b {
			out = append(out, Line{"+", s})
		}
		return out
	}
	long := make([][]int16, len(a)+1) // [i][j]: length for a[i:] and b[j:]
	for i := range long {
		long[i] = make([]int16, len(b)+1)
	}
	for i, x := range slices.Backward(a) {
		for j, y := range slices.Backward(b) {
			if x == y {
				long[i][j] = long[i+1][j+1] + 1
			} else {
				long[i][j] = max(long[i+1][j], long[i][j+1])
			}
		}
	}
	i, j := 0, 0
	for i < len(a) || j < len(b) {
		switch {
		case i < len(a) && j < len(b) && a[i] == b[j]:
			out = append(out, Line{"", a[i]})
			i, j = i+1, j+1
		case j == len(b) || i < len(a) && long[i+1][j] >= long[i][j+1]:
			out = append(out, Line{"-", a[i]})
			i++
		default:
			out = append(out, Line{"+", b[j]})
			j++
		}
	}
	return out
}
