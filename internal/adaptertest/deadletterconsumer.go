package adaptertest

import (
	"github.com/redeliver/redeliver"
)

// consuming tests that a DLQ may have a consumer, which is an ordinary subscription.
func consuming() []deadTest {
	return []deadTest{
		{name: "ADLQMayHaveAConsumer", body: consumed, possible: func(h *Harness) bool { return h.DLQTopic != nil }},
	}
}

// consumed has a second service that reads the DLQ and fails its messages. The DLQ of that service is replayed, too.
func consumed(d *dlqFixture) {
	msgs, ids := numberedMessages(3)
	for i := range msgs {
		msgs[i].Headers = []Header{{"tenant", []byte("acme")}}
		if d.h.Features.OrderFirstAttempts {
			msgs[i].Key = []byte("k")
		}
	}
	d.makeDeadLetters(failAlways, msgs...)
	topic, group := d.h.DLQTopic(d.origin, d.group)
	audit := &fixture{T: d.T, journal: newJournal(), h: d.h, origin: topic, group: group, groups: []string{group}}
	up := make(chan struct{})
	audit.start(Config{Policy: quickPolicy(1)}, declineUntil(up))
	awaitEvents[redeliver.DeadLettered](audit, len(msgs))
	close(up)
	q, _ := d.open(d.T, topic, group)
	d.Cleanup(func() { _ = q.Close() })
	if t := d.runReplay(q, newReplay()); t.Counts.Replayed != int64(len(msgs)) {
		d.Errorf("the replay of the consumer's own DLQ says %+v", t.Counts)
	}
	audit.awaitCommits(ids...)
	for i, id := range ids {
		as := audit.ran(id)
		if len(as) != 3 {
			d.Fatalf("%s ran %d times behind the DLQ, want twice and, replayed, once more", id, len(as))
		}
		for n, a := range as {
			d.checkSame("the dead letter "+id, a.Seen, msgs[i])
			st, was := a.State, a.State.DeadLetter
			if st.ID != id || st.Origin != topic || st.Group != group || st.Attempt() != []int{1, 2, 1}[n] {
				d.Errorf("behind the DLQ %s is attempt %d of %s, origin %s, group %s", id, st.Attempt(), st.ID, st.Origin, st.Group)
			}
			if was == nil {
				d.Errorf("attempt %d of %s behind the DLQ has no state of the dead letter", st.Attempt(), id)
				continue
			}
			if was.ID != id || was.Origin != d.origin || was.Group != d.group || was.Attempts != 1 || was.Reason != redeliver.ReasonExhausted ||
				was.Error != errHandler.Error() || was.LastFailed.IsZero() {
				d.Errorf("the dead letter %s was %+v", id, *was)
			}
		}
	}
	if found := eventsOf[redeliver.HeadersIgnored](audit.journal); len(found) > 0 {
		d.Errorf("the consumer of a DLQ is warned of its headers: %+v", found[0])
	}
}
