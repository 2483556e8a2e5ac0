package cli

import (
	"encoding/json"
	"errors"
	"os"

	"github.com/spf13/cobra"

	"github.com/redeliver/redeliver/deadletter"
)

func resultsFlag(cmd *cobra.Command, path *string) {
	cmd.Flags().StringVar(path, "results", "", "append what became of each message to this `file`, one JSON object in a line")
}

// resultRow is what became of one message, once that is recorded.
type resultRow struct {
	Task     string `json:"task"`
	Position string `json:"position"`
	ID       string `json:"id"`
	Outcome  string `json:"outcome"`       // replayed, purged, quarantined, refused
	Why      string `json:"why,omitempty"` // of one that was refused
}

// results is the file of --results. A nil one takes everything and does nothing.
type results struct {
	file *os.File
	enc  *json.Encoder
	err  error // the first; the task goes on all the same
}

func openResults(path string) (*results, error) {
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600) // ids may be somebody's
	if err != nil {
		return nil, usagef("--results: %w", err)
	}
	enc := json.NewEncoder(&harmlessLines{w: file})
	enc.SetEscapeHTML(false)
	return &results{file: file, enc: enc}, nil
}

func (r *results) add(task string, of deadletter.Result) {
	if r != nil && r.err == nil {
		r.err = r.enc.Encode(resultRow{task, string(of.Position), of.ID, string(of.Outcome), of.Why})
	}
}

func (r *results) close() error {
	if r == nil {
		return nil
	}
	return errors.Join(r.err, r.file.Close())
}
