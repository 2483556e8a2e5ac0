package redeliver_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redeliver/redeliver"
)

func TestRejectIsPermanentAndRejected(t *testing.T) {
	err := redeliver.Reject("no such schema")
	if !errors.Is(err, redeliver.ErrRejected) || !errors.Is(err, redeliver.ErrPermanent) || err.Error() != "rejected: no such schema" {
		t.Error(err)
	}
	if text := redeliver.Reject("").Error(); text != "rejected" {
		t.Error(text)
	}
	if errors.Is(redeliver.Permanent(errors.New("no")), redeliver.ErrRejected) {
		t.Error("a permanent error is not ErrRejected")
	}
	now := time.Now()
	for name, err := range map[string]error{"bare": err, "wrapped": fmt.Errorf("order 7: %w", err), "joined": errors.Join(errors.New("boom"), err)} {
		d := redeliver.Policy{}.Decide(redeliver.State{ID: "7"}, err, now)
		if d.Action != redeliver.ActionDeadLetter || d.State.Reason != redeliver.ReasonRejected || d.State.Attempts != 1 {
			t.Errorf("%s: %v, %+v", name, d.Action, d.State)
		}
	}
}
