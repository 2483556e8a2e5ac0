//go:build prove

package loss

import (
	"context"
	"sync"
	"testing"
	"time"
)

// backPressure writes faster than the handlers work. The number of messages in flight stays at its bound, and messages
// that wait for a handler stay on the broker.
func backPressure(t *testing.T, o overloaded, sys system) {
	const inFlight = 10
	// 250 a second.
	p := overload(t, o, 1000, 30, 5, load{Takes: 40 * time.Millisecond, InFlight: inFlight, Missed: 20 * time.Second})
	enlarge(p.items, o.most)
	p.early = len(p.items) / 2
	c, ctx := begin(t, sys, p)
	w := c.start("")
	c.write(ctx)
	out := c.end(ctx)
	v := wantWhole(t, p, out, 0)

	first, again := atOnce(runsOf(out.journal))
	t.Logf("report: back-pressure: %s: %d messages of %d KiB, %d lost, %d runs again; %d handlers at once and %d of retries, MaxInFlight %d; peak memory %.0f MiB of %.0f MiB written; %.1f s",
		o.name, len(p.items), o.most>>10, len(v.lost), v.rerun, first, again, inFlight, mib(w.peak), mib(int64(len(p.items)*o.most)), out.took.Seconds())
	if first > inFlight || again > inFlight {
		t.Errorf("%d first attempts and %d retries ran at once, MaxInFlight is %d", first, again, inFlight)
	}
	if first < inFlight {
		t.Errorf("never more than %d handlers at once, although there was work for %d: the test proves nothing", first, inFlight)
	}
	// On Kafka that is 32 MiB of read-ahead, the rest of the client's fetches, the same again until the garbage
	// collector runs, and the rest of this program. All messages at once took 800 MiB.
	wantMemory(t, w, 224<<20)
}

// slowBroker delays every byte and bounds the rate. If the adapter waits for the answer to a write whose SendTimeout is
// over, each confirm takes longer than SendTimeout: every try fails first, and the intake pauses. Other adapters have the
// default SendTimeout. No write is given up, and none is made twice.
func slowBroker(t *testing.T, o overloaded, sys system) {
	const delay = 700 * time.Millisecond
	s := load{Takes: 5 * time.Millisecond, SendTimeout: time.Second, Missed: 20 * time.Second}
	if !o.awaits {
		s.SendTimeout = 0 // the default, 30 s
	}
	p := overload(t, o, 400, 300, 20, s)
	p.early = 100
	l := newLink(t, address(t, sys))
	p.load.Via = l.address()
	c, ctx := begin(t, sys, p)
	w := c.start("")
	// A client takes minutes to connect to a slow broker, so it must be working before the broker becomes slow.
	if !c.until(ctx, func() bool { return len(c.done) >= p.early/2 }) {
		t.Fatal(context.Cause(ctx))
	}
	l.slow(delay, 256<<10)
	at := time.Now()
	var writing sync.WaitGroup
	writing.Go(func() { c.write(ctx) })
	// Some messages pass all stages while the broker is slow.
	through := func() bool {
		retried, resumed := 0, 0
		for _, line := range c.lines {
			switch {
			case line.at.Before(at.Add(2 * delay)):
			case line.kind == succeeded && line.attempt > 1:
				retried++
			case line.kind == changed && line.text == intakeResumed:
				resumed++
			}
		}
		return retried >= 3 && (resumed >= 1 || !o.awaits)
	}
	if !c.until(ctx, through) {
		t.Errorf("not enough was tried again while the broker is slow: %v", context.Cause(ctx))
	}
	slow := time.Since(at)
	l.slow(0, 0)
	writing.Wait()
	out := c.end(ctx)

	tries := count(out.journal, refused, "")
	v := wantWhole(t, p, out, 0)
	closed := closedTimes(out.journal)
	runs := runsOf(out.journal)
	begun := begunWhile(runs, closed)
	t.Logf("report: slow broker: %s: %s each way for %.1f s: %d messages, %d lost, %d runs again; %d tries to write were too slow, the intake paused %d times, %d handlers began meanwhile; retries late p50 %s max %s; %.1f s",
		o.name, delay, slow.Seconds(), len(p.items), len(v.lost), v.rerun, tries, len(closed[w.number]), begun, quantile(v.late, 0.5), quantile(v.late, 1), out.took.Seconds())
	if n := count(out.journal, changed, abandoned); n > 0 {
		t.Errorf("%d messages were given up", n)
	}
	if paused, resumed := count(out.journal, changed, intakePaused), count(out.journal, changed, intakeResumed); paused != resumed || (paused == 0) == o.awaits {
		t.Errorf("the intake paused %d times and resumed %d times", paused, resumed)
	}
	// One for each queue or partition may have been under way.
	if begun > 12 {
		t.Errorf("%d handlers began while the intake was paused", begun)
	}
}

// slowHandler has handlers that take longer than a consumer may be silent, and a second consumer that joins meanwhile.
// The consumers stay members all the same. Only interrupted runs are repeated, because their partition moved and the
// drain timeout is shorter than their handler.
func slowHandler(t *testing.T, o overloaded, sys system) {
	takes := o.missed + 3*time.Second // also longer than the drain timeout
	p := overload(t, o, 60, 20, 0, load{Takes: takes, InFlight: 60, Missed: o.missed})
	p.early = len(p.items)
	for _, it := range p.items {
		it.key = []byte(it.id) // on Kafka messages of one key wait for each other
	}
	c, ctx := begin(t, sys, p)
	c.start("")
	if !c.until(ctx, func() bool { return count(c.lines, entered, "") >= 10 }) {
		t.Fatal(context.Cause(ctx))
	}
	c.start("")
	out := c.end(ctx)
	runs := runsOf(out.journal)
	cut := cutOff(runs)
	v := wantWhole(t, p, out, cut+uncommitted(runs, out.journal, 2*takes))
	t.Logf("report: slow handler: %s: %s each, missed after %s: %d messages, %d lost, %d runs cut off and %d made again; %.1f s",
		o.name, takes, o.missed, len(p.items), len(v.lost), cut, v.rerun, out.took.Seconds())
	if n := count(out.journal, lostConnection, ""); n > 0 {
		t.Errorf("%d connections were lost", n)
	}
	if o.name != "kafka" && cut > 0 {
		t.Errorf("%d runs were cut off, and no partition moves there", cut)
	}
}

// uncommitted returns how many runs ended shortly before partitions moved. An earlier message may have been
// interrupted, and the committed offset stays below it.
func uncommitted(runs []handlerRun, journal []line, lately time.Duration) (n int) {
	for _, r := range runs {
		for _, l := range journal {
			if l.kind == joined && r.to.Before(l.at) && r.to.After(l.at.Add(-lately)) {
				n++
				break
			}
		}
	}
	return n
}
