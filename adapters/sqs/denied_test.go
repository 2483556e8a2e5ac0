package sqs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/sqs/internal/api"
	"github.com/redeliver/redeliver/internal/observed"
	"github.com/redeliver/redeliver/internal/sqsfake"
	"github.com/redeliver/redeliver/observe"
)

// denyAction refuses an action, as an AWS policy does, until allow is called.
func (b *bubble) denyAction(action string) (allow func()) {
	b.setFault(func(call *sqsfake.Call) *sqsfake.Fault {
		if strings.HasPrefix(call.Action, action) {
			return &sqsfake.Fault{Status: 403, Code: "AccessDeniedException", Message: signatureError}
		}
		return nil
	})
	return func() { b.setFault(nil) }
}

// signatureError is AWS's answer to a bad signature. It contains all signed data.
const signatureError = "The request signature we calculated does not match. The Canonical String for this request should have been 'POST\n/\n\nx-amz-security-token:t0k3n\n' " +
	"Credential=AKIAEXAMPLEEXAMPLE/20260101/eu-west-1/sqs/aws4_request, Signature=s3cr3tk3y"

func wantNoSecrets(t *testing.T, text string) {
	t.Helper()
	for _, secret := range []string{"t0k3n", "s3cr3tk3y", "AKIAEXAMPLEEXAMPLE"} {
		if strings.Contains(text, secret) {
			t.Errorf("%s is reported: %s", secret, text)
		}
	}
}

// At the start, an error about a missing right names the queue and contains no secret. Optional rights may be missing.
func TestRightsDeniedAtStart(t *testing.T) {
	for _, c := range []struct {
		action string
		fine   bool
	}{{"GetQueueUrl", false}, {"CreateQueue", false}, {"GetQueueAttributes", true}} {
		t.Run(c.action, func(t *testing.T) {
			inBubble(t, func(b *bubble) {
				b.Create("orders")
				if c.fine {
					b.Create("orders-suspects")
					b.Create("orders-dlq")
				}
				b.denyAction(c.action)
				plan, planned := b.client(b.T, Config{}).Plan(context.Background(), "orders")
				ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
				defer cancel()
				began := Consume(ctx, b.config(Config{Sink: b}), []string{"orders"}, func(context.Context, types.Message) error { return nil })
				if c.fine {
					if planned != nil || began != nil || len(plan.NotChecked) != 3 || !strings.Contains(plan.String(), "sqs:GetQueueAttributes is denied") {
						b.Errorf("Plan returned %v, Subscribe %v, the plan is %v", planned, began, plan)
					}
					return
				}
				if began == nil || !strings.Contains(began.Error(), "orders") || !strings.Contains(began.Error(), "AccessDenied") {
					b.Errorf("it began: %v", began)
				} else {
					wantNoSecrets(t, began.Error())
				}
			})
		})
	}
}

// While it runs, a missing right loses nothing and runs no handler again. Work continues when the right is back.
func TestRightsDeniedWhileRunning(t *testing.T) {
	for _, action := range []string{"ReceiveMessage", "DeleteMessage", "ChangeMessageVisibility", "SendMessage"} {
		t.Run(action, func(t *testing.T) {
			inBubble(t, func(b *bubble) {
				b.Create("orders")
				stop := b.consume("orders", Config{Policy: steps(1, time.Minute), WaitTime: time.Second}, func(_ context.Context, st redeliver.State, _ types.Message) error {
					if st.ID == "fails" {
						return errHandler
					}
					return nil
				})
				b.advance(time.Second)
				allow := b.denyAction(action)
				b.put("orders", "fine", "v", "", nil)
				b.put("orders", "fails", "v", "", nil)
				b.advance(20 * time.Second) // less than the visibility timeout
				allow()
				b.advance(5 * time.Minute)
				stop()
				if got := ids(b.ran("fine")); !slices.Equal(got, []string{"fine#1"}) {
					b.Errorf("ran %v", got)
				}
				if got := ids(b.ran("fails")); !slices.Equal(got, []string{"fails#1", "fails#2"}) {
					b.Errorf("ran %v", got)
				}
				if n, dead := len(b.Messages("orders")), len(b.Messages("orders-dlq")); n != 0 || dead != 1 {
					b.Errorf("%d messages remain, %d are in the DLQ", n, dead)
				}
			})
		})
	}
}

