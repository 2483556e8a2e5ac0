package kafka

import (
	"maps"
	"slices"
	"testing"

	"github.com/IBM/sarama"
	"pgregory.net/rapid"

	"github.com/redeliver/redeliver/delayqueue"
)

// TestAnAccountSaysWhatIsSettled compares what is committed for a partition with the
// obvious model, over owners that die and read again from the last commit: nothing is
// said to be settled that is not, and nothing that was committed as settled is forgotten.
func TestAnAccountSaysWhatIsSettled(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		log := make([]int64, rapid.IntRange(1, 300).Draw(t, "records"))
		for i, offset := 0, int64(0); i < len(log); i++ {
			offset += rapid.Int64Range(1, 3).Draw(t, "gap") // marks of transactions
			log[i] = offset
		}
		done := make(map[int64]bool) // what was committed as settled
		offset, found := int64(0), note{}
		for range rapid.IntRange(1, 4).Draw(t, "owners") {
			b := &account{}
			b.begin(offset, found.settled, note{owner: "me", state: stateRun, alone: -1}, true)
			numbers, mine := make(map[int64]uint64), maps.Clone(done) // settled, as the owner knows
			unread := log[sortedAfter(log, offset):]
			read := rapid.IntRange(0, len(unread)).Draw(t, "read")
			var open []int64
			for i, o := range unread[:read] {
				if numbers[o] = uint64(i); b.skip[o] != done[o] {
					t.Fatalf("record %d: settled before is %v, and it is skipped: %v", o, done[o], b.skip[o])
				}
				b.add(o)
				if done[o] {
					b.settle(uint64(i))
				} else {
					open = append(open, o)
				}
			}
			for range rapid.IntRange(0, 5).Draw(t, "commits") {
				var forwarded []uint64
				window := maps.Clone(mine)
				for _, o := range slices.Clone(open) {
					switch rapid.IntRange(0, 3).Draw(t, "fate") {
					case 0:
						b.settle(numbers[o])
						mine[o], window[o] = true, true
					case 1:
						forwarded = append(forwarded, numbers[o])
						window[o] = true
					}
				}
				p := b.would(forwarded)
				if len(p.text) > noteMost {
					t.Fatalf("a note of %d bytes", len(p.text))
				}
				if rapid.Bool().Draw(t, "aborted") {
					if again := b.would(nil); says(again, log, t) > len(mine) {
						t.Fatalf("an aborted window is settled: %q", again.text)
					}
					open = slices.DeleteFunc(open, func(o int64) bool { return mine[o] })
					continue
				}
				b.committed(p, forwarded)
				mine = window
				open = slices.DeleteFunc(open, func(o int64) bool { return mine[o] })
				offset, found = p.offset, parseNote(p.text)
				done = maps.Clone(mine)
				if n := says(p, log, t); n != len(done) {
					t.Fatalf("%d are settled, and %q says %d", len(done), p.text, n)
				}
				for o := range found.settled {
					if !done[o] {
						t.Fatalf("record %d is not settled, and %q says so", o, p.text)
					}
				}
			}
		}
	})
}

// says is how many records a commit says are settled.
func says(p position, log []int64, t *rapid.T) int {
	n := parseNote(p.text)
	if !n.known() || !n.transacts {
		t.Fatalf("%q is no note", p.text)
	}
	settled := 0
	for _, o := range log {
		if o < p.offset || n.settled[o] {
			settled++
		}
	}
	return settled
}

func sortedAfter(log []int64, offset int64) int {
	i, _ := slices.BinarySearch(log, offset)
	return i
}

// A broker takes 4096 bytes, with the longest lists of everything, too.
func TestANoteWithWhatIsSettledIsNeverTooLong(t *testing.T) {
	t.Parallel()
	n := note{owner: newOwner(), state: stateCareful, end: 1 << 62, alone: 1<<62 + 1, window: make(map[int64]bool), suspects: make(map[int64]int)}
	const mark = 1 << 61
	for i := range int64(5000) {
		n.window[mark+i*1_000_003_000_001] = true
		n.suspects[mark+i*1_000_003_000_001+5] = int(i%crashesMost) + 1
	}
	var above bits
	above.set(settledMost - 1)
	text := n.textAbove(mark, above)
	if len(text) > 4096 {
		t.Errorf("%d bytes", len(text))
	}
	if got := parseNote(text); len(got.window) == 0 || len(got.suspects) == 0 || !got.settled[mark+settledMost-1] || len(got.settled) != 1 {
		t.Errorf("what was cut is not read: %d in the window, %d suspects, settled are %v", len(got.window), len(got.suspects), got.settled)
	}
	if got := parseNote("redeliver/1 by=a state=run above="); !got.transacts || len(got.settled) > 0 {
		t.Errorf("with nothing settled above it is read as %+v", got)
	}
	for _, text := range []string{"redeliver/1 by=a state=run above=*", "redeliver/1 by=a state=run above=" + string(make([]byte, 2000))} {
		if got := parseNote(text); got.known() {
			t.Errorf("%.40q is taken for %+v", text, got)
		}
	}
}

// What is too far above the mark to be taken up was read, and is in hand.
func TestWhatIsTooFarAboveTheMarkIsHeld(t *testing.T) {
	t.Parallel()
	l := &lane{backlog: 2, flight: delayqueue.NewFlight[*entry](), acc: &account{far: make([]*sarama.ConsumerMessage, 3)}}
	l.count()
	if got := l.flight.Load().Held; got != 5 {
		t.Errorf("%d records are held, want 5", got)
	}
}
