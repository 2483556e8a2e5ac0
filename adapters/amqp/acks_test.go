package amqp

import (
	"errors"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// broker replaces RabbitMQ's side of a channel: its unacked deliveries.
type broker struct {
	unacked []uint64 // ascending
	acked   []uint64
	gone    bool
}

var errGone = errors.New("the channel is closed")

func (b *broker) ack(t *rapid.T, tag uint64, multiple bool) error {
	if b.gone {
		return errGone
	}
	i, known := slices.BinarySearch(b.unacked, tag)
	if !known {
		t.Fatalf("ack of %d, which is not unacked: the broker closes the channel", tag)
	}
	from := i
	if multiple {
		from = 0
	}
	b.acked = append(b.acked, b.unacked[from:i+1]...)
	b.unacked = slices.Delete(b.unacked, from, i+1)
	return nil
}

// model records the state of every delivery.
type model struct {
	broker
	entries map[uint64]*delivery
	settled map[uint64]bool
}

func (m *model) open() []uint64 {
	var tags []uint64
	for _, tag := range m.unacked {
		if !m.settled[tag] {
			tags = append(tags, tag)
		}
	}
	return tags
}

// check compares a with the model. An open delivery is never acked, and a knows all deliveries that are neither acked
// nor returned, in order.
func (m *model) check(t *rapid.T, a *acks) {
	for _, tag := range m.acked {
		if !m.settled[tag] {
			t.Fatalf("%d is open and was acked", tag)
		}
	}
	var withoutAck []uint64
	for e := range a.unsent {
		withoutAck = append(withoutAck, e.tag)
		if (e.ackState == ackSettled) != m.settled[e.tag] {
			t.Fatalf("%d: settled is %v, want %v", e.tag, e.ackState == ackSettled, m.settled[e.tag])
		}
	}
	if !slices.Equal(withoutAck, m.unacked) {
		t.Fatalf("deliveries without an ack are %v, the broker waits for %v", withoutAck, m.unacked)
	}
	if want := len(m.unacked) - len(m.open()); a.pending() != want {
		t.Fatalf("%d are pending, want %d", a.pending(), want)
	}
	if a.pending() == 0 && len(a.behindOpen) > 0 {
		t.Fatalf("behindOpen holds %d reported deliveries", len(a.behindOpen))
	}
}

func TestAcksAgainstAModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var a acks
		m := model{entries: make(map[uint64]*delivery), settled: make(map[uint64]bool)}
		next := uint64(1)
		pick := func(tags []uint64) *delivery {
			if len(tags) == 0 {
				t.Skip("none")
			}
			return m.entries[rapid.SampledFrom(tags).Draw(t, "tag")]
		}
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) { m.check(t, &a) },
			"deliver": func(t *rapid.T) {
				for range rapid.IntRange(1, 20).Draw(t, "n") {
					e := &delivery{tag: next}
					m.entries[next], m.unacked = e, append(m.unacked, next)
					a.add(e)
					next++
				}
			},
			"settle": func(*rapid.T) {
				e := pick(m.open())
				m.settled[e.tag] = true
				a.settle(e)
				a.settle(e) // a second call does nothing
			},
			"settle the oldest": func(*rapid.T) {
				if open := m.open(); len(open) > 0 {
					m.settled[open[0]] = true
					a.settle(m.entries[open[0]])
				}
			},
			"hand back": func(*rapid.T) {
				e := pick(m.open())
				i, _ := slices.BinarySearch(m.unacked, e.tag)
				m.unacked = slices.Delete(m.unacked, i, i+1)
				a.remove(e)
				a.settle(e) // a late answer does not count
			},
			"flush": func(t *rapid.T) {
				enough, force := rapid.IntRange(1, 10).Draw(t, "enough"), rapid.Bool().Draw(t, "force")
				m.gone = rapid.IntRange(0, 9).Draw(t, "gone") == 0
				err := a.flush(enough, force, func(tag uint64, multiple bool) error { return m.ack(t, tag, multiple) })
				open := m.open()
				switch {
				case m.gone: // the broker has no acks; a lane that ends now counts what comes back
				case err != nil:
					t.Fatal(err)
				case force && len(m.unacked) != len(open):
					t.Fatalf("after a forced flush %v are settled and not acked", m.unacked)
				case len(m.unacked) > 0 && m.settled[m.unacked[0]]:
					t.Fatalf("%d is settled, nothing is open below it, and it was not acked", m.unacked[0])
				case len(m.unacked)-len(open) >= enough:
					t.Fatalf("%d are settled and not acked, %d are enough", len(m.unacked)-len(open), enough)
				}
			},
		})
	})
}

// A slow handler once kept an entry with its message for every delivery that was settled before it: gigabytes in five
// minutes.
func TestSlowDeliveryKeepsNoMemoryOfOthers(t *testing.T) {
	var a acks
	a.add(&delivery{tag: 1})
	for tag := uint64(2); tag < 100_000; tag++ {
		e := &delivery{tag: tag}
		a.add(e)
		a.settle(e)
		if err := a.flush(50, false, func(uint64, bool) error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
	known := 0
	for range a.unsent {
		known++
	}
	if known > 50 || cap(a.behindOpen) > 128 {
		t.Errorf("%d deliveries are kept, with room for %d late ones; only 50 may wait for their acks", known, cap(a.behindOpen))
	}
}

// A run of settled deliveries takes one ack, which covers no open one.
func TestRunIsOneAck(t *testing.T) {
	var a acks
	entries := make([]*delivery, 10)
	for i := range entries {
		entries[i] = &delivery{tag: uint64(i) + 1}
		a.add(entries[i])
	}
	for _, i := range []int{3, 0, 2, 1, 5} {
		a.settle(entries[i])
	}
	a.remove(entries[4])
	type call struct {
		tag      uint64
		multiple bool
	}
	var calls []call
	if err := a.flush(100, false, func(tag uint64, multiple bool) error {
		calls = append(calls, call{tag, multiple})
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if want := []call{{6, true}}; !slices.Equal(calls, want) {
		t.Errorf("acks are %v, want %v: 5 was returned, so the broker does not wait for it", calls, want)
	}
}