// No key, token or signature from an AWS error appears in a log line at any level, in an event or in an error.
func TestLogsContainNoSecrets(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.Create("orders")
		var mu sync.Mutex
		var lines bytes.Buffer
		log := redeliver.NewSlogSink(slog.New(slog.NewTextHandler(writer(func(p []byte) (int, error) {
			mu.Lock()
			defer mu.Unlock()
			return lines.Write(p)
		}), &slog.HandlerOptions{Level: slog.LevelDebug})))
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() {
			done <- Consume(ctx, b.config(Config{Sink: observe.Sinks(log, b)}), []string{"orders"}, func(context.Context, types.Message) error { return errHandler })
		}()
		b.put("orders", "a", "v", "", nil)
		b.advance(time.Second)
		b.setFault(func(_ *sqsfake.Call) *sqsfake.Fault {
			return &sqsfake.Fault{Status: 403, Code: "SignatureDoesNotMatch", Message: signatureError}
		})
		b.advance(time.Minute)
		cancel()
		if err := <-done; err != nil {
			b.Error(err)
		}
		if !strings.Contains(lines.String(), "SignatureDoesNotMatch") {
			b.Errorf("the log does not name the problem: %s", lines.String())
		}
		wantNoSecrets(t, lines.String())
		for _, e := range eventsOf[redeliver.PublishFailed](b) {
			wantNoSecrets(t, e.Err.Error())
		}
		if !errors.Is(api.RedactError(sqsfake.ErrReset), sqsfake.ErrReset) {
			b.Error("RedactError hides the error that it wraps")
		}
	})
}

type writer func(p []byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }

// The deletion of one message fails, again and again, while those of others succeed. An event names the message.
func TestOneMessageCannotBeDeleted(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.Create("orders")
		r := &deniedRun{bubble: b, queue: "orders"}
		stuck := b.put("orders", "stuck", "v", "", nil)
		b.setFault(func(call *sqsfake.Call) *sqsfake.Fault {
			for _, m := range b.Messages("orders") {
				if call.Action == actionDelete && m.ID == stuck {
					return sqsfake.FailedEntries("InternalError", func(e map[string]any) bool { return e["ReceiptHandle"] == m.Receipt })
				}
			}
			return nil
		})
		stop := b.consume("orders", Config{Policy: steps(1, time.Second), WaitTime: time.Second}, func(context.Context, redeliver.State, types.Message) error { return nil })
		for i := range 300 {
			b.put("orders", fmt.Sprint("fine", i), "v", "", nil)
			b.advance(200 * time.Millisecond)
		}
		named := slices.ContainsFunc(eventsOf[redeliver.SubscriptionChanged](b), func(e redeliver.SubscriptionChanged) bool {
			return e.Change == redeliver.ChangeOperationFails && strings.Contains(e.Detail, stuck) && strings.Contains(e.Err.Error(), "InternalError")
		})
		if !named || len(r.troubles()) == 0 {
			b.Errorf("an event names the message: %t; the troubles are %v", named, r.troubles())
		}
		b.setFault(nil)
		b.advance(time.Minute)
		stop()
		if n := len(b.Messages("orders")); n > 0 || len(r.troubles()) > 0 {
			b.Errorf("%d messages remain; the troubles are %v", n, r.troubles())
		}
		b.wantRunsOnce("stuck")
	})
}

// A queue is deleted, and the role may not create it again. An event says so, and everything continues when it may.
func TestCreationDeniedWhileRunning(t *testing.T) {
	for _, queue := range []string{"orders", "orders-suspects", "orders-dlq"} {
		t.Run(queue, func(t *testing.T) {
			inBubble(t, func(b *bubble) {
				b.Create("orders")
				r := &deniedRun{bubble: b, queue: "orders"}
				stop := b.consume("orders", Config{Policy: steps(1, time.Second), WaitTime: time.Second}, func(_ context.Context, st redeliver.State, _ types.Message) error {
					if st.ID == "fails" {
						return errHandler
					}
					return nil
				})
				b.advance(time.Second)
				b.Delete(queue)
				allow := b.denyAction("CreateQueue")
				if queue != "orders" {
					b.put("orders", "fails", "v", "", nil)
				}
				b.advance(time.Minute)
				if len(r.troubles()) == 0 || !r.names("CreateQueue", queue) {
					b.Errorf("the troubles are %v; an event names it: %t", r.troubles(), r.names("CreateQueue", queue))
				}
				allow()
				b.advance(time.Minute)
				b.put("orders", "fine", "v", "", nil)
				b.advance(10 * time.Second)
				if trouble := r.troubles(); len(trouble) > 0 {
					b.Errorf("a minute after the right came back, %v", trouble)
				}
				stop()
				b.wantRunsOnce("fine")
				if n := len(b.Messages("orders-dlq")); queue != "orders" && n != 1 {
					b.Errorf("%d are in the DLQ", n)
				}
			})
		})
	}
}

