package redelivertest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"
	"go.uber.org/goleak"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/mq"
	"github.com/redeliver/redeliver/redelivertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// failing is a test that may fail without failing the real one.
type failing struct {
	testing.TB
	text string
}

func (f *failing) Fatalf(format string, args ...any) {
	f.text = fmt.Sprintf(format, args...)
	panic(f)
}

func (f *failing) Fatal(args ...any) { f.Fatalf("%s", fmt.Sprint(args...)) }

// fails returns the message with which do failed its test.
func fails(f *failing, do func()) string {
	f.text = ""
	defer func() { _ = recover() }()
	do()
	return f.text
}

func (f *failing) want(t *testing.T, text string, do func()) {
	t.Helper()
	f.text = ""
	if fails(f, do); !strings.Contains(f.text, text) {
		t.Errorf("failed with %q, want it to contain %q", f.text, text)
	}
}

func TestMisuseFailsTheTest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &failing{TB: t}
		b := redelivertest.New(f)
		f.want(t, "Policy.MaxRetries is -5", func() { b.Open(redelivertest.Config{Policy: redeliver.Policy{MaxRetries: -5}}) })
		f.want(t, "Group is", func() { b.Open(redelivertest.Config{}) })
		f.want(t, "DrainTimeout is", func() { b.Open(redelivertest.Config{Group: "billing", DrainTimeout: redeliver.MaxWait + 1}) })
		m := msg("later")
		delay.Message(m, delay.For(time.Hour))
		f.want(t, "use the Publisher of a Client", func() { b.Publish("orders", m) })

		billing := b.Open(redelivertest.Config{Group: "billing", Policy: redeliver.Policy{Timeout: redeliver.NoTimeout}})
		orders := billing.Handle("orders", func(msg *message.Message) error {
			if msg.UUID == "hangs" {
				<-t.Context().Done()
			}
			return errDown
		})
		b.Publish("orders", msg("o-1"))
		b.Wait()
		f.want(t, `no message "o-2" of orders; it got ["o-1"]`, func() { orders.Outcome("o-2") })
		restore := orders.RefuseWrites(redelivertest.PlaceLevels)
		b.Publish("orders", msg("o-2"))
		f.want(t, "never calls restore; not at rest: 1 messages of orders for billing, the first is o-2 on orders", func() { b.Wait() })
		restore()
		restore() // only the first call has an effect
		b.Wait()
		b.Publish("orders", msg("hangs"))
		f.want(t, "not at rest within 175200h0m0s: 1 messages of orders for billing, the first is hangs on orders", func() { b.Wait() })

		router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
		if err != nil {
			t.Fatal(err)
		}
		router.AddPlugin(func(*message.Router) error { return errDown })
		f.want(t, "running the router: cannot initialize plugin", func() { b.Start(router) })
	})
}

func TestAClosedClientIsClosed(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		c := open(b, quick)
		if err := errors.Join(c.Close(t.Context()), c.Close(t.Context())); err != nil {
			t.Error(err)
		}
		if err := c.Publisher().Publish("orders", msg("late")); err == nil {
			t.Error("Publish of a closed client succeeded")
		}
		if _, err := c.Subscriber().Subscribe(t.Context(), "orders"); err == nil {
			t.Error("Subscribe of a closed client succeeded")
		}
	})
}

func TestCloseReturnsUnsettledMessages(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		first := open(b, quick)
		first.Handle("orders", func(msg *message.Message) error {
			<-msg.Context().Done()
			return errDown
		})
		b.Publish("orders", msg("o-1"))
		synctest.Wait()
		began := time.Now()
		ended, cancel := context.WithCancel(t.Context()) // as at the end of a main
		cancel()
		if err := first.Close(ended); err != nil {
			t.Fatal(err)
		}
		if time.Since(began) != 10*time.Second {
			t.Errorf("closing took %s", time.Since(began))
		}
		orders := open(b, quick).Handle("orders", succeeds)
		if got := orders.Outcome("o-1"); !got.Committed || got.State.Attempts != 0 {
			t.Error(got)
		}
	})
}

// A member that closes while its handlers run gives its waiting messages to others at once.
func TestWaitingMessagesAreReturnedAtOnce(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		first := open(b, quick)
		orders := first.Handle("orders", func(m *message.Message) error {
			if m.UUID == "slow" {
				return sleepFor(m, 8*time.Second)
			}
			return errDown
		})
		b.Publish("orders", msg("slow"), msg("waits"))
		synctest.Wait()
		open(b, quick).Handle("orders", succeeds)
		if err := first.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		for id, took := range map[string]time.Duration{"slow": 8 * time.Second, "waits": time.Second} {
			if got := orders.Outcome(id); !got.Committed || got.Took != took {
				t.Errorf("want %s: %s", took, got)
			}
		}
	})
}

// sleeper is a handler that works for an hour.
func sleeper(msg *message.Message) error { return sleepFor(msg, time.Hour) }

func sleepFor(msg *message.Message, d time.Duration) error {
	work := time.NewTimer(d)
	defer work.Stop()
	select {
	case <-work.C:
		return nil
	case <-msg.Context().Done():
		return context.Cause(msg.Context())
	}
}

