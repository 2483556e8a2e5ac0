package adaptertest

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/redeliver/redeliver"
)

// crashes: a process can be killed at any instruction and nothing is lost.
func crashes() []test {
	return []test{
		{name: "AKillMidHandlerLosesNothingAndCountsNothing", needs: "KeepsAttempts", body: killMidHandler},
		{name: "AKillMidWaitLosesNothing", needs: "KeepsAttempts", body: killMidWait},
		{name: "AMessageThatKillsItsProcessEndsAsCrashed", needs: "CountsCrashes", body: killer},
		{name: "OthersWaitWhileASuspectRuns", needs: "CountsCrashes", body: othersWait},
	}
}

func killMidHandler(b *bench) {
	n := 10
	if !b.h.Features.SlowHoldsUpNone {
		n = 0
	}
	msgs, ids := many(n)
	msgs = append(msgs, Message{Body: []byte("without a UUID")})
	p := b.start(Config{Policy: quick(3)}, func(*attempt) error {
		<-b.Context().Done()
		return nil
	})
	b.put(msgs...)
	b.await("all handlers run", func() bool { return len(b.all()) == n+1 })
	p.kill()
	next := b.start(Config{Policy: quick(3)}, succeed)
	b.awaitEnds(ids...)
	var before, after, without []string
	b.await("the one without a UUID is handled", func() bool {
		before, after, without = nil, nil, nil
		for _, a := range b.all() {
			switch {
			case a.Process == next:
				after = append(after, string(a.Payload))
			case !a.Dying: // a kill within this process takes a moment
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

func killMidWait(b *bench) {
	const n, delay = 50, 700 * time.Millisecond
	msgs, ids := many(n)
	p := redeliver.Policy{
		MaxRetries: 1, Backoff: redeliver.Fixed(delay),
		Levels: []time.Duration{200 * time.Millisecond, 500 * time.Millisecond},
	}
	was := b.start(Config{Policy: p}, declineFirst(1))
	b.put(msgs...)
	awaitEvents[redeliver.RetryScheduled](b, n)
	was.kill()
	b.start(Config{Policy: p}, declineFirst(1))
	b.await("every second attempt", func() bool {
		committed, _ := b.ended()
		return len(committed) == n
	})
	b.noneEarlier(always(delay), ids...)
	for _, id := range ids {
		// A duplicate of the first attempt is allowed: its ack may be lost.
		for _, k := range numbers(b.ran(id)) {
			if k > 2 {
				b.Errorf("%s ran as attempt %d, want 2 at most", id, k)
			}
		}
	}
}

// killer: its neighbours are under way when it kills the process, and are not
// charged.
func killer(b *bench) {
	const crashes = 2
	ids := []string{"n1", "n2", "n3", "n4", "n5", "killer"}
	p := quick(3)
	p.MaxCrashes = crashes
	b.put(named(ids...)...)
	// A kill may leave a copy.
	died := b.killUntilBuried(2*crashes+3, ids, func() *process {
		return b.start(Config{Policy: p}, func(a *attempt) error {
			if a.State.ID == "killer" {
				<-b.Context().Done()
			}
			return nil
		})
	}, nil)
	if died < crashes {
		b.Errorf("it was buried after %d crashes, MaxCrashes is %d", died, crashes)
	}
	b.Logf("report: %d processes died of one message, MaxCrashes is %d", died, crashes)
}

// killUntilBuried starts one process after another, and kills each when the killer runs in it, until all messages have
// ended. So many may die, besides those in which it may run beside others. before is called before each kill, nil for
// nothing, and returns further messages that must end. The killer must be in the DLQ then, and nothing else charged.
func (b *bench) killUntilBuried(atMost int, ids []string, start func() *process, before func(died int) (more []string)) (died int) {
	b.Helper()
	for {
		runs := len(b.ran("killer"))
		p := start()
		b.await("the killer runs, or all have ended", func() bool { return len(b.ran("killer")) > runs || b.haveEnded(ids...) })
		if len(b.ran("killer")) == runs {
			break
		}
		if before != nil {
			ids = append(slices.Clip(ids), before(died)...)
		}
		p.kill()
		if died++; died > b.beside()+atMost {
			b.Fatalf("%d processes died of the killer", died)
		}
	}
	if st := b.buried(redeliver.ReasonCrashed, 0); st.ID != "killer" {
		b.Errorf("%s is in the DLQ, want the killer", st.ID)
	}
	for _, a := range b.all() {
		if a.State.Attempt() != 1 {
			b.Errorf("%s ran as attempt %d, want 1: a crash is no attempt", a.State.ID, a.State.Attempt())
		}
	}
	return died
}

// beside is how often a message may kill its process before it runs alone.
func (b *bench) beside() int { return cmp.Or(b.h.CrashesBeside, 2) }

// othersWait: what is in flight beside the killer, time and again, and what comes
// while it runs, is not begun beside it when that counts, is not charged, and is
// handled. One charge would bury it.
func othersWait(b *bench) {
	const work = 200 * time.Millisecond
	p := quick(3)
	p.MaxCrashes = 1
	ids := []string{"n1", "n2", "n3", "n4", "n5", "killer"}
	b.put(named(ids...)...)
	var killed time.Time // when the last process was
	b.killUntilBuried(4, ids, func() *process {
		ran := make(chan struct{}) // the killer runs
		return b.start(Config{Policy: p}, func(a *attempt) error {
			if a.State.ID == "killer" {
				close(ran)
				<-b.Context().Done()
				return nil
			}
			// The work is not over before the killer runs, if that comes beside it.
			timer := time.NewTimer(work)
			defer timer.Stop()
			select {
			case <-ran:
				<-b.Context().Done()
			case <-timer.C:
			}
			return nil
		})
	}, func(died int) []string {
		more := fmt.Sprintf("beside-%d", died)
		b.put(named(more)...)
		chance := time.NewTimer(work) // for the others to begin, which they must not take
		<-chance.C
		killed = time.Now()
		return []string{more}
	})
	runs := b.ran("killer")
	last := runs[len(runs)-1]
	for _, a := range b.all() {
		beside := a.Process == last.Process && a.State.ID != "killer" && !a.Began.After(killed) &&
			(a.Ended.IsZero() || a.Ended.After(last.Began))
		if beside {
			b.Errorf("%s ran beside the killer, which was charged with the crash", a.State.ID)
		}
	}
}
