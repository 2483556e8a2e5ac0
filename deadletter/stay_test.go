package deadletter_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/deadletter/driver"
)

// A message that came back from too many replays stays, unless the replay allows one more.
func TestAMessageThatWasReplayedTooOftenStays(t *testing.T) {
	q := newFakeDLQ(6)
	q.messages[1].State.Replays, q.messages[4].State.Replays = 3, 4
	var skipped []string
	r := deadletter.ReplayOptions{Who: "ann", Why: "test", Window: 2, Report: deadletter.Report{Result: func(one deadletter.Result) {
		if one.Outcome == deadletter.OutcomeSkipped {
			skipped = append(skipped, one.ID)
		}
	}}}
	task, err := deadletter.Replay(t.Context(), q, r)
	if err != nil || task.Status != deadletter.StatusDone || task.Counts.Replayed != 4 || task.Counts.Skipped != 2 || !slices.Equal(skipped, []string{"m-0001", "m-0004"}) {
		t.Errorf("the task is %s with %+v, skipped are %v: %v", task.Status, task.Counts, skipped, err)
	}
	r.MaxReplays = 4
	if task, err = deadletter.Replay(t.Context(), q, r); err != nil || task.Counts.Replayed != 1 || task.Counts.Skipped != 1 {
		t.Errorf("with one more replay the counts are %+v: %v", task.Counts, err)
	}
	if got := q.ids(); !slices.Equal(got, []string{"m-0004"}) {
		t.Errorf("the DLQ has %v", got)
	}
}

// refusingDLQ refuses to take one message back.
type refusingDLQ struct {
	*fakeDLQ
	id    string
	tries int
}

func (q *refusingDLQ) Claim(ctx context.Context, h deadletter.Holder) (deadletter.Claim, error) {
	c, err := q.fakeDLQ.Claim(ctx, h)
	return &refusingClaim{c, q}, err
}

type refusingClaim struct {
	deadletter.Claim
	q *refusingDLQ
}

func (c *refusingClaim) Send(ctx context.Context, msgs []*deadletter.Message) []error {
	errs := c.Claim.Send(ctx, msgs)
	for i, m := range msgs {
		if m.ID == c.q.id {
			c.q.tries++
			errs[i] = errors.Join(driver.ErrRefused, errors.New("too large"))
		}
	}
	return errs
}

// A broker shows messages that stay again when the runner opens another scan. The runner once counted them, and sent a
// refused one, again after each scan.
func TestMessagesThatStayAreCountedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &refusingDLQ{fakeDLQ: newFakeDLQ(6), id: "m-0000"}
		q.info.MaxHold = time.Minute
		q.messages[1].State.Replays = 3
		q.onSend = func(context.Context) { time.Sleep(time.Minute) } //nolint:forbidigo // virtual time
		r := deadletter.ReplayOptions{Who: "ann", Why: "test", Window: 2}
		task, err := deadletter.Replay(t.Context(), q, r)
		if err != nil || task.Counts.Replayed != 4 || task.Counts.Skipped != 1 || task.Counts.Refused != 1 || q.tries != 1 {
			t.Errorf("the counts are %+v, and the refused message was sent %d times: %v", task.Counts, q.tries, err)
		}
	})
}

// The next runner of a task finds the messages that stay again, and counts them once.
func TestAResumedReplayCountsWhatStaysOnce(t *testing.T) {
	q := newFakeDLQ(6)
	q.messages[0].State.Replays, q.messages[5].State.Replays = 3, 3
	r := deadletter.ReplayOptions{Who: "ann", Why: "test", Window: 2}
	ctx, stop := context.WithCancel(t.Context())
	r.Report.Progress = func(now deadletter.Task) {
		if now.Counts.Skipped == 1 {
			stop()
		}
	}
	task, _ := deadletter.Replay(ctx, q, r)
	if task.Status != deadletter.StatusPaused || task.Counts.Skipped != 1 {
		t.Fatalf("the task is %s with %+v", task.Status, task.Counts)
	}
	task, err := deadletter.Resume(t.Context(), q, task.ID, deadletter.ResumeOptions{Who: "ben"})
	if err != nil || task.Status != deadletter.StatusDone || task.Counts.Replayed != 4 || task.Counts.Skipped != 2 {
		t.Errorf("the task is %s with %+v: %v", task.Status, task.Counts, err)
	}
}