func TestAKilledProcessLosesNothing(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		var heard atomic.Int32
		p := quick
		p.Timeout = redeliver.NoTimeout
		billing := b.Open(redelivertest.Config{Group: "billing", Policy: p, Sink: redeliver.SinkFunc(func(redeliver.Event) { heard.Add(1) })})
		orders := billing.Handle("orders", sleeper)
		b.Publish("orders", msg("o-1"), msg("o-2"))
		time.Sleep(time.Minute) //nolint:forbidigo // virtual
		billing.Kill()
		billing.Kill() // the second call has no effect
		if err := billing.Publisher().Publish("orders", msg("late")); err == nil {
			t.Error("Publish of a killed client succeeded")
		}
		if _, err := billing.Subscriber().Subscribe(t.Context(), "orders"); err == nil {
			t.Error("Subscribe of a killed client succeeded")
		}
		b.Wait() // there is no reader, so nothing happens
		b.Publish("orders", msg("o-3"))
		open(b, p).Handle("orders", sleeper)
		// Two messages ran when a process died. Now they run one after another, and then the third.
		for _, o := range orders.Outcomes() {
			if !o.Committed || len(o.Attempts) != 1 || o.State.Attempts != 0 {
				t.Error(o)
			}
		}
		if want := 3*time.Hour + time.Minute; b.Elapsed() != want || len(orders.Outcomes()) != 3 {
			t.Errorf("%d ended after %s, want 3 after %s", len(orders.Outcomes()), b.Elapsed(), want)
		}
		if n := heard.Load(); n > 0 {
			t.Errorf("the sink of the killed client got %d events", n)
		}
	})
}

// A pause holds back a suspect that has had no attempt. No other message of the client waits for it.
func TestAPauseHoldsBackSuspects(t *testing.T) {
	for name, pause := range map[string]func(*mq.Operations, context.Context, string, string) error{
		"of new messages": (*mq.Operations).PauseNew, "of all": (*mq.Operations).Pause,
	} {
		redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
			first := open(b, quick)
			first.Handle("orders", func(*message.Message) error { first.Kill(); return nil })
			b.Publish("orders", msg("o-1"))
			b.Wait()
			second := open(b, quick)
			if err := pause(second.Operations(), t.Context(), "orders", "a test"); err != nil {
				t.Fatal(err)
			}
			var ran, others atomic.Int64
			second.Handle("orders", func(*message.Message) error { ran.Add(1); return nil })
			second.Handle("refunds", func(*message.Message) error { others.Add(1); return nil })
			b.Publish("refunds", msg("r-1"))
			time.Sleep(time.Minute) //nolint:forbidigo // virtual
			if ran.Load() != 0 || others.Load() != 1 {
				t.Errorf("pause %s: %d attempts at the suspect, want none; %d of another topic, want one", name, ran.Load(), others.Load())
			}
			if err := second.Operations().Resume(t.Context(), "orders"); err != nil {
				t.Fatal(err)
			}
			b.Wait()
			if ran.Load() != 1 {
				t.Errorf("after a pause %s: %d attempts at the suspect, want one", name, ran.Load())
			}
		})
	}
}

// serve starts processes that die when they run the killer, until one does not die. All other messages take a second.
func serve(b *redelivertest.Broker) (orders *redelivertest.Subscription, died int) {
	for killed := true; killed; died++ {
		killed = false
		billing := b.Open(redelivertest.Config{Group: "billing", Policy: redeliver.Policy{MaxCrashes: 2}})
		orders = billing.Handle("orders", func(m *message.Message) error {
			if m.UUID == "killer" {
				time.Sleep(time.Millisecond) //nolint:forbidigo // virtual: the others run
				killed = true
				billing.Kill()
				return nil
			}
			return sleepFor(m, time.Second)
		})
		b.Wait()
	}
	return orders, died - 1
}

func TestACrashCountsForAMessageThatRanAlone(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		b.Publish("orders", msg("killer"))
		orders, died := serve(b)
		if got := orders.Outcome("killer"); died != 2 || got.State.Reason != redeliver.ReasonCrashed || got.State.Attempts != 0 || len(orders.DeadLetters()) != 1 {
			t.Errorf("after %d deaths: %s", died, got)
		}
	})
}

func TestNeighboursOfAKillerCountNoCrash(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		b.Publish("orders", msg("o-1"), msg("killer"), msg("o-2"))
		orders, died := serve(b)
		// At the first kill the message was not alone.
		if got := orders.Outcome("killer"); died != 3 || got.State.Reason != redeliver.ReasonCrashed || len(orders.DeadLetters()) != 1 {
			t.Errorf("after %d deaths: %s", died, got)
		}
		// Messages run one after another, those that count no crash before the killer.
		for id, took := range map[string]time.Duration{"o-1": time.Second + time.Millisecond, "o-2": 2*time.Second + 2*time.Millisecond} {
			if got := orders.Outcome(id); !got.Committed || len(got.Attempts) != 1 || got.Took != took {
				t.Errorf("want %s: %s", took, got)
			}
		}
	})
}
