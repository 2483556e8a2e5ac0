package history

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

const second = int64(time.Second)

// builder builds a history with an entry for each second.
type builder struct {
	lines []Line
	now   int64
}

// at sets the clock, in seconds.
func (s *builder) at(seconds float64) *builder {
	s.now = 1_700_000_000*second + int64(seconds*float64(second))
	return s
}

func (s *builder) add(l Line) *builder {
	l.At = s.now
	if l.Process == "" {
		l.Process = "consumer"
	}
	s.lines = append(s.lines, l)
	return s
}

// write writes a message to the load and confirms it. Its offset is its number.
func (s *builder) write(load string, n int, key string, r Rule) *builder {
	id := fmt.Sprintf("%s-%d", load, n)
	s.add(Line{Kind: Write, ID: id, Load: load, Key: key, Rule: r, Sum: 7})
	return s.add(Line{Kind: Written, ID: id, Load: load, Offset: int64(n)})
}

func (s *builder) begin(id string, attempt int, due float64) *builder {
	l := Line{Kind: Begin, ID: id, Name: "name of " + id, Attempt: attempt, Sum: 7, Local: s.now}
	if due > 0 {
		l.Due = (&builder{}).at(due).now
	}
	return s.add(l)
}

func (s *builder) end(id string, attempt int, outcome string) *builder {
	return s.add(Line{Kind: End, ID: id, Attempt: attempt, Outcome: outcome})
}

func (s *builder) deadLetter(id string) *builder {
	return s.add(Line{Kind: Dead, ID: id, Name: "name of " + id, Attempt: 3, Reason: "exhausted", Sum: 7})
}

// validHistory returns a history without violations. In the load "keys" (OrderFirstAttempts) 1 succeeds, 2 fails once, 3 always. In
// "lines" (OrderThroughRetries) 1 fails once, and 2 of the same key waits for it. Waits are one and two seconds.
func validHistory() *builder {
	s := (&builder{}).at(0)
	steps := []time.Duration{time.Second, 2 * time.Second}
	s.add(Line{Kind: Began, Run: &Run{Broker: "kafka", Seed: 1, Linger: 5 * time.Second, Loads: []Load{
		{Name: "keys", Steps: steps, Order: OrderFirstAttempts}, {Name: "lines", Steps: steps, Order: OrderThroughRetries},
	}}})
	s.write("keys", 1, "k", Never).write("keys", 2, "k", Once).write("keys", 3, "k", Always)
	s.write("lines", 1, "k", Once).write("lines", 2, "k", Never).write("lines", 3, "other", Never)
	s.at(1).begin("keys-1", 1, 0).at(1.1).end("keys-1", 1, OK)
	s.at(1.2).begin("keys-2", 1, 0).at(1.3).end("keys-2", 1, Failed)
	s.at(1.4).begin("keys-3", 1, 0).at(1.5).end("keys-3", 1, Failed)
	s.at(1.6).begin("lines-1", 1, 0).at(1.7).end("lines-1", 1, Failed)
	s.at(1.8).begin("lines-3", 1, 0).at(1.9).end("lines-3", 1, OK)
	s.at(2.31).begin("keys-2", 2, 2.3).at(2.4).end("keys-2", 2, OK)
	s.at(2.51).begin("keys-3", 2, 2.5).at(2.6).end("keys-3", 2, Failed)
	s.at(2.71).begin("lines-1", 2, 2.7).at(2.8).end("lines-1", 2, OK)
	s.at(2.9).begin("lines-2", 1, 2.7).at(3).end("lines-2", 1, OK)
	s.at(4.61).begin("keys-3", 3, 4.6).at(4.7).end("keys-3", 3, Failed)
	return s.at(30).deadLetter("keys-3").add(Line{Kind: Settled})
}

// without removes the lines that find accepts.
func (s *builder) without(find func(Line) bool) *builder {
	s.lines = slices.DeleteFunc(s.lines, find)
	return s
}

// change changes the lines of a message's attempt.
func (s *builder) change(id string, attempt int, change func(*Line)) *builder {
	for i := range s.lines {
		if l := &s.lines[i]; l.ID == id && l.Attempt == attempt {
			change(l)
		}
	}
	return s
}

