package sqs

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/sqsfake"
	"github.com/redeliver/redeliver/mq"
)

// startOn starts a service with a connection of its own, which a test can cut. Each attempt of "m" fails with another text.
func (b *bubble) startOn(name string, cfg Config) (*mq.Client, *sqsfake.Connection) {
	b.Helper()
	line := b.Connect(name)
	cfg.Sink = b
	cfg = b.config(cfg)
	cfg.AWS = line.Config()
	c, err := Open(b.Context(), cfg)
	if err != nil {
		b.Fatal(err)
	}
	b.read(c, name, "orders.fifo", func(st redeliver.State, _ *message.Message) error {
		if strings.HasPrefix(st.ID, "m") {
			return fmt.Errorf("try %d", st.Attempt())
		}
		return nil
	})
	return c, line
}

// kill ends a service as SIGKILL does, for the server.
func (b *bubble) kill(c *mq.Client, line *sqsfake.Connection) {
	b.Helper()
	line.Cut()
	_ = c.Close(b.Context()) // an error tells that not everything was given back
}

// wantLetters checks that messages are dead, each once, after all their attempts, with their first and last error.
func (b *bubble) wantLetters(attempts int, ids ...string) {
	b.Helper()
	dead := b.Messages("orders-dlq.fifo")
	if len(dead) != len(ids) {
		b.Errorf("%d messages are dead, want %d; ran %v", len(dead), len(ids), b.ran(""))
	}
	for _, m := range dead {
		st := stateOf(b.T, m, "orders.fifo")
		first, last := "try 1", fmt.Sprintf("try %d", attempts)
		if !slices.Contains(ids, st.ID) || st.Attempts != attempts || st.Reason != redeliver.ReasonExhausted || st.FirstError != first || st.Error != last {
			b.Errorf("%s is dead, %s, after %d attempts, first %q, last %q", st.ID, st.Reason, st.Attempts, st.FirstError, st.Error)
		}
	}
}

// A process dies between two steps. The next one continues with the attempts in the note, and runs at most one attempt again. The
// message behind it runs last. No note stays, unless the process died between the deletion of the message and that of its
// note.
func TestAProcessDiesBetweenTwoNoteSteps(t *testing.T) {
	for name, c := range map[string]struct {
		action, queue string
		nth           int
		carried       bool // it dies after the request, otherwise before it
		want          string
		left          int // notes
	}{
		"before the first note":             {"SendMessageBatch", "orders-place", 1, false, "1 1 2 3 4", 0},
		"after the first note":              {"SendMessageBatch", "orders-place", 1, true, "1 2 3 4", 0},
		"before the second note":            {"SendMessageBatch", "orders-place", 2, false, "1 2 2 3 4", 0},
		"after the second note":             {"SendMessageBatch", "orders-place", 2, true, "1 2 3 4", 0},
		"before it is hidden":               {"ChangeMessageVisibilityBatch", "orders.fifo", 1, false, "1 2 3 4", 0},
		"before the older note is deleted":  {"DeleteMessageBatch", "orders-place", 1, false, "1 2 3 4", 0},
		"before the dead letter":            {"SendMessageBatch", "orders-dlq.fifo", 1, false, "1 2 3 4 4", 0},
		"after the dead letter":             {"SendMessageBatch", "orders-dlq.fifo", 1, true, "1 2 3 4 4", 0},
		"before the deletion":               {"DeleteMessageBatch", "orders.fifo", 2, false, "1 2 3 4 4", 0},
		"before the last note is deleted":   {"DeleteMessageBatch", "orders-place", 3, false, "1 2 3 4", 1},
		"after the last note is deleted":    {"DeleteMessageBatch", "orders-place", 3, true, "1 2 3 4", 0},
		"before it takes the note it wrote": {"ReceiveMessage", "orders-place", 1, false, "1 2 3 4", 0},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bubble) {
				b.Create("orders.fifo")
				cfg := Config{Policy: steps(3, 3*time.Second)}
				var line *sqsfake.Connection
				n, died := 0, time.Duration(0)
				b.setFault(func(call *sqsfake.Call) *sqsfake.Fault {
					if call.Connection != "one" || call.Action != c.action || call.Queue != c.queue {
						return nil
					}
					if n++; n != c.nth { // the first deletion is a probe
						return nil
					}
					died = time.Since(b.began)
					go line.Cut()
					return &sqsfake.Fault{Err: sqsfake.ErrReset, Carried: c.carried}
				})
				var one *mq.Client
				one, line = b.startOn("one", cfg)
				b.put("orders.fifo", "m", "v", "g", nil)
				b.put("orders.fifo", "behind", "v", "g", nil)
				b.advance(time.Minute)
				b.kill(one, line)
				if n < c.nth {
					b.Fatalf("there were %d such requests, want %d", n, c.nth)
				}
				two, _ := b.startOn("two", cfg)
				b.advance(6 * time.Minute) // the DLQ ignores a second copy for five minutes
				b.close(two)
				var got []string
				for _, r := range b.ran("m") {
					if r.process == "two" || r.at <= died { // a dead process runs nothing
						got = append(got, fmt.Sprint(r.attempt))
					}
				}
				if text := strings.Join(got, " "); text != c.want {
					b.Errorf("it ran as attempts %s, want %s", text, c.want)
				}
				if all := b.ran(""); all[len(all)-1].id != "behind" {
					b.Errorf("ran %v", all)
				}
				b.wantLetters(4, "m")
				if left := len(b.Messages("orders-place")); left != c.left {
					b.Errorf("%d notes are left, want %d", left, c.left)
				}
			})
		})
	}
}

