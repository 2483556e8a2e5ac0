package cli

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/redeliver/redeliver/deadletter"
)

// progress shows the progress of a task in one line of stderr, which it overwrites. It shows nothing if stderr is not a
// terminal.
type progress struct {
	p     *printer // nil to show nothing
	total int64    // messages to scan; -1 if unknown
	do    int64    // messages that the task will settle; 0 if unknown
	begun time.Time
	drawn time.Time
}

// minRedraw is the minimum time between two drawings of the line.
const minRedraw = 100 * time.Millisecond

func (p *printer) newProgress(total int64) *progress {
	if !p.ErrTerminal || p.Env("TERM") == "dumb" {
		return &progress{}
	}
	return &progress{p: p, total: total, begun: time.Now()}
}

// task shows how much a task has scanned and done.
func (p *progress) task(t *deadletter.Task) {
	now := time.Now()
	if p.p == nil || now.Sub(p.drawn) < minRedraw {
		return
	}
	p.drawn = now
	line := p.line(t, now.Sub(p.begun))
	if width := p.p.width(true); width > 0 { // a line that wraps could not be overwritten
		line = text.Trim(line, width-1)
	}
	fmt.Fprint(p.p.Err, "\r\x1b[K"+line)
}

// line returns the text of the progress after a time. It counts what the task has settled of what it will settle or, if that is not
// known, what it has read.
func (p *progress) line(t *deadletter.Task, took time.Duration) string {
	n, total, what := t.Counts.Scanned, p.total, "messages read"
	if p.do > 0 {
		n, total, what = settled(&t.Counts), p.do, "messages"
	}
	known := total > 0
	total = max(total, n) // more may arrive than was counted
	var b strings.Builder
	fmt.Fprintf(&b, "%s  ", t.Kind)
	if known {
		const width = 24
		full := int(n * width / total)
		fmt.Fprintf(&b, "[%s%s] %d%%  %s of %s %s", strings.Repeat("#", full), strings.Repeat(".", width-full), n*100/total, thousands(n), thousands(total), what)
	} else {
		fmt.Fprintf(&b, "%s %s", thousands(n), what)
	}
	if perSecond := float64(n) / took.Seconds(); took >= time.Second && n > 0 {
		fmt.Fprintf(&b, "  %s", rate(perSecond))
		if left := time.Duration(float64(total-n) / perSecond * float64(time.Second)); known && n < total {
			fmt.Fprintf(&b, "  %s left", left.Round(time.Second))
		}
	}
	fmt.Fprintf(&b, "  %s", counts(&t.Counts))
	return b.String()
}

// settled returns how many of the matching messages have an outcome.
func settled(c *deadletter.Counts) int64 {
	return c.Replayed + c.Edited + c.Purged + c.Imported + c.Skipped + c.Refused
}

// end removes the line.
func (p *progress) end() {
	if p.p != nil && !p.drawn.IsZero() {
		fmt.Fprint(p.p.Err, "\r\x1b[K")
	}
}

// rate formats messages per unit of time, in the most suitable unit.
func rate(perSecond float64) string {
	switch {
	case perSecond >= 10:
		return thousands(int64(perSecond+0.5)) + "/s"
	case perSecond >= 1:
		return fmt.Sprintf("%.1f/s", perSecond)
	default:
		return fmt.Sprintf("%.1f/min", perSecond*60)
	}
}

// thousands formats a number with commas, such as 1,234,567.
func thousands(n int64) string {
	if n < 0 {
		return "-" + thousands(-n)
	}
	text := strconv.FormatInt(n, 10)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
