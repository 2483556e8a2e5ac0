package adaptertest

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/redeliver/redeliver"
)

// crashes tests that nothing is lost when a process is killed, and that the messages that killed it are found.
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
			case !a.DuringKill: // a kill inside this process takes a moment
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
			b.Errorf("%s ran as attempt %d, want 1: a crash is not an attempt", a.State.ID, a.State.Attempt())
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

// killerAmongNeighbours has others in flight when a message kills the process. Crashes must not count for them.
func killerAmongNeighbours(b *fixture) {
	const crashes = 2
	ids := []string{"n1", "n2", "n3", "n4", "n5", "killer"}
	p := quickPolicy(3)
	p.MaxCrashes = crashes
	b.put(namedMessages(ids...)...)
	// A kill may leave a copy.
	died := b.killUntilDeadLettered(2*crashes+3, ids, func() *process {
		return b.start(Config{Policy: p}, func(a *attempt) error {
			if a.State.ID == "killer" {
				<-b.Context().Done()
			}
			return nil
		})
	}, nil)
	if died < crashes {
		b.Errorf("it was dead-lettered after %d crashes, MaxCrashes is %d", died, crashes)
	}
	b.Logf("report: one message killed %d processes, MaxCrashes is %d", died, crashes)
}

// killUntilDeadLettered starts one process after another, and kills each when the killer runs in it, until all messages have
// ended. At most atMost processes may die, and maxCrashesBeside more. before, if not nil, is called before each kill and returns
// further messages that must end. At the end the killer must be in the DLQ, and no crash may have counted for another message.
func (b *fixture) killUntilDeadLettered(atMost int, ids []string, start func() *process, before func(died int) (more []string)) (died int) {
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
		if died++; died > b.maxCrashesBeside()+atMost {
			b.Fatalf("the killer ended %d processes", died)
		}
	}
	if st := b.checkDeadLetter(redeliver.ReasonCrashed, 0); st.ID != "killer" {
		b.Errorf("%s is in the DLQ, want the killer", st.ID)
	}
	for _, a := range b.all() {
		if a.State.Attempt() != 1 {
			b.Errorf("%s ran as attempt %d, want 1: a crash is not an attempt", a.State.ID, a.State.Attempt())
		}
	}
	return died
}

// maxCrashesBeside returns how often a message may kill its process before it runs alone.
func (b *fixture) maxCrashesBeside() int { return cmp.Or(b.h.MaxCrashesBeside, 2) }

// othersWait has messages in flight beside the killer, and others that come while it runs. They must not run beside it when crashes
// count, and must be handled. One crash would send them to the DLQ.
func othersWait(b *fixture) {
	const work = 200 * time.Millisecond
	p := quickPolicy(3)
	p.MaxCrashes = 1
	ids := []string{"n1", "n2", "n3", "n4", "n5", "killer"}
	b.put(namedMessages(ids...)...)
	var killed time.Time // when the last process was killed
	b.killUntilDeadLettered(4, ids, func() *process {
		ran := make(chan struct{}) // the killer runs
		return b.start(Config{Policy: p}, func(a *attempt) error {
			if a.State.ID == "killer" {
				close(ran)
				<-b.Context().Done()
				return nil
			}
			// If the killer begins meanwhile, this handler runs until the test ends.
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
		b.put(namedMessages(more)...)
		chance := time.NewTimer(work) // time in which the others could begin, but must not
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
			b.Errorf("%s ran at the same time as the killer when the crash was counted", a.State.ID)
		}
	}
}
