package cli

import (
	"fmt"
	"time"

	"github.com/schollz/progressbar/v3"

	"github.com/redeliver/redeliver/deadletter"
)

// progress shows how far a task is: on stderr, and only before a terminal.
type progress struct{ bar *progressbar.ProgressBar }

// newProgress begins a bar to total, which is how much is to be looked at. -1 is
// not known.
func (a *app) newProgress(what string, total int64) *progress {
	if !a.ErrTerminal {
		return &progress{}
	}
	colour := a.Env("NO_COLOR") == "" && a.Env("TERM") != "dumb"
	return &progress{progressbar.NewOptions64(total,
		progressbar.OptionSetWriter(a.Err), progressbar.OptionSetDescription(what), progressbar.OptionShowCount(),
		progressbar.OptionShowIts(), progressbar.OptionSetItsString("msg"), progressbar.OptionSetWidth(30),
		progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionClearOnFinish(), progressbar.OptionEnableColorCodes(colour),
	)}
}

// task shows a task: what was looked at, and what became of it.
func (p *progress) task(t *deadletter.Task) {
	if p.bar != nil {
		p.bar.Describe(fmt.Sprintf("%s: %s", t.Kind, counts(&t.Counts)))
		p.set(t.Counts.Scanned)
	}
}

// set never fails but for a bar that is beyond its end, which is no matter: more
// may come into a DLQ than was counted.
func (p *progress) set(n int64) {
	if p.bar == nil {
		return
	}
	if most := p.bar.GetMax64(); most > 0 && n > most {
		p.bar.ChangeMax64(n)
	}
	_ = p.bar.Set64(n)
}

// end takes the bar away.
func (p *progress) end() {
	if p.bar != nil {
		_ = p.bar.Finish()
	}
}