// fault adds a fault between two times, in seconds.
func (s *builder) fault(from, to float64) *builder {
	s.at(from).add(Line{Kind: Fault, What: "partition", Target: "node 1"})
	return s.at(to).add(Line{Kind: Healed, What: "partition", Target: "node 1"})
}

func (s *builder) clock(at, offset float64) *builder {
	return s.at(at).add(Line{Kind: Clock, Offset: int64(offset * float64(second))})
}

// earlier makes a retry run that much before the end of its wait.
func earlier(s *builder, seconds float64) *builder {
	return s.change("keys-2", 2, func(l *Line) { l.At -= int64(seconds * float64(second)) })
}

// copied repeats the run of an attempt, and also the write after an attempt.
func copied(s *builder, after int) *builder {
	s.at(1.4).add(Line{Kind: Tried, Name: "name of keys-2", Attempt: after})
	return s.at(12).begin("keys-2", 2, 2.3).at(12.1).end("keys-2", 2, OK)
}

// takenTooSoon makes a retry run half a second before the end of its wait: a process whose clock was ahead took it from
// its level.
func takenTooSoon(s *builder, at, offset float64) *builder {
	earlier(s, 0.5).at(1.7).add(Line{Kind: Odd, ID: "keys-2", Reason: DueTime})
	s.at(at).add(Line{Kind: Clock, Process: "another", Offset: int64(offset * float64(second))})
	return s.at(at + 0.3).add(Line{Kind: Clock, Process: "another"})
}

