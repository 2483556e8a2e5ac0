package cli

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/redeliver/redeliver/deadletter"
)

// workFlags are those of the verbs that do something to the messages which a filter
// takes: replay, quarantine, purge.
type workFlags struct {
	subject  subjectFlags
	filter   filterFlags
	sign     signFlags
	results  string
	dry, yes bool
}

// flags adds them; dry says what --dry-run does.
func (w *workFlags) flags(cmd *cobra.Command, dry string) {
	flags := cmd.Flags()
	w.subject.flags(cmd)
	w.filter.flags(flags)
	w.sign.flags(cmd)
	w.subject.runner(flags)
	resultsFlag(cmd, &w.results)
	flags.BoolVar(&w.dry, "dry-run", false, dry)
	yesFlag(cmd, &w.yes)
}

// chosen reads which messages are meant, and who it is.
func (a *app) chosen(w *workFlags) (deadletter.Filter, error) {
	f, err := w.filter.filter(time.Now())
	if err != nil {
		return f, err
	}
	return f, a.sign(&w.sign, w.dry)
}
