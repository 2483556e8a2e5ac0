package cli

import (
	"encoding/json"
	"errors"
	"os"

	"github.com/spf13/pflag"

	"github.com/redeliver/redeliver/deadletter"
)

func resultsFlag(flags *pflag.FlagSet, path *string) {
	flags.StringVar(path, "results", "", "Append the outcome of each message to this `file`, one JSON object per line")
}

// resultRow is the recorded outcome of one message.
type resultRow struct {
	Task     string `json:"task"`
	Position string `json:"position"`
	ID       string `json:"id"`
	Outcome  string `json:"outcome"`       // replayed, purged, skipped, refused
	Why      string `json:"why,omitempty"` // why the message was refused
}

// results is the file of --results. A nil *results does nothing.
type results struct {
	file *os.File
	enc  *json.Encoder
	err  error // the first error; the task continues
}

func openResults(path string) (*results, error) {
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600) // ids may be personal data
	if err != nil {
		return nil, usagef("--results: %w", err)
	}
	enc := json.NewEncoder(&escapedLines{w: file})
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