// The whole suite depends on the checker. Each of its findings has a history that must have it, and, if something
// excuses it, the same history with the excuse.
func TestCheckerFinds(t *testing.T) {
	again := func(s *builder) *builder { return s.at(8).begin("keys-1", 1, 0).at(8.1).end("keys-1", 1, OK) }
	for _, c := range []struct {
		name string
		with func(*builder) *builder
		want string // the kinds of the violations
	}{
		{"a run without a fault", func(s *builder) *builder { return s }, ""},
		{"a commit that is missing", func(s *builder) *builder {
			return s.without(func(l Line) bool { return l.ID == "keys-1" && l.Kind == End })
		}, "lost, order"}, // a later message of its key ran nevertheless
		{"a dead letter that is missing", func(s *builder) *builder { return s.without(func(l Line) bool { return l.Kind == Dead }) }, "lost"},
		{"a message that did not run", func(s *builder) *builder { return s.at(1).write("keys", 9, "", Never) }, "lost"},
		{"not the loss of an unconfirmed message", func(s *builder) *builder {
			return s.at(1).add(Line{Kind: Write, ID: "x", Load: "keys", Rule: Never})
		}, ""},
		{"the loss of an unconfirmed message that ran", func(s *builder) *builder {
			return s.at(1).add(Line{Kind: Write, ID: "x", Load: "keys", Rule: Never, Sum: 7}).begin("x", 1, 0)
		}, "lost"},
		{"two ends", func(s *builder) *builder {
			return s.at(5).begin("keys-3", 3, 4.6).end("keys-3", 3, OK).fault(4, 5)
		}, "two ends"},
		{"a commit of a message that always fails", func(s *builder) *builder {
			return s.without(func(l Line) bool { return l.Kind == Dead }).at(5).end("keys-3", 3, OK)
		}, "wrong end"},
		{"a dead letter of a message that does not always fail", func(s *builder) *builder {
			return s.without(func(l Line) bool { return l.ID == "keys-2" && l.Outcome == OK }).deadLetter("keys-2")
		}, "wrong end"},
		{"a dead letter with another reason", func(s *builder) *builder {
			return s.change("keys-3", 3, func(l *Line) {
				if l.Kind == Dead {
					l.Reason = "crashed"
				}
			})
		}, "wrong end"},
		{"a dead letter too soon", func(s *builder) *builder {
			return s.change("keys-3", 3, func(l *Line) {
				if l.Kind == Dead {
					l.Attempt = 2
				}
			})
		}, "wrong end"},
		{"a retry before its time", func(s *builder) *builder { return earlier(s, 0.05) }, "early"},
		{"not if its consumer's clock was ahead", func(s *builder) *builder { return earlier(s, 0.05).clock(2, 1) }, ""},
		{"one, where it was not as much ahead", func(s *builder) *builder { return earlier(s, 0.5).clock(2, 0.4) }, "early"},
		{"not if the clock of the failure was behind", func(s *builder) *builder { return earlier(s, 0.05).clock(1.25, -1).clock(2.2, 0) }, ""},
		{"also if another clock was ahead", func(s *builder) *builder {
			return earlier(s, 0.05).at(2).add(Line{Kind: Clock, Process: "another", Offset: second})
		}, "early"},
		{"not if the clock of the failure was ahead and the wait is over", func(s *builder) *builder { return s.clock(1, 1).clock(2, 0) }, ""},
		{"not if the reader's clock was behind and its due time was doubted", func(s *builder) *builder {
			return earlier(s, 0.5).at(1.4).add(Line{Kind: Odd, ID: "keys-2", Reason: DueTime}).clock(1.35, -1).clock(1.7, 0)
		}, ""},
		{"also if the reader's clock was less behind", func(s *builder) *builder {
			return earlier(s, 0.5).at(1.4).add(Line{Kind: Odd, ID: "keys-2", Reason: DueTime}).clock(1.35, -0.2).clock(1.7, 0)
		}, "early"},
		{"not if a third clock was ahead and its due time was doubted", func(s *builder) *builder { return takenTooSoon(s, 1.5, 1) }, ""},
		{"one, where it was not as much ahead", func(s *builder) *builder { return takenTooSoon(s, 1.5, 0.4) }, "early"},
		{"also if it was ahead later", func(s *builder) *builder { return takenTooSoon(s, 1.75, 1) }, "strange, early"},
		{"a retry without a due time", func(s *builder) *builder { return s.change("keys-2", 2, func(l *Line) { l.Due = 0 }) }, "early"},
		{"a first attempt with a due time", func(s *builder) *builder { return s.change("keys-1", 1, func(l *Line) { l.Due = l.At }) }, "early"},
		{"an attempt before its former one has failed", func(s *builder) *builder {
			return s.without(func(l Line) bool { return l.ID == "keys-3" && l.Kind == End && l.Attempt == 1 })
		}, "skipped"},
		{"an attempt that never ran", func(s *builder) *builder {
			return s.without(func(l Line) bool { return l.ID == "keys-3" && l.Attempt == 2 })
		}, "skipped, skipped"},
		{"an attempt too many", func(s *builder) *builder {
			return s.at(2.5).end("keys-1", 1, Failed).at(5).begin("keys-1", 2, 4)
		}, "too many"},
		{"a run again without a fault", again, "again"},
		{"none with one", func(s *builder) *builder { return again(s).fault(2, 3) }, ""},
		{"not during a fault", func(s *builder) *builder { return again(s).at(7).add(Line{Kind: Fault, What: "x"}) }, ""},
		{"not if partitions moved", func(s *builder) *builder { return again(s).at(7).add(Line{Kind: Moved, What: "revoked"}) }, ""},
		{"also if the fault was over long before", func(s *builder) *builder { return again(s).fault(-20, -10) }, "again"},
		{"also if the fault came later", func(s *builder) *builder { return again(s).fault(9, 10) }, "again"},
		{"not if the previous attempt failed twice, long ago", func(s *builder) *builder {
			return s.at(1.55).begin("keys-3", 1, 0).end("keys-3", 1, Failed).fault(-7, -3.5).at(10).begin("keys-3", 2, 2.5).at(10.1).end("keys-3", 2, Failed)
		}, ""},
		{"also if it ran a third time", func(s *builder) *builder {
			s.at(1.55).begin("keys-3", 1, 0).end("keys-3", 1, Failed).fault(-7, -3.5).at(10).begin("keys-3", 2, 2.5).at(10.1).end("keys-3", 2, Failed)
			return s.at(11).begin("keys-3", 2, 2.5).at(11.1).end("keys-3", 2, Failed)
		}, "again"},
		{"not if it was written during a fault, and the copy ran long after", func(s *builder) *builder {
			return s.fault(1, 1.3).at(8).begin("keys-2", 2, 2.3).at(8.1).end("keys-2", 2, OK).at(12).begin("keys-2", 2, 2.3).at(12.1).end("keys-2", 2, OK)
		}, ""},
		{"not if its write was repeated, and the copy ran long after", func(s *builder) *builder { return copied(s, 1) }, ""},
		{"also if the write of another attempt was repeated", func(s *builder) *builder { return copied(s, 2) }, "again"},
		{"a dead letter twice", func(s *builder) *builder { return s.deadLetter("keys-3") }, "again"},
		{"not with a fault", func(s *builder) *builder { return s.deadLetter("keys-3").fault(2, 3) }, ""},
		{"not if its write was repeated", func(s *builder) *builder {
			return s.deadLetter("keys-3").add(Line{Kind: Tried, Name: "name of keys-3", Attempt: 3})
		}, ""},
		{"another id", func(s *builder) *builder { return s.change("keys-2", 2, func(l *Line) { l.Name = "x" }) }, "renamed"},
		{"other bytes", func(s *builder) *builder {
			return s.change("keys-2", 2, func(l *Line) {
				if l.Kind == Begin {
					l.Sum = 8
				}
			})
		}, "altered"},
		{"other bytes in the DLQ", func(s *builder) *builder {
			return s.change("keys-3", 3, func(l *Line) {
				if l.Kind == Dead {
					l.Sum = 8
				}
			})
		}, "altered"},
		{"a message that was not written", func(s *builder) *builder { return s.at(5).begin("x", 1, 0) }, "unknown"},
		{"a key's second message before its first", func(s *builder) *builder {
			return s.change("keys-2", 1, func(l *Line) { l.At -= second / 2 })
		}, "order"},
		{"not of another key", func(s *builder) *builder {
			return s.change("lines-3", 1, func(l *Line) { l.At -= second / 2 })
		}, ""},
		{"a message of OrderThroughRetries before the failed one has ended", func(s *builder) *builder {
			return s.change("lines-2", 1, func(l *Line) { l.At -= second / 2 })
		}, "order"},
		{"headers that are not trusted", func(s *builder) *builder { return s.at(5).add(Line{Kind: Odd, ID: "keys-1"}) }, "strange"},
		{"due times that are not trusted, with correct clocks", func(s *builder) *builder {
			return s.at(5).add(Line{Kind: Odd, ID: "keys-1", Reason: DueTime})
		}, "strange"},
		{"not with a wrong clock", func(s *builder) *builder {
			return s.at(5).add(Line{Kind: Odd, ID: "keys-1", Reason: DueTime}).clock(4, 5)
		}, ""},
		{"a run that did not settle", func(s *builder) *builder { return s.without(func(l Line) bool { return l.Kind == Settled }) }, "unsettled"},
	} {
		t.Run(c.name, func(t *testing.T) {
			v, err := Check(c.with(validHistory()).lines)
			if err != nil {
				t.Fatal(err)
			}
			var kinds []string
			for _, found := range v.Violations {
				kinds = append(kinds, found.Kind)
			}
			if got := strings.Join(kinds, ", "); got != c.want {
				t.Errorf("it finds %q, want %q: %v", got, c.want, v.Violations)
			}
		})
	}
}

