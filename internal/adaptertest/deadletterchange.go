package adaptertest

import (
	"bytes"
	"errors"
	"slices"

	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/internal/wirename"
)

// changing tests purge, edit, export and import.
func changing() []deadTest {
	return []deadTest{
		{name: "APurgeRemovesAndCountsWhatItsFilterMatches", body: purged},
		{name: "APurgeOfMoreThanExpectedRemovesNothing", body: purgeExpects},
		{name: "AnExportIsImportedUnchanged", body: exported},
		{name: "AnEditedMessageIsReplayedAndTheDiffRecorded", body: edited},
		{name: "AnEditOfLockedHeadersIsRefused", body: editLocked},
	}
}

func purged(d *dlqFixture) {
	msgs, ids := numberedMessages(12)
	d.makeDeadLetters(failAlways, msgs...)
	q := d.queue()
	ctx := d.withTimeout()
	p := deadletter.PurgeOptions{Who: "ann@ops", Why: "test data", Filter: deadletter.Filter{IDs: ids[:5]}, Expect: 5}
	t, err := deadletter.Purge(ctx, q, p)
	if err != nil || t.Counts.Purged != 5 || t.Status != deadletter.StatusDone {
		d.Fatalf("the purge ended as %s with %+v: %v", t.Status, t.Counts, err)
	}
	if got := d.idsInDLQ(q); !slices.Equal(got, ids[5:]) {
		d.Errorf("the DLQ has %q, want %q", got, ids[5:])
	}
	if _, err := deadletter.Purge(ctx, q, deadletter.PurgeOptions{Who: "ann@ops", Why: "all"}); err == nil {
		d.Error("an empty filter purged everything without Everything")
	}
	t, err = deadletter.Purge(ctx, q, deadletter.PurgeOptions{Who: "ann@ops", Why: "all", Everything: true})
	if err != nil || t.Counts.Purged != 7 {
		d.Errorf("the second purge says %+v: %v", t.Counts, err)
	}
	if n, exact, err := q.Count(ctx); err != nil || exact && n != 0 {
		d.Errorf("the DLQ counts %d messages, want none: %v", n, err)
	}
}

func purgeExpects(d *dlqFixture) {
	msgs, ids := numberedMessages(6)
	d.makeDeadLetters(failAlways, msgs...)
	q := d.queue()
	_, err := deadletter.Purge(d.Context(), q, deadletter.PurgeOptions{Who: "ann@ops", Why: "w", Everything: true, Expect: 5})
	if !errors.Is(err, deadletter.ErrTooMany) {
		d.Errorf("the purge says %v, want that there are more", err)
	}
	if got := d.idsInDLQ(q); !slices.Equal(got, ids) {
		d.Errorf("the DLQ has %q, want %q", got, ids)
	}
}

func exported(d *dlqFixture) {
	msg := Message{ID: "a", Body: []byte("b"), Headers: []Header{{"tenant", []byte("acme")}}}
	if d.h.Features.BinaryHeaders {
		msg.Body, msg.Headers[0].Value = []byte{0, 0xff, '\n', '"'}, []byte{0xfe, 0}
	}
	if d.h.Features.OrderFirstAttempts {
		msg.Key = []byte{0xff}
	}
	empty := Message{ID: "e", Body: []byte{}}
	d.makeDeadLetters(failAlways, msg, empty)
	q := d.queue()
	ctx := d.withTimeout()
	before := d.browse(q, deadletter.Filter{})
	var file bytes.Buffer
	if n, err := deadletter.Export(ctx, q, deadletter.Filter{}, &file); err != nil || n != 2 || bytes.Count(file.Bytes(), []byte("\n")) != 2 {
		d.Fatalf("exported %d: %v\n%s", n, err, file.Bytes())
	}
	if _, err := deadletter.Purge(ctx, q, deadletter.PurgeOptions{Who: "ann@ops", Why: "moved", Everything: true}); err != nil {
		d.Fatal(err)
	}
	t, err := deadletter.Import(ctx, q, &file, deadletter.ImportOptions{Who: "ann@ops", Why: "moved back"})
	if err != nil || t.Counts.Imported != 2 {
		d.Fatalf("imported %d: %v", t.Counts.Imported, err)
	}
	after := d.browse(q, deadletter.Filter{})
	if len(after) != 2 {
		d.Fatalf("%d messages are in the DLQ, want 2", len(after))
	}
	for _, was := range before {
		i := slices.IndexFunc(after, func(m *deadletter.Message) bool { return m.ID == was.ID })
		if i < 0 {
			d.Fatalf("%s is missing", was.ID)
		}
		d.checkSame("the import of "+was.ID, plainMessage(after[i], was.ID), plainMessage(was, was.ID))
		if after[i].State != was.State {
			d.Errorf("%s has the state %+v, want %+v", was.ID, after[i].State, was.State)
		}
	}
	d.fixHandler()
	d.runReplay(q, newReplay())
	d.awaitCommits("a", "e")
	d.checkSame("the replay", d.ran("a")[1].Seen, msg)
}

func edited(d *dlqFixture) {
	d.makeDeadLetters(failAlways, Message{ID: "a", Body: []byte("{\"amount\": -1}"), Headers: []Header{{"tenant", []byte("acme")}, {"debug", []byte("1")}}})
	q := d.queue()
	m := d.browse(q, deadletter.Filter{})[0]
	d.fixHandler()
	t, err := deadletter.Edit(d.Context(), q, deadletter.EditOptions{
		Who: "ann@ops", Why: "the amount was wrong", Position: m.Position, ID: "a", Body: []byte("{\"amount\": 1}"),
		Set: []deadletter.Header{{Name: "tenant", Value: []byte("bolt")}}, Remove: []string{"debug"},
	})
	if err != nil || t.Counts.Edited != 1 || t.Diff == nil || len(t.Diff.Headers) != 2 || t.Diff.BodyBefore == t.Diff.BodyAfter {
		d.Fatalf("the edit says %+v: %v", t, err)
	}
	d.awaitCommits("a")
	as := d.ran("a")
	d.checkSame("the edited message", as[len(as)-1].Seen, Message{ID: "a", Body: []byte("{\"amount\": 1}"), Headers: []Header{{"tenant", []byte("bolt")}}})
	d.wantEmpty(q)
	history, err := deadletter.History(d.Context(), q)
	if err != nil || len(history) != 1 || history[0].Diff == nil || history[0].Diff.ID != "a" {
		d.Errorf("the history is %+v: %v", history, err)
	}
}

func editLocked(d *dlqFixture) {
	d.makeDeadLetters(failAlways, namedMessages("a")...)
	q := d.queue()
	m := d.browse(q, deadletter.Filter{})[0]
	for _, name := range []string{"redeliver-group", "Redeliver-Attempt", wirename.WatermillUUID} {
		_, err := deadletter.Edit(d.Context(), q, deadletter.EditOptions{
			Who: "eve", Why: "w", Position: m.Position, Set: []deadletter.Header{{Name: name, Value: []byte("x")}},
		})
		if err == nil {
			d.Errorf("the header %s was edited", name)
		}
	}
	if got := d.idsInDLQ(q); !slices.Equal(got, []string{"a"}) {
		d.Errorf("the DLQ has %q, want a", got)
	}
}
