package console

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/redeliver/redeliver/deadletter"
)

// Record is one line of the audit record, in JSON.
type Record struct {
	Time   time.Time `json:"time"`
	Who    string    `json:"who"`
	Role   string    `json:"role"`
	From   string    `json:"from,omitempty"` // remote address
	For    string    `json:"for,omitempty"`  // X-Forwarded-For as the proxy sent it, unverified
	Action Action    `json:"action"`
	DLQ    string    `json:"dlq,omitempty"`
	// Result is "allowed" before anything is done, "denied", or, at the end, "done" or "failed".
	Result string `json:"result"`
	// The messages that the action affects, and its reason.
	Position deadletter.Position `json:"position,omitempty"`
	Task     string              `json:"task,omitempty"`   // or the id of a command
	Levels   []string            `json:"levels,omitempty"` // of waiting messages
	Filter   *deadletter.Filter  `json:"filter,omitempty"`
	Text     string              `json:"text,omitempty"` // the text of a search in all DLQs
	Why      string              `json:"why,omitempty"`
	// The outcome.
	Status deadletter.Status  `json:"status,omitempty"`
	Counts *deadletter.Counts `json:"counts,omitempty"`
	Error  string             `json:"error,omitempty"`
}

// The values of Record.Result.
const (
	allowed = "allowed"
	denied  = "denied"
	done    = "done"
	failed  = "failed"
)

// errAudit reports that a record could not be written.
var errAudit = errors.New("writing the audit record")

// audit writes the record, one line at a time.
type audit struct {
	mu sync.Mutex
	w  io.Writer
}

func (a *audit) write(r Record) error {
	r.Time = time.Now().UTC()
	line, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("writing the audit record: %w", err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, err := a.w.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("%w: %w; nothing is done without it", errAudit, err)
	}
	return nil
}

// auditLogger writes the record to the default logger. It is used if Config.Audit is nil.
type auditLogger struct{}

func (auditLogger) Write(line []byte) (int, error) {
	slog.Info("redeliver console", "audit", string(bytes.TrimSpace(line)))
	return len(line), nil
}
