package deadletter_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/deadletter"
)

// newOrders returns a DLQ with n dead letters that have a body, a key and headers.
func newOrders(n int) *fakeDLQ {
	h := newFakeDLQ(n)
	for i, m := range h.messages {
		m.Key, m.Body = fmt.Appendf(nil, "k%d", i), []byte(`{"currency":"EURO"}`)
		m.Headers = []deadletter.Header{{Name: "tenant", Value: []byte("acme")}, {Name: "_watermill_message_uuid", Value: []byte(m.ID)}}
		m.State.Error = "no such currency"
	}
	return h
}

// euro is the fix of a producer's fault.
func euro(_ context.Context, m *deadletter.Message) error {
	m.Body = bytes.ReplaceAll(m.Body, []byte("EURO"), []byte("EUR"))
	return nil
}

// Each message is sent as the change makes it. After a change that is not allowed the message stays, with a reason.
func TestAChangeIsSentAndTheOriginalStaysUntilThen(t *testing.T) {
	t.Parallel()
	big := bytes.Repeat([]byte("x"), deadletter.MaxGrowth)
	for name, c := range map[string]struct {
		change  deadletter.Change
		why     string // empty if it is sent
		changed int64
	}{
		"the body":     {euro, "", 1},
		"nothing":      {func(context.Context, *deadletter.Message) error { return nil }, "", 0},
		"a header":     {func(_ context.Context, m *deadletter.Message) error { m.Headers[0].Value[0] = 'X'; return nil }, "", 1},
		"an error":     {func(context.Context, *deadletter.Message) error { return errors.New("exit status 3") }, "exit status 3", 0},
		"the key":      {func(_ context.Context, m *deadletter.Message) error { m.Key[0] = 'X'; return nil }, "keeps the key", 0},
		"no key":       {func(_ context.Context, m *deadletter.Message) error { m.Key = nil; return nil }, "keeps the key", 0},
		"a grown body": {func(_ context.Context, m *deadletter.Message) error { m.Body = append(m.Body, big...); return nil }, "", 1},
		"a body that grows": {func(_ context.Context, m *deadletter.Message) error {
			m.Body = append(m.Body, append(big, 'x')...)
			return nil
		}, "bytes larger", 0},
		"the id":         {func(_ context.Context, m *deadletter.Message) error { m.Headers[1].Value = []byte("other"); return nil }, "_watermill_message_uuid", 0},
		"without the id": {func(_ context.Context, m *deadletter.Message) error { m.Headers = m.Headers[:1]; return nil }, "_watermill_message_uuid", 0},
		"a header of ours": {func(_ context.Context, m *deadletter.Message) error {
			m.Headers = append(m.Headers, deadletter.Header{Name: "Redeliver-Attempt"})
			return nil
		}, "Redeliver-Attempt", 0},
		"other fields": {func(_ context.Context, m *deadletter.Message) error {
			m.ID, m.Position, m.State = "", "", redeliver.State{}
			return nil
		}, "", 0},
	} {
		h := newOrders(1)
		before := *h.messages[0]
		key, body, headers := bytes.Clone(before.Key), bytes.Clone(before.Body), fmt.Sprintf("%s", before.Headers)
		f, err := deadletter.DryRun(t.Context(), h, deadletter.ReplayOptions{Change: c.change})
		if err != nil || f.Changed != c.changed || len(f.Changes) != int(c.changed) || (f.Replay == 1) != (c.why == "") || (f.Refuse == 1) != (c.why != "") || len(h.copies) > 0 {
			t.Errorf("%s: the forecast is %+v: %v", name, f, err)
		}
		var results []deadletter.Result
		task, err := deadletter.Replay(t.Context(), h, deadletter.ReplayOptions{
			Who: "ann", Why: "euro", Change: c.change, Report: deadletter.Report{Result: func(r deadletter.Result) { results = append(results, r) }},
		})
		n := task.Counts
		if err != nil || len(results) != 1 || n.Changed != c.changed || !task.Change {
			t.Fatalf("%s: %+v, %v: %v", name, task, results, err)
		}
		if c.why != "" {
			if n.Refused != 1 || len(h.copies) != 0 || len(h.messages) != 1 || !strings.Contains(results[0].Why, c.why) {
				t.Errorf("%s: %+v, %v", name, n, results)
			}
		} else if n.Replayed != 1 || len(h.messages) != 0 || len(h.copies) != 1 || h.copies[0].ID != before.ID || h.copies[0].Position != before.Position || h.copies[0].State.Error == "" {
			t.Errorf("%s: %+v, sent %+v", name, n, h.copies)
		}
		if !bytes.Equal(before.Key, key) || !bytes.Equal(before.Body, body) || fmt.Sprintf("%s", before.Headers) != headers {
			t.Errorf("%s: the original is now %+v", name, before)
		}
	}
}

