package notes

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/amqp/internal/wire"
	"github.com/redeliver/redeliver/internal/statekeys"
)

// fakeQueue is the queue of the notes of a process, with the test as its broker.
type fakeQueue struct {
	*testing.T
	*Queue
	tags uint64
}

func newFakeQueue(t *testing.T, keys statekeys.Keys) *fakeQueue {
	t.Helper()
	return &fakeQueue{T: t, Queue: New(Options{Name: "orders.retry.place", Group: "orders", Max: 3, Keys: keys})}
}

// deliver delivers the messages of notes.
func (f *fakeQueue) deliver(all ...amqp091.Publishing) {
	for _, p := range all {
		f.tags++
		d := wire.DeliveryOf(p, "", f.Queue.Name)
		d.DeliveryTag = f.tags
		f.receive(&d)
	}
}

// aNote returns a version of the note of a message after as many attempts.
func (f *fakeQueue) aNote(id, message string, version, crashes int) amqp091.Publishing {
	at := time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
	return f.compose(&Note{id: id, message: message, version: version, crashes: crashes, state: redeliver.State{
		ID: message, Group: "orders", Origin: "orders", Attempts: version, FirstFailed: at, LastFailed: at.Add(time.Minute), Due: at.Add(time.Hour),
		Error: strings.Repeat("e", 2000), FirstError: strings.Repeat("f", 2000),
	}})
}

// taken returns the attempts and the crashes in the notes of a message, as those that come back take them.
func (f *fakeQueue) taken(message string) (all []string) {
	for {
		n, st, crashes := f.Take(func() string { return message })
		if n == nil {
			return all
		}
		all = append(all, fmt.Sprintf("%d attempts, %d crashes", st.Attempts, crashes))
	}
}

// wantSpent checks which deliveries will be acked.
func (f *fakeQueue) wantSpent(tags ...uint64) {
	f.Helper()
	if !slices.Equal(f.spent, tags) {
		f.Errorf("deliveries %v are spent, want %v", f.spent, tags)
	}
}

// A note has the whole state of its message, with its two errors cut to 512 bytes.
func TestANoteHasTheState(t *testing.T) {
	f := newFakeQueue(t, nil)
	f.deliver(f.aNote("n1", "m1", 4, 0))
	n, st, _ := f.Take(func() string { return "m1" })
	if n == nil || st.Attempts != 4 || st.Due.Sub(st.FirstFailed) != time.Hour || st.LastFailed.Sub(st.FirstFailed) != time.Minute || len(st.Error) != 512 || len(st.FirstError) != 512 {
		t.Errorf("the state is %+v", st)
	}
	if !f.Has(n, &st) || f.Has(n, &redeliver.State{Attempts: 5, Due: st.Due}) {
		t.Error("the broker has the state that it delivered, and no other")
	}
}

// A process that dies between a write and its ack leaves two versions, in any order. The newest one counts.
func TestTheNewestVersionCounts(t *testing.T) {
	for _, order := range [][]int{{1, 2, 3}, {3, 2, 1}, {2, 3, 1}} {
		f := newFakeQueue(t, nil)
		for _, version := range order {
			f.deliver(f.aNote("n1", "m1", version, 0))
		}
		if got := f.taken("m1"); !slices.Equal(got, []string{"3 attempts, 0 crashes"}) {
			t.Errorf("versions %v: the message has %q", order, got)
		}
		if len(f.spent) != 2 {
			t.Errorf("versions %v: %d deliveries are spent, want 2", order, len(f.spent))
		}
	}
}

// A consumer whose channel has ended corrects the crashes of a message that this one has taken: its process has survived.
func TestALateVersionCorrectsTheCrashes(t *testing.T) {
	f := newFakeQueue(t, nil)
	f.deliver(f.aNote("n1", "m1", 1, 2))
	n, _, _ := f.Take(func() string { return "m1" })
	f.loaded = true
	f.deliver(f.aNote("n1", "m1", 2, 1))
	if got := f.Crashes(n); got != 1 {
		t.Errorf("it has %d crashes, want 1", got)
	}
	f.wantSpent(1)
}

// Each of two equal messages takes its own note, and a third one none.
func TestEqualMessagesShareNoNote(t *testing.T) {
	f := newFakeQueue(t, nil)
	f.deliver(f.aNote("n1", "m", 2, 0), f.aNote("n2", "m", 5, 1))
	if got, want := f.taken("m"), []string{"2 attempts, 0 crashes", "5 attempts, 1 crashes"}; !slices.Equal(got, want) {
		t.Errorf("the messages have %q, want %q", got, want)
	}
}

// Notes that nobody has taken when a new message comes are those of messages that have ended. A later equal message gets none, also
// if another version comes late.
func TestAnOldNoteIsNotInherited(t *testing.T) {
	f := newFakeQueue(t, nil)
	f.deliver(f.aNote("n1", "m1", 2, 0), f.aNote("n2", "m2", 1, 0))
	f.loaded = true
	if got := f.taken("m2"); len(got) != 1 {
		t.Errorf("m2 has %q", got)
	}
	f.dropUntakenLocked()
	f.deliver(f.aNote("n1", "m1", 3, 0))
	if got := f.taken("m1"); got != nil {
		t.Errorf("a later m1 has %q", got)
	}
	f.wantSpent(1, 3)
}

// The memory of notes has a bound, however many notes others write. Messages that are no notes, or were not signed, are removed.
func TestOtherMessagesAreRemoved(t *testing.T) {
	f := newFakeQueue(t, statekeys.Keys{[]byte("0123456789abcdef0123456789abcdef")})
	good := f.aNote("n1", "m1", 1, 0)
	unsigned := newFakeQueue(t, nil).aNote("n2", "m2", 1, 0)
	forged := f.aNote("n3", "m3", 1, 0)
	forged.Body = []byte("m4")
	large := f.aNote("n4", strings.Repeat("m", maxMessage+1), 1, 0)
	f.deliver(good, unsigned, forged, large, amqp091.Publishing{MessageId: "n5"}, amqp091.Publishing{})
	f.wantSpent(2, 3, 4, 5, 6)
	for i := range 3 {
		f.deliver(f.aNote(fmt.Sprint("more", i), "m5", 1, 0))
	}
	f.wantSpent(2, 3, 4, 5, 6, 9)
	if got := f.taken("m1"); len(got) != 1 {
		t.Errorf("m1 has %q", got)
	}
}