// Credentials that SQS refuses are asked for again, although they do not say when they end.
func TestRefusedCredentialsAreAskedForAgain(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.Create("orders")
		var logins atomic.Int64
		cfg := b.config(Config{Sink: b, WaitTime: time.Second})
		cfg.AWS.Credentials = aws.NewCredentialsCache(aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: fmt.Sprint("KEY", logins.Add(1)), SecretAccessKey: "s"}, nil
		}))
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() {
			done <- Consume(ctx, cfg, []string{"orders"}, func(ctx context.Context, _ types.Message) error {
				st, _ := redeliver.FromContext(ctx)
				b.mu.Lock()
				defer b.mu.Unlock()
				b.runs = append(b.runs, run{id: st.ID})
				return nil
			})
		}()
		b.advance(time.Second)
		expired := logins.Load()
		b.setFault(func(_ *sqsfake.Call) *sqsfake.Fault {
			if logins.Load() == expired {
				return &sqsfake.Fault{Status: 403, Code: "ExpiredToken"}
			}
			return nil
		})
		b.put("orders", "a", "v", "", nil)
		b.advance(time.Minute)
		cancel()
		if err := <-done; err != nil {
			b.Error(err)
		}
		b.wantRunsOnce("a")
		if n := len(b.Messages("orders")); n > 0 {
			b.Error("the message is not deleted")
		}
	})
}

// deniedRun is a subscription with all kinds of traffic, of which one operation is denied.
type deniedRun struct {
	*bubble
	queue  string
	fifo   bool
	n      int
	denied atomic.Int64 // requests
}

// traffic puts messages for d: some succeed, some are retried and dead-lettered, some need heartbeats, some are
// suspects.
func (r *deniedRun) traffic(d time.Duration) {
	group := func(name string) string {
		if r.fifo {
			return fmt.Sprint(name, r.n)
		}
		return ""
	}
	for end := time.Now().Add(d); time.Now().Before(end); r.n++ {
		r.put(r.queue, fmt.Sprint("fine", r.n), "v", group("fine"), nil)
		r.put(r.queue, fmt.Sprint("fails", r.n), "v", group("fails"), nil)
		if r.n%3 == 0 {
			r.put(r.queue, fmt.Sprint("slow", r.n), "v", group("slow"), nil)
			r.put(api.SiblingName(r.queue, suspectsSuffix), fmt.Sprint("suspect", r.n), "v", group("suspect"), nil)
		}
		r.advance(5 * time.Second)
	}
}

// troubles returns the problems that the events so far report, as readiness counts them.
func (r *deniedRun) troubles() map[string]bool {
	all := map[string]bool{}
	for _, e := range eventsOf[redeliver.SubscriptionChanged](r.bubble) {
		for _, t := range observed.Transitions[e.Change] {
			if t.Begins {
				all[t.Problem] = true
			} else {
				delete(all, t.Problem)
			}
		}
	}
	delete(all, "commands are not read") // does not affect readiness
	return all
}

// names reports whether an event names the operation, the queue and the error.
func (r *deniedRun) names(action, queue string) bool {
	return slices.ContainsFunc(eventsOf[redeliver.SubscriptionChanged](r.bubble), func(e redeliver.SubscriptionChanged) bool {
		if e.Err == nil {
			return false
		}
		text := e.Detail + " " + e.Err.Error()
		return strings.Contains(text, action) && strings.Contains(text, queue) && strings.Contains(text, "AccessDenied")
	})
}

