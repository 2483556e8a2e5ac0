package amqp_test

import (
	"bytes"
	"fmt"
	mathrand "math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/integration/brokers"
	"github.com/redeliver/redeliver/integration/consumer"
	"github.com/redeliver/redeliver/integration/methodproxy"
)

// noteRetries is the number of retries, and noteKills that of processes that end before the head of a key is dead-lettered.
const (
	noteRetries = 12
	noteKills   = 12
)

// The head of an ordered queue has its attempts over kills and polite ends of its processes, which take turns: with 12 retries the
// handler runs 13 times, and once more for each process that died. Then it is in the DLQ, and the message behind it runs. An
// equal message behind it has attempts of its own. The attempts were once counted in the process, and began again in the next one.
func TestTheHeadKeepsItsAttemptsOverKills(t *testing.T) {
	t.Parallel()
	for version, r := range brokers.RequireRabbitMQs(t) {
		for _, order := range []redeliver.Order{redeliver.OrderBlocking, redeliver.OrderThroughRetries} {
			t.Run(fmt.Sprintf("%s on %s", order, version), func(t *testing.T) {
				t.Parallel()
				keepsAttempts(t, r, order)
			})
		}
	}
}

func keepsAttempts(t *testing.T, r *brokers.Rabbit, order redeliver.Order) {
	l := newFixture(t, r, func(l *fixture) {
		l.cfg.Policy = redeliver.Policy{Order: order, MaxRetries: noteRetries, Backoff: redeliver.Fixed(100 * time.Millisecond)}
		l.cfg.Key = keyOf
	})
	l.declared()
	head, other := orderID(0, 0), orderID(1, 0)
	lasts := []string{orderID(0, 1), orderID(1, 1)}
	l.publishMessages(append([]string{head, head, other}, lasts...)...) // the first two are equal
	heads := map[string]int{head: 2, other: 1}                          // how many messages have the id
	cfg := orderConfig{
		URL: r.URL(), Queue: l.queue, Order: order, Journal: filepath.Join(t.TempDir(), "journal"), Seed: mathrand.Uint64(),
		Retries: noteRetries, Wait: 100 * time.Millisecond,
	}
	if err := os.WriteFile(cfg.Journal, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	random := mathrand.New(mathrand.NewPCG(cfg.Seed, 1))
	all := []*consumer.Process{startOrder(t, cfg, 0), startOrder(t, cfg, 1)}
	over := time.After(maxWait)
	sleep := func(d time.Duration) {
		select {
		case <-time.After(d):
		case <-over:
			t.Fatalf("seed %d: the journal after %s is\n%s", cfg.Seed, maxWait, l.journal(cfg))
		}
	}
	for n := range noteKills {
		sleep(time.Duration(100+random.IntN(300)) * time.Millisecond)
		how := syscall.SIGKILL
		if n%4 == 3 {
			how = syscall.SIGTERM
		}
		all[n%2].End(how) // the other one continues
		all[n%2] = startOrder(t, cfg, n+2)
	}
	for _, last := range lasts {
		for !strings.Contains(l.journal(cfg), "settled "+last+" ") {
			sleep(50 * time.Millisecond)
		}
	}
	for _, p := range all {
		p.End(syscall.SIGTERM)
	}
	runs, attempts := make(map[string]int), make(map[string][]int)
	for line := range strings.SplitSeq(strings.TrimSpace(l.journal(cfg)), "\n") {
		var what, id string
		var attempt, pid int
		if _, err := fmt.Sscan(line, &what, &id, &attempt, &pid); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if what == "begin" {
			runs[id]++
			attempts[id] = append(attempts[id], attempt)
		}
	}
	for id, n := range heads {
		if calls := runs[id]; calls < n*(noteRetries+1) || calls > n*(noteRetries+1)+noteKills {
			t.Errorf("seed %d: %s was called %d times, want %d and at most %d more: attempts %v", cfg.Seed, id, calls, n*(noteRetries+1), noteKills, attempts[id])
		}
	}
	t.Logf("report: %d kills of %s: %v calls", noteKills, order, runs)
	letters := make(map[string]int)
	for range l.ready(l.queue + ".dlq") {
		d := l.getMessage(l.queue + ".dlq")
		letters[d.MessageId]++
		if d.Headers[redeliver.HeaderReason] != string(redeliver.ReasonExhausted) || d.Headers[redeliver.HeaderAttempt] != fmt.Sprint(noteRetries+1) {
			t.Errorf("seed %d: %s was dead-lettered, %v, after %v attempts", cfg.Seed, d.MessageId, d.Headers[redeliver.HeaderReason], d.Headers[redeliver.HeaderAttempt])
		}
	}
	for id, n := range heads {
		if letters[id] < n { // a kill may have written one twice
			t.Errorf("seed %d: the DLQ has %s %d times, want %d", cfg.Seed, id, letters[id], n)
		}
	}
	l.awaitReady(l.queue, 0)
	l.awaitReady(l.queue+".retry.place", 0)
}

// journal returns the journal of the children.
func (l *fixture) journal(cfg orderConfig) string {
	l.Helper()
	text, err := os.ReadFile(cfg.Journal)
	if err != nil {
		l.Fatal(err)
	}
	return string(text)
}

// A process dies between two steps. The next one continues with the attempts that the note has. A note whose message has ended is
// removed, and no later message inherits it, not even an equal one.
func TestAProcessDiesBetweenTwoSteps(t *testing.T) {
	t.Parallel()
	died := &methodproxy.Fault{Err: &amqp091.Error{Code: amqp091.InternalError, Reason: "INTERNAL_ERROR"}, Connection: true}
	for _, c := range []struct {
		name              string
		equal             int // how many equal messages there are
		runs, notes, acks int // it dies in the nth run, before the nth note, or before the nth ack after a dead letter
		// The attempts of all runs. Its last requests may be lost, too, and it may have begun the next message before it sent
		// the ack.
		want string
	}{
		{name: "before the first note", equal: 1, notes: 1, want: "1 1234"},
		{name: "before the second note", equal: 1, notes: 2, want: "12 234"},
		{name: "in the second attempt", equal: 1, runs: 2, want: "12 234"},
		{name: "before the ack", equal: 1, acks: 1, want: "1234 4"},
		{name: "between the ack and the removal of the note", equal: 1, acks: 2, want: "1234 4?"},
		{name: "between the removal of the note and the ack", equal: 2, acks: 4, want: "1234 (1(4|1234)?234|1?(4|1234)?1234)"}, // three notes are acked first
	} {
		for version, r := range brokers.RequireRabbitMQs(t) {
			t.Run(c.name+" on "+version, func(t *testing.T) {
				t.Parallel()
				proxy, err := methodproxy.New(r.URL())
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(proxy.Close)
				l := newFixture(t, r, func(l *fixture) {
					l.cfg.URLs = []string{proxy.URL()}
					l.cfg.Policy = redeliver.Policy{Order: redeliver.OrderBlocking, MaxRetries: 3, Backoff: redeliver.Fixed(50 * time.Millisecond)}
				})
				l.declared()
				var attempts []int // guarded by l.mu
				notes, acks, letters, dead := 0, 0, 0, make(chan struct{})
				die := sync.OnceFunc(func() { close(dead) })
				record := func(m *message.Message, r run) error {
					if m.UUID == "last" {
						return nil
					}
					l.mu.Lock()
					defer l.mu.Unlock()
					if attempts = append(attempts, r.attempt); len(attempts) == c.runs {
						die()
					}
					return errHandler
				}
				proxy.Inject(func(o methodproxy.Operation, request []byte) *methodproxy.Fault {
					l.mu.Lock()
					defer l.mu.Unlock()
					switch {
					case o.Method == "basic.publish" && bytes.Contains(request, []byte(l.queue+".retry.place")) && len(attempts) > 0:
						if notes++; notes == c.notes {
							die()
						}
					case o.Method == "basic.publish" && bytes.Contains(request, []byte(l.queue+".dlq")):
						letters++
					case o.Method == "basic.ack" && letters > 0:
						if acks++; acks == c.acks {
							die()
						}
					}
					select {
					case <-dead:
						return died
					default:
						return nil
					}
				})
				l.publishMessages(slices.Repeat([]string{"m"}, c.equal)...)
				l.consume(record)
				<-dead
				proxy.Close()
				l.cfg.URLs = []string{r.URL()}
				l.open()
				l.consume(record)
				l.publishMessages("m", "last") // a later equal message
				l.awaitEnds([]string{"last"})
				l.mu.Lock()
				defer l.mu.Unlock()
				got := strings.Trim(strings.Join(strings.Fields(fmt.Sprint(attempts)), ""), "[]")
				if want := "^" + strings.ReplaceAll(c.want, " ", "") + "1234$"; !regexp.MustCompile(want).MatchString(got) {
					t.Errorf("the attempts are %s, want %s, and then those of the later message", got, c.want)
				}
			})
		}
	}
}

// The user may not read the notes. Messages run, and end, all the same: the process counts their attempts, and reports that.
func TestDeniedNotesAreCountedInMemory(t *testing.T) {
	t.Parallel()
	r := brokers.RequireRabbitMQ(t)
	proxy, err := methodproxy.New(r.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Close)
	l := newFixture(t, r, func(l *fixture) {
		l.cfg.URLs = []string{proxy.URL()}
		l.cfg.Policy = redeliver.Policy{Order: redeliver.OrderBlocking, MaxRetries: 3, Backoff: redeliver.Fixed(50 * time.Millisecond)}
	})
	l.declared()
	allow := proxy.DenyRight(methodproxy.Operation{Method: "basic.consume", Place: l.queue + ".retry.place"})
	l.consume(func(msg *message.Message, _ run) error {
		if strings.HasPrefix(msg.UUID, "fails") {
			return errHandler
		}
		return nil
	})
	l.publishMessages("fails", "behind")
	l.awaitEnds([]string{"fails", "behind"})
	l.awaitChange("attempts are counted in memory", 1)
	l.awaitChange("an operation fails", 1)
	allow()
	l.publishMessages("fails again")
	l.awaitEnds([]string{"fails", "behind", "fails again"})
	l.awaitChange("an operation works again", 1)
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range []string{"fails", "fails again"} {
		if dead := l.dead[id]; len(dead) != 1 || dead[0].State.Attempts != 4 || dead[0].State.Reason != redeliver.ReasonExhausted {
			t.Errorf("%s ended as %+v, want one dead letter after 4 attempts", id, dead)
		}
	}
}

// The queue of notes is deleted before a suspect's first turn, and while it waits for another one. It is
// declared again, and everything continues.
func TestTheQueueOfNotesIsDeleted(t *testing.T) {
	t.Parallel()
	for version, r := range brokers.RequireRabbitMQs(t) {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			l := newFixture(t, r, func(l *fixture) { l.cfg.Policy.Order = redeliver.OrderBlocking })
			l.declared()
			place := l.queue + ".retry.place"
			l.publishMessages("m", "behind")
			l.makeSuspects()
			if _, err := l.raw.QueueDelete(place, false, false, false); err != nil {
				t.Fatal(err)
			}
			l.consume(func(msg *message.Message, r run) error {
				if r.attempt > 1 || msg.UUID == "behind" {
					return nil
				}
				if _, err := l.raw.QueueDelete(place, false, false, false); err != nil {
					t.Error(err)
				}
				return errHandler
			})
			l.awaitEnds([]string{"m", "behind"})
			l.awaitReady(place, 0)
			l.mu.Lock()
			defer l.mu.Unlock()
			if len(l.dead) > 0 || l.countLocked("suspect not marked") > 0 {
				t.Errorf("dead letters %v, changes %q", l.deadIDsLocked(), l.changesLocked())
			}
		})
	}
}