// Processes that share a queue are killed, or end, at random moments. Each kill repeats at most one attempt of a message, no message
// is dead after fewer attempts than its policy has, and the next message of its group runs.
func TestAttemptsCountOverKillsOfManyProcesses(t *testing.T) {
	const retries, groups, processes, ends = 12, 8, 3, 14
	for seed := range uint64(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			inBubbleWith(t, sqsfake.Options{StrictReceipts: seed%2 == 1}, func(b *bubble) {
				random := rand.New(rand.NewPCG(seed, 1))
				b.Create("orders.fifo")
				cfg := Config{Policy: steps(retries, 3*time.Second), VisibilityTimeout: 12 * time.Second, DrainTimeout: time.Second}
				type process struct {
					client *mq.Client
					line   *sqsfake.Connection
				}
				start := func(n int) process {
					c, line := b.startOn(fmt.Sprint("p", n), cfg)
					return process{c, line}
				}
				var all []process
				for n := range processes {
					all = append(all, start(n))
				}
				var failing []string
				for g := range groups {
					failing = append(failing, fmt.Sprint("m", g))
					b.put("orders.fifo", failing[g], "v", fmt.Sprint("g", g), nil)
					b.put("orders.fifo", fmt.Sprint("behind", g), "v", fmt.Sprint("g", g), nil)
				}
				kills := 0
				for n := range ends {
					b.advance(time.Duration(500+random.IntN(6000)) * time.Millisecond)
					p := &all[random.IntN(processes)]
					if random.IntN(4) == 0 {
						b.close(p.client)
					} else {
						kills++
						b.kill(p.client, p.line)
					}
					*p = start(processes + n)
				}
				b.advance(20 * time.Minute)
				for _, p := range all {
					b.close(p.client)
				}
				for g, id := range failing {
					if n := len(b.ran(id)); n < retries+1 || n > retries+1+kills {
						b.Errorf("%s ran %d times with %d kills: %v", id, n, kills, b.ran(id))
					}
					if n := len(b.ran(fmt.Sprint("behind", g))); n == 0 {
						b.Errorf("the message behind %s has not run", id)
					}
				}
				b.wantLetters(retries+1, failing...)
				if n := len(b.Messages("orders.fifo")); n > 0 {
					b.Errorf("%d messages are left", n)
				}
				if n := len(b.Messages("orders-place")); n > kills {
					b.Errorf("%d notes are left after %d kills", n, kills)
				}
			})
		})
	}
}

// If notes cannot be written, or not be read, the process counts in memory and reports that once. Messages end all the same.
func TestAttemptsAreInMemoryWithoutNotes(t *testing.T) {
	for _, action := range []string{"SendMessageBatch", "ReceiveMessage"} {
		t.Run(action, func(t *testing.T) {
			inBubble(t, func(b *bubble) {
				b.Create("orders.fifo")
				b.setFault(func(call *sqsfake.Call) *sqsfake.Fault {
					if call.Queue == "orders-place" && call.Action == action {
						return sqsfake.Denied()
					}
					return nil
				})
				b.put("orders.fifo", "m", "v", "g", nil)
				if action == "ReceiveMessage" {
					b.Edit("orders.fifo", func(m *sqsfake.Message) { m.Receives = 1 }) // by a process that died
				}
				b.put("orders.fifo", "behind", "v", "g", nil)
				c, _ := b.startOn("one", Config{Policy: steps(3, time.Second)})
				b.advance(time.Minute)
				b.close(c)
				b.wantRuns("m", 0, time.Second, 2*time.Second, 3*time.Second)
				b.wantRunsOnce("behind")
				b.wantLetters(4, "m")
				reports := 0
				for _, e := range eventsOf[redeliver.SubscriptionChanged](b) {
					if e.Change == redeliver.ChangeAttemptsInMemory && e.Err != nil {
						reports++
					}
				}
				if reports != 1 {
					b.Errorf("it was reported %d times", reports)
				}
			})
		})
	}
}

// A message that comes back without a note waits for no longer than a look takes. A first delivery does not wait.
func TestAMessageWithoutANoteIsLookedForBriefly(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.Create("orders.fifo")
		c, _ := b.startOn("one", Config{})
		b.advance(time.Second)
		b.put("orders.fifo", "a", "v", "g", nil)
		b.advance(time.Second)
		for _, o := range b.Operations() {
			if o.Action == "ReceiveMessage" && o.Queue == "orders-place" {
				b.Error("a first delivery took a look")
			}
		}
		b.put("orders.fifo", "b", "v", "g", nil)
		b.Edit("orders.fifo", func(m *sqsfake.Message) { m.Receives++ })
		b.advance(5 * time.Second)
		b.close(c)
		runs := b.ran("b")
		if len(runs) != 1 || runs[0].at > 3500*time.Millisecond {
			b.Errorf("it ran %v", runs)
		}
	})
}