// A dry run keeps the first ten differences and counts all.
func TestADryRunShowsTheFirstTenChanges(t *testing.T) {
	t.Parallel()
	h := newOrders(30)
	h.messages[3].Body = []byte(`{"currency":"USD"}`)
	f, err := deadletter.DryRun(t.Context(), h, deadletter.ReplayOptions{Change: euro})
	if err != nil || f.Replay != 30 || f.Changed != 29 || len(f.Changes) != 10 {
		t.Fatalf("%+v: %v", f, err)
	}
	for i, c := range f.Changes {
		if i < 3 && c.Before.ID != fmt.Sprintf("m-%04d", i) || string(c.Before.Body) != `{"currency":"EURO"}` || string(c.After.Body) != `{"currency":"EUR"}` {
			t.Errorf("change %d is %s: %s to %s", i, c.Before.ID, c.Before.Body, c.After.Body)
		}
	}
}

// A replay with a change is not continued without it: the rest would be sent unchanged.
func TestAReplayWithAChangeIsResumedWithIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newOrders(900)
		ctx, stop := context.WithCancel(t.Context())
		h.onSend = func(context.Context) { stop() }
		task, err := deadletter.Replay(ctx, h, deadletter.ReplayOptions{Who: "ann", Why: "euro", Change: euro})
		if !errors.Is(err, context.Canceled) || task.Counts.Replayed != 500 || !task.Resumable() {
			t.Fatalf("%+v: %v", task, err)
		}
		h.onSend = nil
		if _, err := deadletter.Resume(t.Context(), h, task.ID, deadletter.ResumeOptions{Who: "ben"}); err == nil || !strings.Contains(err.Error(), "no Change was given") || len(h.sent) != 500 {
			t.Fatalf("resumed without the change, %d sent: %v", len(h.sent), err)
		}
		task, err = deadletter.Resume(t.Context(), h, task.ID, deadletter.ResumeOptions{Who: "ben", Change: euro})
		if err != nil || task.Counts.Replayed != 900 || task.Counts.Changed != 900 || len(h.messages) != 0 {
			t.Errorf("%+v: %v", task, err)
		}
		if slices.ContainsFunc(h.copies, func(m *deadletter.Message) bool { return string(m.Body) != `{"currency":"EUR"}` }) {
			t.Error("one was sent unchanged")
		}
	})
}

// A slow change ends the window: the broker does not hold messages forever, and a pause is not far away.
func TestASlowChangeMakesSmallWindows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newOrders(60)
		task, err := deadletter.Replay(t.Context(), h, deadletter.ReplayOptions{Who: "ann", Why: "euro", Change: func(ctx context.Context, m *deadletter.Message) error {
			<-time.After(time.Second)
			return euro(ctx, m)
		}})
		if err != nil || task.Counts.Replayed != 60 || slices.Max(h.sentSizes) > 12 {
			t.Errorf("%+v, windows %v: %v", task, h.sentSizes, err)
		}
	})
}

// The history keeps the errors of the causes that a task selects, because their messages may be gone when somebody reads it.
func TestATaskKeepsItsCauses(t *testing.T) {
	t.Parallel()
	h := newOrders(3)
	h.messages[1].State.Error = "dial tcp: " + strings.Repeat("x", 500) + ": connection refused"
	one, two := deadletter.Fingerprint(h.messages[0]), deadletter.Fingerprint(h.messages[1])
	task, err := deadletter.Replay(t.Context(), h, deadletter.ReplayOptions{Who: "ann", Why: "a test", Filter: deadletter.Filter{Fingerprints: []string{two, one}}})
	if err != nil || len(task.Causes) != 2 || task.Causes[0] != (deadletter.Cause{Fingerprint: one, Error: "no such currency"}) {
		t.Fatalf("%+v: %v", task, err)
	}
	if c := task.Causes[1]; c.Fingerprint != two || len(c.Error) > 200 || !strings.HasSuffix(c.Error, ": connection refused") {
		t.Errorf("%+v", c)
	}
	if saved := h.onlyTask(t); len(saved.Causes) != 2 {
		t.Errorf("recorded is %+v", saved)
	}
}

// A cause says how long the retries of its messages took, so that a watch can be longer. The time before a replay does not count.
func TestACauseSaysHowLongRetriesTook(t *testing.T) {
	t.Parallel()
	h := newOrders(3)
	at := time.Unix(1_700_000_000, 0)
	for i, m := range h.messages {
		m.State.FirstFailed, m.State.LastFailed = at, at.Add(time.Duration(i+1)*time.Minute)
	}
	h.messages[2].State.Replayed, h.messages[2].State.LastFailed = at.Add(time.Hour), at.Add(time.Hour+30*time.Second)
	sum, err := deadletter.Groups(t.Context(), h, deadletter.Filter{})
	if err != nil || len(sum.Groups) != 1 || sum.Groups[0].Retried != 2*time.Minute {
		t.Errorf("%+v: %v", sum.Groups, err)
	}
}
