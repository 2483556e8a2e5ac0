package loss

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// The whole suite depends on the checker, so each of its findings is tested: a run without a fault, and one fault at a
// time.
func TestChecker(t *testing.T) {
	start := time.Unix(1_700_000_000, 0)
	for _, c := range []struct {
		name  string
		fault func(*evidence)
		want  func(*checkResult) bool
	}{
		{"no fault", func(*evidence) {}, func(v *checkResult) bool {
			return v.ok() && v.rerun == 0 && v.deadAgain == 0 && len(v.notRepeated) == 0
		}},
		{"a commit is missing", func(ev *evidence) { dropLines(ev, succeeded, "m000003") }, func(v *checkResult) bool { return len(v.lost) == 1 }},
		{"a dead letter is missing", func(ev *evidence) { ev.dead = nil }, func(v *checkResult) bool { return len(v.lost) == 1 }},
		{"a run before its due time", func(ev *evidence) { shift(ev, entered, "m000001", 2, -time.Millisecond) }, func(v *checkResult) bool { return len(v.early) >= 1 }},
		{"a first run with a due time", func(ev *evidence) { shiftDue(ev, "m000003", 0) }, func(v *checkResult) bool { return len(v.early) == 1 }},
		{"a suspect's first run with a due time", func(ev *evidence) {
			ev.suspects = true
			shiftDue(ev, "m000003", 0)
		}, func(v *checkResult) bool { return v.ok() && v.suspects == 1 }},
		{"a suspect's first run before its due time", func(ev *evidence) {
			ev.suspects = true
			shiftDue(ev, "m000003", time.Millisecond)
		}, func(v *checkResult) bool { return len(v.early) == 1 }},
		{"a due before its wait", func(ev *evidence) {
			l := find(ev, entered, "m000001", 2)
			l.at, l.due = l.at.Add(-50*time.Millisecond), l.due.Add(-60*time.Millisecond)
		}, func(v *checkResult) bool { return len(v.early) == 1 }},
		{"a retry of a message that never failed", func(ev *evidence) {
			ev.journal = append(ev.journal, line{kind: entered, id: "m000003", attempt: 2, at: start.Add(time.Hour), due: start, text: "m000003"})
		}, func(v *checkResult) bool { return !v.ok() }},
		{"a dead letter of a committed message", func(ev *evidence) {
			l := ev.dead[0]
			l.id = "m000003"
			ev.dead = append(ev.dead, l)
		}, func(v *checkResult) bool { return len(v.wrong) >= 1 }},
		{"another reason", func(ev *evidence) { ev.dead[0].meta["reason"] = "permanent" }, func(v *checkResult) bool { return len(v.wrong) == 1 }},
		{"another value", func(ev *evidence) { ev.dead[0].value = []byte("?") }, func(v *checkResult) bool { return len(v.wrong) == 1 }},
		{"a null that became empty", func(ev *evidence) {
			ev.dead[0].headers = slices.Clone(ev.dead[0].headers)
			for i, h := range ev.dead[0].headers {
				if h.value == nil {
					ev.dead[0].headers[i].value = []byte{}
				}
			}
		}, func(v *checkResult) bool { return len(v.wrong) == 1 }},
		{"another key", func(ev *evidence) { ev.dead[0].key = nil }, func(v *checkResult) bool { return len(v.wrong) == 1 }},
		{"ignored headers", func(ev *evidence) { ev.journal = append(ev.journal, line{kind: ignored, id: "x"}) }, func(v *checkResult) bool { return len(v.wrong) == 1 }},
		{"a run twice", func(ev *evidence) { ev.journal = append(ev.journal, *find(ev, entered, "m000003", 1)) }, func(v *checkResult) bool { return v.ok() && v.rerun == 1 && v.duplicated == 1 }},
		{"a dead letter twice", func(ev *evidence) { ev.dead = append(ev.dead, ev.dead[0]) }, func(v *checkResult) bool { return v.ok() && v.deadAgain == 1 }},
		{"a kill whose message nobody ran again", func(ev *evidence) {
			ev.journal = append(ev.journal, line{kind: killed, id: "m000003", attempt: 1, at: start.Add(time.Hour), text: "committing with 1 acked"})
		}, func(v *checkResult) bool { return len(v.notRepeated) == 1 && v.kills[committing] == 1 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			ev := validEvidence(start)
			c.fault(&ev)
			if v := check(ev); !c.want(v) {
				t.Errorf("lost %q, early %q, wrong %q, not repeated %q, %d runs and %d dead letters again", v.lost, v.early, v.wrong, v.notRepeated, v.rerun, v.deadAgain)
			}
		})
	}
}

// validEvidence returns the evidence of ten messages, one of which (m000000) always fails and two (m000001, m000002) fail
// once.
func validEvidence(start time.Time) evidence {
	ev := evidence{items: makeItems(rand.New(rand.NewPCG(1, 1)), 10, 0, 0)}
	slices.SortFunc(ev.items, func(a, b *item) int { return int(a.id[6]) - int(b.id[6]) })
	for i, it := range ev.items {
		it.uuid, it.place = true, "topic/0/1"
		switch i {
		case 0:
			it.rule = always
		case 1, 2:
			it.rule = once
		}
		at := start
		var due time.Time
		for n := 1; n <= it.attempts(); n++ {
			ev.journal = append(ev.journal, line{kind: entered, id: it.id, attempt: n, at: at, due: due, text: it.id})
			if it.rule != always && n == it.attempts() {
				ev.journal = append(ev.journal, line{kind: succeeded, id: it.id, attempt: n, at: at})
				break
			}
			ev.journal = append(ev.journal, line{kind: failed, id: it.id, attempt: n, at: at})
			due = at.Add(it.wait(n))
			at = due
		}
		if it.rule == always {
			ev.dead = append(ev.dead, deadLetter{
				id: it.id, key: it.key, value: it.value, headers: it.headers, place: it.place,
				meta: map[string]string{
					"reason": "exhausted", "attempt": "4", "error": errRule.Error(), "id": it.id,
					"first-failed": start.Format(time.RFC3339Nano), "last-failed": start.Add(1700 * time.Millisecond).Format(time.RFC3339Nano),
				},
			})
		}
	}
	return ev
}

func find(ev *evidence, k kind, id string, attempt int) *line {
	i := slices.IndexFunc(ev.journal, func(l line) bool { return l.kind == k && l.id == id && l.attempt == attempt })
	return &ev.journal[i]
}

func shift(ev *evidence, k kind, id string, attempt int, by time.Duration) {
	l := find(ev, k, id, attempt)
	l.at = l.at.Add(by)
}

// shiftDue gives a first run a due time that is later by after.
func shiftDue(ev *evidence, id string, after time.Duration) {
	l := find(ev, entered, id, 1)
	l.due = l.at.Add(after)
}

func dropLines(ev *evidence, k kind, id string) {
	ev.journal = slices.DeleteFunc(ev.journal, func(l line) bool { return l.kind == k && l.id == id })
}