// Correct messages are counted.
func TestCheckerCounts(t *testing.T) {
	s := validHistory().fault(1, 2).at(8).begin("keys-1", 1, 0).at(8.1).end("keys-1", 1, OK)
	v, err := Check(s.lines)
	if err != nil {
		t.Fatal(err)
	}
	if v.Messages != 6 || v.Committed != 5 || v.Dead != 1 || v.Runs != 11 || v.Again != 1 || v.EndsAgain != 1 || v.Faults["partition"] != 1 || len(v.Late) != 4 {
		t.Errorf("%+v", v)
	}
	if want := 10 * time.Millisecond; v.Late[0].Round(time.Millisecond) != want {
		t.Errorf("the earliest retry is %s late, want %s", v.Late[0], want)
	}
}

// A history is read while it grows, and is invalid if its first line is missing.
func TestHistoryIsReadWhileItGrows(t *testing.T) {
	path := filepath.Join(t.TempDir(), "history.jsonl")
	log, err := Open(path, "one")
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	r := NewReader(path)
	var all []Line
	for _, l := range validHistory().lines {
		log.Add(l)
		more, err := r.More()
		if err != nil {
			t.Fatal(err)
		}
		if len(more) != 1 {
			t.Fatalf("%d lines, want the added one: %v", len(more), more)
		}
		all = append(all, more...)
	}
	if v, err := Check(all); err != nil || len(v.Violations) > 0 {
		t.Errorf("%v %v", v, err)
	}
	if _, err := Check(all[1:]); err == nil {
		t.Error("a history without its first line was checked")
	}
}
