package pubsub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/redeliver/redeliver/deadletter"
)

// The files of a shelf beside its letters.
const (
	stateFile  = "state.json"
	stateLock  = "state.lock"
	claimLock  = "claim.lock"
	intakeLock = "intake.lock"
)

// lockPause is how often a lock is tried that is held for a moment.
const lockPause = 5 * time.Millisecond

// shelfState is what is remembered of a DLQ beside its letters.
type shelfState struct {
	DLQ    string `json:"dlq"`
	Origin string `json:"origin"`
	Group  string `json:"group"`
	deadletter.Record
}

// state reads it. It is replaced as a whole, so no lock is needed for that.
func (s shelf) state() (st shelfState, err error) {
	text, err := os.ReadFile(s.path(stateFile))
	if errors.Is(err, fs.ErrNotExist) {
		return st, nil
	}
	if err != nil {
		return st, fmt.Errorf("pubsub: %w", err)
	}
	if err := json.Unmarshal(text, &st); err != nil {
		return st, fmt.Errorf("pubsub: %s is not the state of a shelf: %w", s.path(stateFile), err)
	}
	return st, nil
}

// alone calls do while nobody else changes the state, or finds out who has the DLQ.
func (s shelf) alone(ctx context.Context, do func() error) error {
	for {
		held, err := tryLock(s.path(stateLock))
		if err != nil {
			return err
		}
		if held != nil {
			defer held.Close()
			return do()
		}
		pause := time.NewTimer(lockPause)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return fmt.Errorf("pubsub: the state in %s: others have it: %w", s.dir, context.Cause(ctx))
		}
	}
}

// note changes the state. What change does with an error is not written.
func (s shelf) note(ctx context.Context, change func(*shelfState) error) error {
	return s.alone(ctx, func() error { return s.change(change) })
}

// change is note for who is alone.
func (s shelf) change(change func(*shelfState) error) error {
	st, err := s.state()
	if err != nil {
		return err
	}
	if err := change(&st); err != nil {
		return err
	}
	text, err := json.Marshal(&st)
	if err != nil {
		return fmt.Errorf("pubsub: writing down the state of %s: %w", st.DLQ, err)
	}
	return s.replace(s.path(stateFile), text)
}
