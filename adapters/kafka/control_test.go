package kafka_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/internal/kafkatest"
)

// release and cancel are commands by ann.
func release(f deadletter.Filter) deadletter.Command {
	return deadletter.Command{Kind: deadletter.ReleaseWaiting, Who: "ann", Why: "test", Filter: deadletter.WaitingFilter{Filter: f}}
}

func cancel(f deadletter.Filter) deadletter.Command {
	c := release(f)
	c.Kind = deadletter.CancelWaiting
	return c
}

// waiting opens what waits, with a client of its own.
func (p place) waiting(t *testing.T) *kafka.Waiting {
	t.Helper()
	c, _ := open(t, kafka.Config{Brokers: p.addrs, Group: "ann's"})
	w, err := c.Waiting(t.Context(), kafka.WaitingConfig{Topic: p.topic, Group: p.group})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Close() })
	return w
}

func give(t *testing.T, w *kafka.Waiting, c deadletter.Command) deadletter.Command {
	t.Helper()
	given, err := w.Command(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return given
}

// depth is how many messages wait on all levels.
func depth(t *testing.T, w *kafka.Waiting) (n int64) {
	t.Helper()
	levels, err := w.Levels(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range levels {
		n += l.Depth
	}
	return n
}

// lag is how many records of the topics on which messages wait are not committed, as the
// broker knows it.
func lag(t *testing.T, p place) (n int64) {
	t.Helper()
	adm := kadm.NewClient(independent(t, p.addrs))
	committed, err := adm.FetchOffsets(t.Context(), p.group)
	if err != nil {
		t.Fatal(err)
	}
	there, err := adm.ListTopics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ends, err := adm.ListEndOffsets(t.Context(), there.Names()...)
	if err != nil {
		t.Fatal(err)
	}
	ends.Each(func(end kadm.ListedOffset) {
		if strings.HasPrefix(end.Topic, p.ours("retry")) && end.Offset > 0 {
			at, _ := committed.Lookup(end.Topic, end.Partition)
			n += end.Offset - at.At
		}
	})
	return n
}

func progressOf(t *testing.T, w *kafka.Waiting, id string) *deadletter.CommandProgress {
	t.Helper()
	all, err := w.Commands(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range all {
		if c.Command.ID == id {
			return &c
		}
	}
	t.Fatalf("command %s is not there", id)
	return nil
}

// waitsFor is a policy whose first retry comes after d.
func waitsFor(d time.Duration) redeliver.Policy {
	return redeliver.Policy{MaxRetries: 1, Backoff: redeliver.Fixed(d), Levels: []time.Duration{d}}
}

// clerk fails every message once: of two causes, by the number at the end of its id.
func clerk(msg *message.Message) error {
	if st, _ := redeliver.FromContext(msg.Context()); st.Attempts > 0 {
		return nil
	}
	if strings.ContainsAny(msg.UUID[len(msg.UUID)-1:], "02468") {
		return fmt.Errorf("card %s declined", msg.UUID[len(msg.UUID)-4:])
	}
	return fmt.Errorf("no route to bank %s", msg.UUID[len(msg.UUID)-4:])
}

func (e *events) count(what func(redeliver.Event) bool) (n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, ev := range e.list {
		if what(ev) {
			n++
		}
	}
	return n
}

// causes are the fingerprints of what waits, by the number of the ids' last digit.
func causes(t *testing.T, w *kafka.Waiting) (even, odd string) {
	t.Helper()
	err := w.Browse(t.Context(), deadletter.WaitingFilter{}, 0, func(_ deadletter.WaitingLevel, m *deadletter.Message) bool {
		if strings.ContainsAny(m.ID[len(m.ID)-1:], "02468") {
			even = deadletter.Fingerprint(m)
		} else {
			odd = deadletter.Fingerprint(m)
		}
		return even == "" || odd == ""
	})
	if err != nil || even == "" || odd == "" || even == odd {
		t.Fatalf("fingerprints %q and %q: %v", even, odd, err)
	}
	return even, odd
}

// A thousand messages wait for an hour, of two causes. One is released and the other
// cancelled, both by rate, and the consumer is killed three times in the middle of that.
// Every message is accounted for: each of the one cause ran, each of the other rests in
// the DLQ as invalidated and none ran, nothing waits any more, and the kills have left no
// more duplicates than what was on its way.
func TestOnKafkaWhatWaitsIsReleasedAndCancelledByCommand(t *testing.T) {
	t.Parallel()
	const n, rate, kills, inFlight = 1000, 150, 3, 20
	seed := rand.Uint64()
	t.Logf("report: seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	p := onKafka(t)
	ev := newEvents() // of all that live here
	live := func() (kill func()) {
		sc, kill := kafkatest.Mortal(t, p.addrs, p.group)
		own := newEvents()
		c, _ := open(t, kafka.Config{
			Brokers: p.addrs, Group: p.group, Policy: waitsFor(time.Hour), Sarama: sc, Sink: redeliver.Sinks(ev, own),
			DrainTimeout: time.Second, SendTimeout: 2 * time.Second, MaxInFlight: inFlight,
		})
		route(t, c, p.topic, clerk)
		own.joined(t, 1)
		return kill
	}
	kill := live()
	recs, ids := orders(p.topic, n)
	write(t, p.addrs, recs...)
	ev.await(t, n, is[redeliver.RetryScheduled])
	w := p.waiting(t)
	eventually(t, "all wait", func() bool { return depth(t, w) == n })
	even, odd := causes(t, w)
	released, cancelled := release(deadletter.Filter{Fingerprints: []string{even}}), cancel(deadletter.Filter{Fingerprints: []string{odd}})
	released.Rate, cancelled.Rate = rate, rate
	released, cancelled = give(t, w, released), give(t, w, cancelled)
	for i := range kills {
		// Of both causes some more, and then at any moment.
		ev.await(t, 40*(i+1)+random.IntN(60), is[redeliver.Committed])
		ev.await(t, 40*(i+1)+random.IntN(60), is[redeliver.DeadLettered])
		<-time.After(time.Duration(random.IntN(100)) * time.Millisecond)
		kill()
		kill = live()
	}
	ends := func() (ran, dead map[string]int) {
		ran, dead = make(map[string]int), make(map[string]int)
		for _, e := range all[redeliver.Committed](ev) {
			ran[e.State.ID]++
		}
		for _, e := range all[redeliver.DeadLettered](ev) {
			dead[e.State.ID]++
			if e.State.Reason != redeliver.ReasonInvalidated || !strings.Contains(e.State.Error, cancelled.ID) {
				t.Errorf("%s is dead for %s: %s", e.State.ID, e.State.Reason, e.State.Error)
			}
		}
		return ran, dead
	}
	eventually(t, "all have run or are dead", func() bool {
		ran, dead := ends()
		return len(ran)+len(dead) >= n
	})
	eventually(t, "both commands are done", func() bool {
		return progressOf(t, w, released.ID).Status(time.Now()) == "done" && progressOf(t, w, cancelled.ID).Status(time.Now()) == "done"
	})
	eventually(t, "nothing waits", func() bool { return depth(t, w) == 0 })
	eventually(t, "the group has committed all that it has passed over", func() bool { return lag(t, p) == 0 })
	ran, _ := ends()
	dead := make(map[string]int) // as an independent client sees them
	for _, r := range read(t, p.addrs, p.ours("dlq"), int(count(t, p.addrs, p.ours("dlq")))) {
		_, ours := block(r.Headers)
		dead[ours[redeliver.HeaderID]]++
		if ours[redeliver.HeaderReason] != string(redeliver.ReasonInvalidated) || ours[redeliver.HeaderAttempt] != "1" {
			t.Errorf("%s lies in the DLQ with %v", ours[redeliver.HeaderID], ours)
		}
	}
	twice := 0
	for i, id := range ids {
		if i%2 == 0 && (ran[id] == 0 || dead[id] > 0) || i%2 == 1 && (ran[id] > 0 || dead[id] == 0) {
			t.Errorf("%s ran %d times and lies %d times in the DLQ", id, ran[id], dead[id])
		}
		twice += ran[id] + dead[id] - 1
	}
	t.Logf("report: %d kills, %d duplicates; released %d, cancelled %d", kills, twice, progressOf(t, w, released.ID).Released, progressOf(t, w, cancelled.ID).Cancelled)
	// Copies on their way, and released messages that had run and were not committed.
	if most := kills * (4*100 + 10*inFlight); twice > most {
		t.Errorf("%d messages came twice by %d kills, want at most %d", twice, kills, most)
	}
}

// What is taken may stand behind more than a lane holds in memory; what is not taken
// stays where it is. After a restart what was released does not run again, although its
// offset is not committed.
func TestWhatIsReleasedFarBehindDoesNotRunAgainAfterARestart(t *testing.T) {
	t.Parallel()
	const n = 6000
	p := onKafka(t)
	level := kafka.DelayTopic(p.topic, p.group, time.Hour)
	cfg := kafka.Config{Brokers: p.addrs, Group: p.group, Policy: waitsFor(time.Hour)}
	provision, _ := open(t, cfg)
	if err := provision.Subscriber().SubscribeInitialize(p.topic); err != nil {
		t.Fatal(err)
	}
	recs := make([]*kgo.Record, n)
	for i := range recs {
		id := fmt.Sprintf("order-%04d", i)
		failed := time.Now().Add(-time.Minute)
		recs[i] = ours(level, id, redeliver.State{
			ID: id, Group: p.group, Origin: p.topic, Attempts: 1, Due: failed.Add(time.Hour), FirstFailed: failed, LastFailed: failed,
			Error: "card declined", Source: redeliver.Source{Known: true, Offset: int64(i), Timestamp: failed},
		})
		recs[i].Timestamp = failed
	}
	put(t, p.addrs, recs...)
	w := p.waiting(t)
	wanted := []string{"order-0007", "order-5998"}
	command := give(t, w, release(deadletter.Filter{IDs: wanted}))

	c, ev := open(t, cfg)
	route(t, c, p.topic, clerk)
	ev.awaitEnds(t, wanted...)
	eventually(t, "the command is done", func() bool { return progressOf(t, w, command.ID).Status(time.Now()) == "done" })
	if got := progressOf(t, w, command.ID); got.Released != 2 || got.Cancelled != 0 {
		t.Errorf("%+v", got)
	}
	eventually(t, "their copies on the way back are committed", func() bool { return depth(t, w) == n-2 })
	if err := c.Close(t.Context()); err != nil {
		t.Fatal(err)
	}

	// All is released now: the rest runs, and those two do not.
	everything := release(deadletter.Filter{})
	everything.Everything = true
	give(t, w, everything)
	again, ev2 := open(t, cfg)
	route(t, again, p.topic, clerk)
	eventually(t, "the rest has run, and nothing waits", func() bool {
		return ev2.count(is[redeliver.Committed]) >= n-2 && depth(t, w) == 0
	})
	for id, times := range ev2.attempts() {
		if times != 1 || id == wanted[0] || id == wanted[1] {
			t.Errorf("%s ran %d times after the restart", id, times)
		}
	}
}

// What no command takes is not touched: it runs when it is due, and not before, and
// nothing runs twice.
func TestWhatIsNotReleasedKeepsItsDueTime(t *testing.T) {
	t.Parallel()
	const n, wait = 40, 5 * time.Second
	p := onKafka(t)
	cfg := kafka.Config{Brokers: p.addrs, Group: p.group, Policy: waitsFor(wait)}
	provision, _ := open(t, cfg)
	if err := provision.Subscriber().SubscribeInitialize(p.topic); err != nil {
		t.Fatal(err)
	}
	var recs []*kgo.Record
	var ids, even []string
	began := time.Now().Truncate(time.Millisecond) // as headers have it
	for i := range n {
		id := fmt.Sprintf("order-%04d", i)
		rec := left(p, wait, id, id, int64(i), 1, wait, began)
		rec.Partition = int32(i % 4)
		if recs, ids = append(recs, rec), append(ids, id); i%2 == 0 {
			even = append(even, id)
		}
	}
	put(t, p.addrs, recs...)
	w := p.waiting(t)
	give(t, w, release(deadletter.Filter{IDs: even}))
	c, ev := open(t, cfg)
	route(t, c, p.topic, clerk)
	ev.awaitEnds(t, ids...)
	early := 0
	for _, a := range all[redeliver.Attempted](ev) {
		switch due := began.Add(wait); {
		case !a.Start.Before(due):
		case slices.Contains(even, a.State.ID):
			early++
		default:
			t.Errorf("%s ran %s before it was due", a.State.ID, due.Sub(a.Start))
		}
	}
	t.Logf("report: %d of %d ran early, as asked", early, len(even)) // none, where the machine stood still for so long
	for _, id := range ids {
		if times := ev.attempts()[id]; times != 1 {
			t.Errorf("%s ran %d times", id, times)
		}
	}
}

// A rate bounds the walker; what comes due before it has come there does not run. The
// command is there before the consumer, so that nothing depends on how fast it is.
func TestWhatIsCancelledDoesNotRunWhenItComesDue(t *testing.T) {
	t.Parallel()
	const n, wait = 40, 2 * time.Second
	p := onKafka(t)
	cfg := kafka.Config{Brokers: p.addrs, Group: p.group, Policy: waitsFor(wait)}
	provision, _ := open(t, cfg)
	if err := provision.Subscriber().SubscribeInitialize(p.topic); err != nil {
		t.Fatal(err)
	}
	var recs []*kgo.Record
	var ids []string
	for i := range n {
		id := fmt.Sprintf("order-%04d", i)
		rec := left(p, wait, id, id, int64(i), 1, wait, time.Now())
		rec.Partition = int32(i % 4)
		recs, ids = append(recs, rec), append(ids, id)
	}
	put(t, p.addrs, recs...)
	w := p.waiting(t)
	slow := cancel(deadletter.Filter{})
	slow.Everything, slow.Rate = true, 0.1
	slow = give(t, w, slow)
	c, ev := open(t, cfg)
	route(t, c, p.topic, clerk)
	ev.awaitEnds(t, ids...)
	if dead := all[redeliver.DeadLettered](ev); len(dead) != n {
		t.Errorf("%d of %d are dead", len(dead), n)
	}
	for _, d := range all[redeliver.DeadLettered](ev) {
		if d.State.Reason != redeliver.ReasonInvalidated || d.State.Attempts != 1 {
			t.Errorf("%s is dead for %s after %d attempts", d.State.ID, d.State.Reason, d.State.Attempts)
		}
	}
	if runs := ev.attempts(); len(runs) > 0 {
		t.Errorf("%v have run", runs)
	}
	eventually(t, "all are counted", func() bool { return progressOf(t, w, slow.ID).Cancelled == n })
}

// A command that is taken back does no more, and a later one counts before an earlier.
func TestTheLatestCommandCountsAndOneIsTakenBack(t *testing.T) {
	t.Parallel()
	p := onKafka(t)
	c, ev := open(t, kafka.Config{Brokers: p.addrs, Group: p.group, Policy: waitsFor(time.Hour)})
	route(t, c, p.topic, clerk)
	ev.joined(t, 1)
	recs, ids := orders(p.topic, 200)
	write(t, p.addrs, recs...)
	ev.await(t, len(ids), is[redeliver.RetryScheduled])
	w := p.waiting(t)
	slow := release(deadletter.Filter{})
	slow.Everything, slow.Rate = true, 1
	slow = give(t, w, slow)
	ev.await(t, 1, is[redeliver.Committed])
	even, odd := causes(t, w)
	other := give(t, w, cancel(deadletter.Filter{Fingerprints: []string{even}}))
	eventually(t, "the cancel is done", func() bool { return progressOf(t, w, other.ID).Status(time.Now()) == "done" })
	if err := w.Withdraw(t.Context(), slow.ID); err != nil {
		t.Fatal(err)
	}
	if err := w.Withdraw(t.Context(), slow.ID); err == nil || !strings.Contains(err.Error(), slow.ID) {
		t.Errorf("taken back twice: %v", err)
	}
	last := give(t, w, cancel(deadletter.Filter{Fingerprints: []string{odd}}))
	ev.awaitEnds(t, ids...)
	eventually(t, "all is done", func() bool {
		return progressOf(t, w, last.ID).Status(time.Now()) == "done" && depth(t, w) == 0
	})
	ran, dead := ev.count(is[redeliver.Committed]), ev.count(is[redeliver.DeadLettered])
	if ran+dead != len(ids) || dead < len(ids)/2 {
		t.Errorf("%d ran and %d are dead", ran, dead)
	}
}
