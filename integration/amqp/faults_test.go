//go:build prove

package amqp_test

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/doctor"
	"github.com/redeliver/redeliver/integration/brokers"
)

// The broker closes all connections again and again under 3,000 messages (5,000 with REDELIVER_SOAK), of which every
// fifth fails once.
func closedUnderTraffic(t *testing.T, r *brokers.Rabbit) {
	const inFlight = 20
	n := 3000
	if brokers.Soak() {
		n = 5000
	}
	l := newFixture(t, r, func(l *fixture) {
		l.cfg.Policy = steps(5, 300*time.Millisecond)
		l.cfg.MaxInFlight = inFlight
	})
	l.declared()
	all := ids(n)
	l.publishMessages(all...)
	l.consume(func(msg *message.Message, r run) error {
		waitFor(40 * time.Millisecond) // 500/s
		n, _ := strconv.Atoi(strings.TrimPrefix(msg.UUID, "m-"))
		if n%5 == 0 && r.attempt == 1 {
			return errHandler
		}
		return nil
	})
	closings := 0
	for most := 300; most < len(all); most += 300 {
		l.await("progress", func() bool { return len(l.done) >= most || len(l.done) == len(all) })
		if err := l.rabbit.CloseAllConnections(context.Background(), "a test"); err != nil {
			t.Fatal(err)
		}
		closings++
	}
	l.awaitEnds(all)
	l.await("reading again", func() bool {
		c := l.changesLocked()
		return c[len(c)-1] == "consuming"
	})
	l.checkNothingEarly()
	l.mu.Lock()
	defer l.mu.Unlock()
	// At each closing: unacked messages, and those whose ack or confirm was lost. That is at most the prefetch of
	// both queues.
	duplicates, most := l.duplicatesLocked(), closings*3*inFlight
	if duplicates == 0 {
		t.Error("no message was in hand when the connections were closed, so this test checks nothing")
	}
	t.Logf("report: connections closed %d times under %d messages: 0 lost, %d run twice", closings, n, duplicates)
	if duplicates > most {
		t.Errorf("%d runs too many, at most %d are explained by messages in hand", duplicates, most)
	}
	if len(l.dead) > 0 {
		t.Errorf("dead-lettered: %v", l.deadIDsLocked())
	}
	// The changes alternate: there is one event for each change, not for each try.
	var changes []string
	for _, c := range l.changesLocked() {
		if c == "consuming" || c == "disconnected" {
			changes = append(changes, c)
		}
	}
	for i, c := range changes {
		if want := [2]string{"consuming", "disconnected"}[i%2]; c != want {
			t.Fatalf("change %d is %q, want %q: %v", i, c, want, changes)
		}
	}
	if lost := len(changes) / 2; lost == 0 || lost > closings {
		t.Errorf("%d times disconnected, want at most once for each of %d closings", lost, closings)
	}
}