// The queue of notes is deleted. It is created again, and attempts go on in memory meanwhile.
func TestTheQueueOfNotesIsDeleted(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.Create("orders.fifo")
		c, _ := b.startOn("one", Config{Policy: steps(3, 2*time.Minute)})
		b.put("orders.fifo", "m", "v", "g", nil)
		b.advance(time.Minute)
		b.Delete("orders-place")
		b.advance(10 * time.Minute)
		b.close(c)
		b.wantRuns("m", 0, 2*time.Minute, 4*time.Minute, 6*time.Minute)
		b.wantLetters(4, "m")
		if !slices.Contains(b.Queues(), "orders-place") {
			b.Error("the queue was not created again")
		}
		for _, e := range eventsOf[redeliver.SubscriptionChanged](b) {
			if errors.Is(e.Err, redeliver.ErrConfig) {
				b.Error(e)
			}
		}
	})
}

// A process closes while the answer with its notes is on its way. It waits for that answer: otherwise nobody could give the notes
// back, and the next process would not find them.
func TestTheNextProcessFindsTheNotesOfOneThatCloses(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.Create("orders.fifo")
		cfg := Config{Policy: steps(3, 5*time.Second)}
		b.setFault(func(call *sqsfake.Call) *sqsfake.Fault {
			if call.Connection == "one" && call.Action == "ReceiveMessage" && call.Queue == "orders-place" {
				return &sqsfake.Fault{AnswerDelay: 3 * time.Second}
			}
			return nil
		})
		one, _ := b.startOn("one", cfg)
		b.put("orders.fifo", "m", "v", "g", nil)
		b.advance(500 * time.Millisecond)
		b.close(one)
		two, _ := b.startOn("two", cfg)
		b.advance(time.Minute)
		b.close(two)
		b.wantLetters(4, "m")
		if runs := b.ran("m"); len(runs) != 4 {
			b.Errorf("ran %v", runs)
		}
	})
}

// A process can no longer delete a message, because its receipt is stale. It gives back the note: the process that gets the message
// goes on with the last attempt.
func TestALostDeletionGivesBackTheNote(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.Create("orders.fifo")
		lost := false
		b.setFault(func(call *sqsfake.Call) *sqsfake.Fault {
			switch {
			case call.Connection != "one" || call.Queue != "orders.fifo":
			case call.Action == "DeleteMessageBatch" && len(b.Messages("orders-dlq.fifo")) > 0:
				lost = true
				return sqsfake.FailedEntries("ReceiptHandleIsInvalid", func(map[string]any) bool { return true })
			case call.Action == "ReceiveMessage" && lost:
				return sqsfake.Denied()
			}
			return nil
		})
		cfg := Config{Policy: steps(3, 3*time.Second)}
		one, _ := b.startOn("one", cfg)
		b.put("orders.fifo", "m", "v", "g", nil)
		b.advance(20 * time.Second)
		if !lost {
			b.Fatalf("nothing was deleted; ran %v", b.ran(""))
		}
		two, _ := b.startOn("two", cfg)
		b.advance(2 * time.Minute)
		b.close(two)
		b.close(one)
		if got := ids(b.ran("m")); !slices.Equal(got, []string{"m#1", "m#2", "m#3", "m#4", "m#4"}) {
			b.Errorf("ran %v", got)
		}
		b.wantLetters(4, "m")
	})
}

// SQS does not let a process delete notes. The process looks for the note of an ended message for a short time only, and others are
// not hindered.
func TestANoteThatCannotBeDeletedIsLeftBehind(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.Create("orders.fifo")
		ended := false
		b.setFault(func(call *sqsfake.Call) *sqsfake.Fault {
			if ended = len(b.Messages("orders-dlq.fifo")) > 0; ended && call.Queue == "orders-place" && call.Action == "DeleteMessageBatch" {
				return sqsfake.Denied()
			}
			return nil
		})
		c, _ := b.startOn("one", Config{Policy: steps(3, time.Second)})
		for _, id := range []string{"m1", "m2"} {
			b.put("orders.fifo", id, "v", "g", nil)
			b.advance(20 * time.Second)
		}
		b.advance(2 * time.Minute)
		looks := func() (n int) {
			for _, o := range b.Operations() {
				if o.Action == "ReceiveMessage" && o.Queue == "orders-place" {
					n++
				}
			}
			return n
		}
		if !ended || looks() == 0 {
			b.Fatalf("ended: %t, after %d looks", ended, looks())
		}
		before := looks()
		b.advance(time.Hour)
		if n := looks() - before; n > 0 {
			b.Errorf("it looked %d times for a note that nobody needs", n)
		}
		b.close(c)
	})
}
