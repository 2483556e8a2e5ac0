package adaptertest

import (
	"fmt"
	"slices"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/middleware"
)

// replays tests that a dead letter that is sent back reaches the group that failed it.
func replays() []test {
	return []test{
		{name: "ADeadLetterThatIsSentBackRunsAgain", body: func(b *fixture) { replay(b, true) }},
		{name: "ADeadLetterThatIsSentBackWithoutOurHeadersRunsAsNew", body: func(b *fixture) { replay(b, false) }},
		{name: "ADeadLetterThatIsSentBackReachesNoOtherGroup", needs: "ManyGroups", groups: 2, body: func(b *fixture) { replayToOne(b, true) }},
		{name: "ADeadLetterThatIsSentBackWithoutOurHeadersReachesNoOtherGroup", needs: "ManyGroups", groups: 2, body: func(b *fixture) { replayToOne(b, false) }},
	}
}

// sentBack makes dead letters, lets the handler succeed, and sends them back with redeliver's headers or without.
func (b *fixture) sentBack(headers bool, msgs []Message) (dead []Message) {
	fixed := make(chan struct{})
	b.start(Config{Policy: quickPolicy(1)}, declineUntil(fixed))
	b.put(msgs...)
	awaitEvents[redeliver.DeadLettered](b, len(msgs))
	dead = b.dead(len(msgs))
	back := slices.Clone(dead)
	if !headers {
		for i := range back {
			back[i].OwnHeaders = nil
		}
	}
	close(fixed)
	b.h.PutRetries(b.T, b.origin, b.group, back...)
	return dead
}

func replay(b *fixture, headers bool) {
	msgs, _ := numberedMessages(5)
	if headers { // only the headers have its id
		msgs = append(msgs, Message{Body: []byte("without a UUID")})
	}
	for _, m := range b.sentBack(headers, msgs) {
		id := b.deadLetterState(m).ID
		b.awaitCommits(id)
		as := b.ran(id)
		if len(as) != 3 {
			b.Errorf("%s ran %d times, want twice and once more", id, len(as))
			continue
		}
		b.checkSame("the replay of "+id, as[2].Seen, Message{ID: m.ID, Body: m.Body})
		if st := as[2].State; st.Group != b.group || !headers && st.Attempt() != 1 {
			b.Errorf("%s ran again as attempt %d of group %q", id, st.Attempt(), st.Group)
		}
	}
	if found := eventsOf[redeliver.HeadersIgnored](b.journal); headers && len(found) > 0 {
		b.Errorf("a dead letter's own headers are not trusted: %+v", found[0])
	}
}

// replayToOne sends dead letters back to one group. Another group has handled the same messages, and must not get them again.
func replayToOne(b *fixture, headers bool) {
	msgs, ids := numberedMessages(5)
	other := newJournal()
	b.startAs(b.groups[1], other, Config{Policy: quickPolicy(1)}, succeed, middleware.Retry())
	b.sentBack(headers, msgs)
	b.awaitCommits(ids...)
	b.ranOnceIn(other, ids)
}

// ranOnceIn checks that the second group ran each message once. It first waits for further messages in all parts of the
// origin: a copy that was written to the origin would come before them.
func (b *fixture) ranOnceIn(other *journal, ids []string) {
	b.Helper()
	last := make([]string, 8)
	for i := range last {
		last[i] = fmt.Sprint("last-", i)
	}
	b.put(namedMessages(last...)...)
	other.await(b.T, "the other group handles all there is", func() bool {
		committed, _ := other.ended()
		return len(committed) == len(ids)+len(last)
	})
	for _, id := range ids {
		if n := len(other.ran(id)); n != 1 {
			b.Errorf("group %s, which failed nothing, ran %s %d times", b.groups[1], id, n)
		}
	}
}
