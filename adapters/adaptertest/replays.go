package adaptertest

import (
	"fmt"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/middleware"
)

// replays: a dead letter that is sent back reaches the group that failed it.
func replays() []test {
	return []test{
		{name: "ADeadLetterThatIsSentBackRunsAgain", body: func(b *fixture) { replay(b, true) }},
		{name: "ADeadLetterThatIsSentBackWithoutOurHeadersRunsAsNew", body: func(b *fixture) { replay(b, false) }},
		{name: "ADeadLetterThatIsSentBackReachesNoOtherGroup", needs: "ManyGroups", groups: 2, body: func(b *fixture) { replayToOne(b, true) }},
		{name: "ADeadLetterThatIsSentBackWithoutOurHeadersReachesNoOtherGroup", needs: "ManyGroups", groups: 2, body: func(b *fixture) { replayToOne(b, false) }},
	}
}

func replay(b *fixture, headers bool) {
	msgs, _ := numberedMessages(5)
	if headers { // only the headers have its id
		msgs = append(msgs, Message{Body: []byte("without a UUID")})
	}
	fixed := make(chan struct{})
	b.start(Config{Policy: quickPolicy(1)}, func(*attempt) error {
		select {
		case <-fixed:
			return nil
		default:
			return errHandler
		}
	})
	b.put(msgs...)
	awaitEvents[redeliver.DeadLettered](b, len(msgs))
	dead := b.dead(len(msgs))
	bodies := make(map[string]Message) // by id
	for i, m := range dead {
		bodies[b.deadLetterState(m).ID] = Message{ID: m.ID, Body: m.Body}
		if !headers {
			dead[i].Ours = nil
		}
	}
	close(fixed)
	b.h.PutBack(b.T, b.origin, b.group, dead...)
	b.await("the dead letters run again and are committed", func() bool {
		committed, _ := b.ended()
		for id := range bodies {
			if committed[id] == 0 {
				return false
			}
		}
		return len(bodies) == len(msgs)
	})
	for id, m := range bodies {
		as := b.ran(id)
		if len(as) != 3 {
			b.Errorf("%s ran %d times, want twice and once more", id, len(as))
			continue
		}
		b.checkSame("the replay of "+id, as[2].Seen, m)
		if st := as[2].State; st.Group != b.group || !headers && st.Attempt() != 1 {
			b.Errorf("%s ran again as attempt %d of group %q", id, st.Attempt(), st.Group)
		}
	}
	if found := eventsOf[redeliver.HeadersIgnored](b.journal); headers && len(found) > 0 {
		b.Errorf("a dead letter's own headers are not believed: %+v", found[0])
	}
}

// replayToOne sends dead letters of one group back, beside another group that has handled the same messages. Over the
// origin it would get them again.
func replayToOne(b *fixture, headers bool) {
	const n = 5
	msgs, ids := numberedMessages(n)
	other := newJournal()
	fixed := make(chan struct{})
	b.start(Config{Policy: quickPolicy(1)}, func(*attempt) error {
		select {
		case <-fixed:
			return nil
		default:
			return errHandler
		}
	})
	b.startAs(b.groups[1], other, Config{Policy: quickPolicy(1)}, succeed, middleware.Retry())
	b.put(msgs...)
	awaitEvents[redeliver.DeadLettered](b, n)
	dead := b.dead(n)
	if !headers {
		for i := range dead {
			dead[i].Ours = nil
		}
	}
	close(fixed)
	b.h.PutBack(b.T, b.origin, b.group, dead...)
	b.await("the dead letters run again and are committed", func() bool {
		committed, _ := b.ended()
		return len(committed) == n
	})
	// Anything that was written to the origin meanwhile comes before these, in every part of an origin.
	last := make([]string, 8)
	for i := range last {
		last[i] = fmt.Sprintf("last-%d", i)
	}
	b.put(namedMessages(last...)...)
	other.await(b.T, "the other group handles all there is", func() bool {
		committed, _ := other.ended()
		return len(committed) == n+len(last)
	})
	for _, id := range ids {
		if got := len(other.ran(id)); got != 1 {
			b.Errorf("group %s, which failed nothing, ran %s %d times", b.groups[1], id, got)
		}
	}
}
