package adaptertest

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/redeliver/redeliver"
)

// crashes: a process may be killed at any time, and nothing is lost.
func crashes() []test {
	return []test{
		{name: "AKillMidHandlerLosesNothingAndCountsNothing", needs: "KeepsAttempts", body: killMidHandler},
		{name: "AKillMidWaitLosesNothing", needs: "KeepsAttempts", body: killMidWait},
		{name: "AMessageThatKillsItsProcessEndsAsCrashed", needs: "CountsCrashes", body: killerAmongNeighbours},
		{name: "OthersWaitWhileASuspectRuns", needs: "CountsCrashes", body: othersWait},
	}
}

func killMidHandler(b *fixture) {
	n := 10
	if !b.h.Features.NoHeadOfLineBlocking {
		n = 0
	}
	msgs, ids := numberedMessages(n)
	msgs = append(msgs, Message{Body: []byte("without a UUID")})
	p := b.start(Config{Policy: quickPolicy(3)}, func(*attempt) error {
		<-b.Context().Done()
		return nil
	})
	b.put(msgs...)
	b.await("all handlers run", func() bool { return len(b.all()) == n+1 })
	p.kill()
	next := b.start(Config{Policy: quickPolicy(3)}, succeed)
	b.awaitEnds(ids...)
	var before, after, without []string
	b.await("the one without a UUID is handled", func() bool {
		before, after, without = nil, nil, nil
		for _, a := range b.all() {
			switch {
			case a.Process == next:
				after = append(after, string(a.Payload))
			case !a.Dying: // a kill inside this process takes a moment
				before = append(before, string(a.Payload))
			}
			if string(a.Payload) == "without a UUID" {
				without = append(without, a.State.ID)
			}
		}
		return slices.Contains(after, "without a UUID")
	})
	slices.Sort(before)
	slices.Sort(after)
	if want := append(slices.Clip(ids), "without a UUID"); !slices.Equal(before, want) || !slices.Equal(after, want) {
		b.Errorf("before the kill ran %q, and after it %q, want each message once", before, after)
	}
	if len(slices.Compact(without)) != 1 {
		b.Errorf("the one without a UUID had the ids %q", without)
	}
	for _, a := range b.all() {
		if a.State.Attempt() != 1 {
			b.Errorf("%s ran as attempt %d, want 1: a crash is no attempt", a.State.ID, a.State.Attempt())
		}
	}
	b.dead(0)
}

func killMidWait(b *fixture) {
	const n, delay = 50, 700 * time.Millisecond
	msgs, ids := numberedMessages(n)
	p := redeliver.Policy{
		MaxRetries: 1, Backoff: redeliver.Fixed(delay),
		Levels: []time.Duration{200 * time.Millisecond, 500 * time.Millisecond},
	}
	was := b.start(Config{Policy: p}, failFirst(1))
	b.put(msgs...)
	awaitEvents[redeliver.RetryScheduled](b, n)
	was.kill()
	b.start(Config{Policy: p}, failFirst(1))
	b.await("every second attempt", func() bool {
		committed, _ := b.ended()
		return len(committed) == n
	})
	b.checkNotEarly(constantDelay(delay), ids...)
	for _, id := range ids {
		// A duplicate of the first attempt is allowed: its ack may be lost.
		for _, k := range numbers(b.ran(id)) {
			if k > 2 {
				b.Errorf("%s ran as attempt %d, want 2 at most", id, k)
			}
		}
	}
}

// killerAmongNeighbours: other messages are in flight when one kills the process, and are not charged.
func killerAmongNeighbours(b *fixture) {
	const crashes = 2
	neighbours := []string{"n1", "n2", "n3", "n4", "n5"}
	p := quickPolicy(3)
	p.MaxCrashes = crashes
	cfg := Config{Policy: p}
	b.put(namedMessages(append([]string{"killer"}, neighbours...)...)...)
	died := 0
	for b.killedByMessage(cfg, &died, append(neighbours, "killer")) {
		// A kill may leave a copy.
		if died > b.maxCrashesBeside()+2*crashes+3 {
			b.Fatalf("%d processes died of the killer, MaxCrashes is %d", died, crashes)
		}
	}
	if died < crashes {
		b.Errorf("it was buried after %d crashes, MaxCrashes is %d", died, crashes)
	}
	st := b.deadLetterState(b.dead(1)[0])
	b.checkReason(st, redeliver.ReasonCrashed, 0)
	if st.ID != "killer" {
		b.Errorf("%s is in the DLQ, want the killer", st.ID)
	}
	for _, id := range neighbours {
		for _, a := range b.ran(id) {
			if a.State.Attempt() != 1 {
				b.Errorf("%s ran as attempt %d, want 1: it killed nobody", id, a.State.Attempt())
			}
		}
	}
	b.Logf("report: %d processes died of one message, MaxCrashes is %d", died, crashes)
}

