package sqs

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/sqs/internal/api"
)

// denyAction refuses an action, as an AWS policy does, until allow is called.
func (b *bubble) denyAction(action string) (allow func()) {
	b.setFault(func(asked, _ string, _ map[string]any) *failure {
		if strings.HasPrefix(asked, action) {
			return &failure{status: 403, code: "AccessDeniedException", text: signatureError}
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
				b.create("orders")
				if c.fine {
					b.create("orders-suspects")
					b.create("orders-dlq")
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
				b.create("orders")
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
				if n, dead := len(b.messagesIn("orders")), len(b.messagesIn("orders-dlq")); n != 0 || dead != 1 {
					b.Errorf("%d messages remain, %d are in the DLQ", n, dead)
				}
			})
		})
	}
}

// No key, token or signature from an AWS error appears in a log line at any level, in an event or in an error.
func TestLogsContainNoSecrets(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.create("orders")
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
			done <- Consume(ctx, b.config(Config{Sink: redeliver.Sinks(log, b)}), []string{"orders"}, func(context.Context, types.Message) error { return errHandler })
		}()
		b.put("orders", "a", "v", "", nil)
		b.advance(time.Second)
		b.setFault(func(string, string, map[string]any) *failure {
			return &failure{status: 403, code: "SignatureDoesNotMatch", text: signatureError}
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
		if !errors.Is(api.RedactError(errReset), errReset) {
			b.Error("RedactError hides the error that it wraps")
		}
	})
}

type writer func(p []byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }
