package adaptertest

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redeliver/redeliver"
)

// hostileMessage is a message that may break an adapter.
type hostileMessage struct {
	name string
	// make returns the message, and prepares the broker for it.
	make func(b *fixture) Message
	// oversized is the last place for which the message is too large, or empty.
	oversized Place
	// unpacks means that the message is small only while it is compressed.
	unpacks bool
}

var hostileMessages = []hostileMessage{
	{name: "AMessageFullOfHeadersBlocksNoOther", make: fullOfHeaders},
	{name: "AMessageWithForgedStateBlocksNoOther", make: withForgedState},
	{name: "AMessageTooLargeToWaitBlocksNoOther", make: oversized(Levels), oversized: Levels},
	{name: "AMessageTooLargeForTheDLQBlocksNoOther", make: oversized(DLQ), oversized: DLQ},
	{name: "AMessageThatUnpacksTo105MBBlocksNoOther", make: unpacking, oversized: DLQ, unpacks: true},
}

// hostile tests that a hostile message goes to the DLQ and delays no other (promise 3).
func hostile() (all []test) {
	for _, m := range hostileMessages {
		all = append(all, test{name: m.name, body: m.test, possible: func(h *Harness) bool {
			if m.unpacks {
				return h.Compresses
			}
			return m.oversized == "" || h.Oversized[m.oversized] != nil
		}})
	}
	return all
}

// minNeighbourTimeout is the smallest limit for the neighbours of a hostile message to end: adapters repeat a failed
// write every 10 s. On a slow machine the limit is ten times an earlier message's time. The machine may also stop for
// seconds after that message.
const minNeighbourTimeout = 30 * time.Second

func (h *hostileMessage) test(b *fixture) {
	b.start(Config{Policy: quickPolicy(1)}, func(a *attempt) error {
		if strings.HasPrefix(a.State.ID, "neighbour") {
			return nil
		}
		return errHandler
	})
	b.put(namedMessages("neighbour before")...)
	b.awaitEnds("neighbour before") // the process reads now
	took := func(ids []string, msgs ...Message) time.Duration {
		began := time.Now()
		b.put(msgs...)
		b.awaitEnds(ids...)
		return time.Since(began)
	}
	maxTime := max(minNeighbourTimeout, 10*took([]string{"neighbour"}, namedMessages("neighbour")...))
	if h.unpacks { // unpacking with the race detector and beside other tests takes many seconds
		maxTime = max(maxTime, Timeout/2)
	}
	bad := h.make(b)
	bad.ID = "hostile"
	around := []string{"neighbour 1", "neighbour 2", "neighbour 3", "neighbour 4", "neighbour 5", "neighbour 6"}
	if d := took(around, slices.Insert(namedMessages(around...), 3, bad)...); d > maxTime {
		b.Errorf("the neighbours took %s, want at most %s", d, maxTime)
	}
	b.awaitEnds("hostile")
	h.checkDeadLetter(b, bad)
	if d := took([]string{"neighbour behind"}, namedMessages("neighbour behind")...); d > maxTime {
		b.Errorf("a later neighbour took %s, want at most %s", d, maxTime)
	}
	for _, f := range eventsOf[redeliver.HeadersIgnored](b.journal) {
		if len(f.Findings) > 21 {
			b.Errorf("%d findings of %s are reported, want at most %d", len(f.Findings), f.ID, 21)
		}
	}
	for _, c := range eventsOf[redeliver.SubscriptionChanged](b.journal) {
		if c.Err != nil {
			b.Errorf("the subscription reports %s: %v", c.Change, c.Err)
		}
	}
}

// checkDeadLetter checks the dead letter: the unchanged message, a stub that says where the message is, or its parts.
func (h *hostileMessage) checkDeadLetter(b *fixture, bad Message) {
	b.Helper()
	var parts []Message
	if h.oversized == DLQ && b.h.SplitsDeadLetters {
		parts = b.dead(2)
	} else {
		parts = b.dead(1)
	}
	dead := parts[0]
	st := b.deadLetterState(dead)
	if st.ID != bad.ID {
		b.Errorf("the dead letter says that it is %q, want %q", st.ID, bad.ID)
	}
	if h.oversized == DLQ {
		want := fmt.Sprintf("%d sha256:%x", len(bad.Body), sha256.Sum256(bad.Body))
		if st.Truncated != want || st.Reason != redeliver.ReasonUnschedulable || st.Origin != b.origin {
			b.Errorf("the dead letter says %+v, want it to say %s", st, want)
		}
		if !b.h.SplitsDeadLetters {
			if len(dead.Body) > 0 || len(dead.Headers) > 0 {
				b.Errorf("the stub has a body of %d bytes and %d headers, want none", len(dead.Body), len(dead.Headers))
			}
			return
		}
		if other := b.deadLetterState(parts[1]); other != st {
			b.Errorf("the other part says %+v, want %+v", other, st)
		}
		for _, p := range parts {
			b.checkSameHeaders("a part", p.Headers, bad.Headers)
		}
		b.checkSameBody("what the parts make", slices.Concat(parts[0].Body, parts[1].Body), bad.Body)
		return
	}
	b.checkSame("the dead letter", dead, bad)
	switch {
	case st.Truncated != "":
		b.Errorf("the dead letter is whole, and says that it was truncated: %s", st.Truncated)
	case h.oversized == Levels && st.Reason == redeliver.ReasonUnschedulable:
		b.checkReason(st, redeliver.ReasonUnschedulable, 1)
	default: // it may wait in memory, or with a part of its state
		b.wantRuns(bad.ID, 2)
		b.checkReason(st, redeliver.ReasonExhausted, 2)
	}
}

// oversized makes a message that is too large for a place.
func oversized(what Place) func(*fixture) Message {
	return func(b *fixture) Message { return b.h.Oversized[what](b.T, b.origin, b.group) }
}

// unpacking makes a message that compresses to some kilobytes.
func unpacking(*fixture) Message { return Message{Body: make([]byte, 105_000_000)} }

// fullOfHeaders makes a message with as many headers with redeliver's prefix as the broker accepts, at most 60,000.
func fullOfHeaders(b *fixture) Message {
	n := 60_000
	if b.h.MaxHeaders > 0 {
		n = min(n, b.h.MaxHeaders)
	}
	m := Message{Body: []byte("v"), Headers: make([]Header, n)}
	for i := range m.Headers {
		name := redeliver.HeaderPrefix + "a" // if names may repeat, more headers fit
		if !b.h.Features.DuplicateHeaders {
			name += strconv.FormatInt(int64(i), 36)
		}
		m.Headers[i] = Header{name, []byte("x")}
	}
	return m
}

// withForgedState makes a message that claims fifty attempts and a wait of an hour in all headers of the adapter.
func withForgedState(b *fixture) Message {
	return Message{Body: []byte("v"), Headers: copiedHeaders(b)}
}