// killedByMessage starts a process and reports whether the killer killed it. If not, all messages have ended.
func (b *fixture) killedByMessage(cfg Config, times *int, ids []string) bool {
	b.Helper()
	before := len(b.ran("killer"))
	p := b.start(cfg, func(a *attempt) error {
		if a.State.ID == "killer" {
			<-b.Context().Done()
		}
		return nil
	})
	killed, over := false, false
	b.await("the killer runs, or all have ended", func() bool {
		killed = len(b.ran("killer")) > before
		committed, dead := b.ended()
		over = true
		for _, id := range ids {
			over = over && committed[id]+dead[id] > 0
		}
		return killed || over
	})
	if !killed {
		return false
	}
	p.kill()
	*times++
	return true
}

// maxCrashesBeside returns how often a message may kill its process before it runs alone.
func (b *fixture) maxCrashesBeside() int { return cmp.Or(b.h.CrashesBeside, 2) }

// othersWait: messages in flight beside the killer, and those that come while it runs, do not run beside it when that
// counts, are not charged, and are handled. One charge would send them to the DLQ.
func othersWait(b *fixture) {
	const work = 200 * time.Millisecond
	p := quickPolicy(3)
	p.MaxCrashes = 1
	ids := []string{"n1", "n2", "n3", "n4", "n5"}
	b.put(namedMessages(append(ids, "killer")...)...)
	var killed time.Time // when the last process was killed
	for died := 0; ; died++ {
		if died > b.maxCrashesBeside()+4 {
			b.Fatalf("%d processes died of the killer, MaxCrashes is 1", died)
		}
		before := len(b.ran("killer"))
		ran := make(chan struct{}) // the killer runs
		proc := b.start(Config{Policy: p}, func(a *attempt) error {
			if a.State.ID == "killer" {
				close(ran)
				<-b.Context().Done()
				return nil
			}
			// If the killer comes beside it, this handler ends after the killer has started.
			timer := time.NewTimer(work)
			defer timer.Stop()
			select {
			case <-ran:
				<-b.Context().Done()
			case <-timer.C:
			}
			return nil
		})
		all := append(slices.Clone(ids), "killer")
		b.await("the killer runs, or all have ended", func() bool {
			committed, dead := b.ended()
			return len(b.ran("killer")) > before ||
				!slices.ContainsFunc(all, func(id string) bool { return committed[id]+dead[id] == 0 })
		})
		if len(b.ran("killer")) == before {
			break
		}
		more := fmt.Sprintf("beside-%d", died)
		ids = append(ids, more)
		b.put(namedMessages(more)...)
		chance := time.NewTimer(work) // time in which the others could begin, but must not
		<-chance.C
		killed = time.Now()
		proc.kill()
	}
	st := b.deadLetterState(b.dead(1)[0])
	b.checkReason(st, redeliver.ReasonCrashed, 0)
	if st.ID != "killer" {
		b.Errorf("%s is in the DLQ, want the killer", st.ID)
	}
	runs := b.ran("killer")
	last := runs[len(runs)-1]
	for _, a := range b.all() {
		if a.State.Attempt() != 1 {
			b.Errorf("%s ran as attempt %d, want 1: it killed nobody", a.State.ID, a.State.Attempt())
		}
		beside := a.Process == last.Process && a.State.ID != "killer" && !a.Began.After(killed) &&
			(a.Ended.IsZero() || a.Ended.After(last.Began))
		if beside {
			b.Errorf("%s ran beside the killer, which was charged with the crash", a.State.ID)
		}
	}
}