// run subscribes and puts traffic for two minutes. From deny on it denies action on queue, for 2 min and at least until
// it was needed, and then allows it. It returns every operation that was used. An empty action denies nothing.
func (r *deniedRun) run(deny time.Duration, action, queue string) (used map[[2]string]bool) {
	used = map[[2]string]bool{}
	var isDenied atomic.Bool
	r.setFault(func(call *sqsfake.Call) *sqsfake.Fault {
		used[[2]string{call.Action, call.Queue}] = true
		if isDenied.Load() && call.Action == action && call.Queue == queue {
			r.denied.Add(1)
			return &sqsfake.Fault{Status: 403, Code: "AccessDeniedException", Message: "the role may not"}
		}
		return nil
	})
	for _, q := range queuesOf(r.queue) {
		r.Create(q)
	}
	isDenied.Store(deny == 0)
	stopped := make(chan error, 1)
	ctx, cancel := context.WithCancel(context.Background())
	cfg := Config{Sink: r, Policy: steps(1, 3*time.Second), WaitTime: time.Second, MaxInFlight: 10}
	go func() {
		stopped <- Consume(ctx, r.config(cfg), []string{r.queue}, func(ctx context.Context, _ types.Message) error {
			st, _ := redeliver.FromContext(ctx)
			r.mu.Lock()
			r.runs = append(r.runs, run{id: st.ID, at: time.Since(r.began)})
			r.mu.Unlock()
			if strings.HasPrefix(st.ID, "slow") {
				select {
				case <-time.After(20 * time.Second):
				case <-ctx.Done():
				}
			}
			if strings.HasPrefix(st.ID, "fails") {
				return errHandler
			}
			return nil
		})
	}()
	defer func() {
		cancel()
		if err := <-stopped; err != nil {
			r.Error(err)
		}
	}()
	r.advance(deny)
	if len(stopped) > 0 { // a start without the right is refused
		err := <-stopped
		if err == nil || !strings.Contains(err.Error(), action) {
			r.Errorf("it ended with %v", err)
		}
		stopped <- nil
		return used
	}
	if action == "" {
		r.traffic(2 * time.Minute)
		return used
	}
	r.traffic(10 * time.Second)
	isDenied.Store(true)
	for began := time.Now(); ; r.traffic(5 * time.Second) {
		if r.denied.Load() > 0 || time.Since(began) > 2*time.Minute {
			break
		}
	}
	if r.denied.Load() == 0 {
		r.Fatal("it was not needed")
	}
	r.traffic(time.Minute)
	if len(r.troubles()) == 0 || !r.names(action, queue) {
		r.Errorf("the troubles are %v; an event names it: %t", r.troubles(), r.names(action, queue))
	}
	if runs := r.ran(""); action == actionDelete && queue == r.queue {
		count := map[string]int{}
		for _, run := range runs {
			if count[run.id]++; count[run.id] > 3 {
				r.Errorf("%s ran %d times", run.id, count[run.id])
			}
		}
	}
	isDenied.Store(false)
	r.traffic(time.Minute)
	if t := r.troubles(); len(t) > 0 {
		r.Errorf("a minute after the right came back, %v", t)
	}
	id := fmt.Sprint("fine", r.n-5) // put within the minute
	if len(r.ran(id)) == 0 {
		r.Errorf("%s has not run", id)
	}
	return used
}

// Each operation is denied alone, before a run or during it. Within a minute an event names it and the subscription is
// not ready. A minute after the right is back, it is ready and messages run. The operations are those of a run, so that
// a new one is tested, too.
func TestEachOperationDeniedAlone(t *testing.T) {
	for _, queue := range []string{"orders", "orders.fifo"} {
		var used map[[2]string]bool
		start := func(t *testing.T, deny time.Duration, action, on string) {
			inBubble(t, func(b *bubble) {
				r := &deniedRun{bubble: b, queue: queue, fifo: api.IsFIFO(queue)}
				all := r.run(deny, action, on)
				if action == "" {
					used = all
				}
			})
		}
		start(t, time.Second, "", "")
		if len(used) < 10 {
			t.Fatalf("a run used only %v", used)
		}
		for op := range used {
			for when, deny := range map[string]time.Duration{"before": 0, "during": time.Second} {
				if when == "during" && (op[0] == "GetQueueUrl" || op[0] == "GetQueueAttributes" && !strings.HasPrefix(op[1], "orders-suspects")) {
					continue // only at the start
				}
				t.Run(fmt.Sprintf("%s %s on %s", when, op[0], op[1]), func(t *testing.T) { start(t, deny, op[0], op[1]) })
			}
		}
	}
}