// A handler acks after its channel has ended. On the new channel the same tag belongs to another message, which must
// stay unacked.
func staleAckSettlesNothing(t *testing.T, r *brokers.Rabbit) {
	l := newFixture(t, r, func(l *fixture) { l.cfg.DrainTimeout = 100 * time.Millisecond })
	l.declared()
	l.publishMessages("first", "slow")
	messages, err := l.client.Subscriber().Subscribe(context.Background(), l.queue)
	if err != nil {
		t.Fatal(err)
	}
	next := func(want string) *message.Message {
		t.Helper()
		select {
		case msg := <-messages:
			if msg.UUID != want {
				t.Fatalf("got %s, want %s", msg.UUID, want)
			}
			return msg
		case <-time.After(maxWait):
			t.Fatalf("no %s", want)
			return nil
		}
	}
	next("first").Ack() // tag 1
	l.await("commit", func() bool { return l.done["first"] == 1 })
	slow := next("slow") // tag 2
	l.awaitChange("consuming", 1)
	l.awaitUnacked(l.queue, 1, nil) // the broker has the ack of first
	if err := l.rabbit.CloseAllConnections(context.Background(), "a test"); err != nil {
		t.Fatal(err)
	}
	l.awaitChange("consuming", 2)
	l.redial()
	next("slow") // tag 1 of the new channel
	l.publishMessages("other")
	next("other") // tag 2
	<-slow.Context().Done()
	slow.Ack()
	// If it had settled "other", the ack would be sent at once, and "other" would not be in the queue at the end.
	l.publishMessages("last")
	next("last").Ack()
	l.await("commit", func() bool { return l.done["last"] == 1 })
	if err := l.client.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	l.awaitReady(l.queue, 2)
	for _, want := range []string{"slow", "other"} {
		d, ok, err := l.raw.Get(l.queue, true)
		if err != nil || !ok || d.MessageId != want {
			t.Errorf("the queue has %q (%v), want %q", d.MessageId, err, want)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.done["slow"]+l.done["other"] != 0 {
		t.Errorf("committed: %v, want neither slow nor other", l.done)
	}
	if n := l.countLocked("disconnected"); n != 1 {
		t.Errorf("one lost connection was reported %d times", n)
	}
}

// alarm has the commands that set and clear an alarm of the node. A broker in alarm accepts no messages.
type alarm struct{ on, off string }

var (
	memoryAlarm = alarm{"vm_memory_monitor:set_vm_memory_high_watermark(0.0000001).", "vm_memory_monitor:set_vm_memory_high_watermark(0.4)."}
	diskAlarm   = alarm{`rabbit_disk_monitor:set_disk_free_limit("900000000000000").`, `rabbit_disk_monitor:set_disk_free_limit("50MB").`}
)

// raise sets an alarm, which ends with the test or when off is called.
func (a alarm) raise(t *testing.T, r *brokers.Rabbit) (off func()) {
	t.Helper()
	tell := func(expr string) {
		if out, err := r.Eval(context.Background(), expr); err != nil || strings.TrimSpace(out) != "ok" {
			t.Fatalf("%s printed %q: %v", expr, out, err)
		}
	}
	off = func() { tell(a.off) }
	t.Cleanup(off)
	tell(a.on)
	return off
}

func inMemoryAlarm(t *testing.T, r *brokers.Rabbit) { blockedBy(t, r, memoryAlarm) }
func inDiskAlarm(t *testing.T, r *brokers.Rabbit)   { blockedBy(t, r, diskAlarm) }

// A broker in alarm does not report rights to write. A subscriber does not wait for that, and reads and acks
// messages.
func subscribeDuringAnAlarm(t *testing.T, r *brokers.Rabbit) {
	l := newFixture(t, r, func(l *fixture) { l.cfg.DialTimeout = 2 * maxWait })
	l.declared()
	l.publishMessages("m")
	off := memoryAlarm.raise(t, r)
	l.open()
	l.consume(func(*message.Message, run) error { return nil })
	l.awaitEnds([]string{"m"})
	off()
	l.awaitReady(l.queue, 0)
}

// Handlers fail while the broker is in alarm. Their messages are neither lost nor duplicated, and run again after the
// alarm. Acks continue during the alarm.
func blockedBy(t *testing.T, r *brokers.Rabbit, alarm alarm) {
	l := newFixture(t, r, func(l *fixture) {
		l.cfg.SendTimeout = 500 * time.Millisecond
		l.cfg.MaxInFlight = 60
	})
	l.declared()
	all := ids(61)
	l.publishMessages(all...)
	fail, succeed := make(chan struct{}), make(chan struct{})
	l.consume(func(msg *message.Message, r run) error {
		if msg.UUID < "m-00040" && r.attempt == 1 {
			<-fail
			return errHandler
		}
		<-succeed
		return nil
	})
	l.await("60 handlers", func() bool { return len(l.runs) == 60 })
	off := alarm.raise(t, r)
	close(fail)
	l.awaitChange("blocked", 1)
	l.awaitChange("intake paused", 1)
	close(succeed)
	// All 40 are reported as not written, and the 20 that succeeded are acked. The one that has not begun goes back.
	l.await("20 commits and 40 reports", func() bool {
		reported := make(map[string]bool)
		for _, e := range l.events {
			if f, ok := e.(redeliver.PublishFailed); ok {
				reported[f.State.ID] = true
			}
		}
		return len(reported) == 40 && len(l.done) == 20
	})
	l.awaitCounts(l.queue, "40 unacked and one ready", nil, func(unacked, ready int) bool { return unacked == 40 && ready == 1 })
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := l.client.Operations().Doctor(ctx, l.queue, doctor.Examination{}); err != nil { // it once waited for the end of the alarm
		t.Error(err)
	}
	l.mu.Lock()
	blocked, twice := len(l.runs), l.duplicatesLocked()
	l.mu.Unlock()
	if blocked != 60 || twice > 0 {
		t.Errorf("%d messages ran and %d twice while the broker accepts no message, want 60 and 0", blocked, twice)
	}
	off()
	l.awaitChange("unblocked", 1)
	l.awaitEnds(all)
	l.checkNothingEarly()
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := l.duplicatesLocked(); n > 0 {
		t.Errorf("%d runs too many: a message that waited for the broker was duplicated", n)
	}
	if len(l.runs) != len(all) || len(l.dead) > 0 {
		t.Errorf("%d ran and %d are dead-lettered, want 61 and 0", len(l.runs), len(l.dead))
	}
	if on, off := l.countLocked("blocked"), l.countLocked("unblocked"); on != 1 || off != 1 {
		t.Errorf("reported blocked %d times and unblocked %d times, want 1 and 1", on, off)
	}
}
