package redeliver

import (
	"strings"
	"time"
	"unicode"

	"github.com/redeliver/redeliver/internal/limits"
)

// PauseMark says that an operator has paused a subscription for its whole group. The broker keeps it as text.
type PauseMark struct {
	By     string    // user@host; empty if a person wrote the mark by hand
	At     time.Time // by the clock of that host; zero if a person wrote the mark by hand
	Reason string
	// NewOnly lets retries that fall due continue: only first attempts wait.
	NewOnly bool
}

// newOnlyText begins the reason in the text of a mark whose NewOnly is set.
const newOnlyText = "new-only: "

// Bounds of a mark, in bytes. Together they fit into a tag of an SQS queue.
const (
	maxPauseBy     = 64
	maxPauseReason = 160
)

// String returns the mark as the broker keeps it: the time, by whom, and the reason, separated by spaces. Control characters
// become spaces, and long texts are cut.
func (m PauseMark) String() string {
	by := strings.Join(strings.Fields(limits.Cut(printable(m.By), maxPauseBy)), "_")
	if by == "" {
		by = "unknown"
	}
	return m.At.UTC().Format(time.RFC3339) + " " + by + " " + m.reasonText()
}

func (m PauseMark) reasonText() string {
	reason := limits.Cut(printable(m.Reason), maxPauseReason)
	if m.NewOnly {
		reason = newOnlyText + reason
	}
	return reason
}

// ParsePauseMark parses a mark. Every text is valid: a text that String did not write is a reason.
func ParsePauseMark(text string) PauseMark {
	parts := strings.SplitN(text, " ", 3)
	if at, ok := limits.ParseTime(parts[0]); ok && len(parts) == 3 {
		m := parseReason(parts[2])
		m.By, m.At = limits.Cut(printable(parts[1]), maxPauseBy), at
		return m
	}
	return parseReason(text)
}

func parseReason(text string) PauseMark {
	reason, newOnly := strings.CutPrefix(text, newOnlyText)
	return PauseMark{Reason: limits.Cut(printable(reason), maxPauseReason), NewOnly: newOnly}
}

// printable replaces characters that are not printable by spaces.
func printable(text string) string {
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, text))
}
