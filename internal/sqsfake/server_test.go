package sqsfake_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/redeliver/redeliver/internal/sqsfake"
)

// bubble is a server with the queue orders, and one process.
type bubble struct {
	*testing.T
	*sqsfake.Server
	process *sqsfake.Connection
	api     *sqs.Client
}

func inBubble(t *testing.T, o sqsfake.Options, test func(b *bubble)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &bubble{T: t, Server: sqsfake.New(o)}
		defer b.Wait()
		b.Create("orders")
		b.process = b.Connect("one")
		b.api = sqs.NewFromConfig(*b.process.Config())
		test(b)
	})
}

func (b *bubble) send(bodies ...string) (*sqs.SendMessageBatchOutput, error) {
	in := &sqs.SendMessageBatchInput{QueueUrl: aws.String(sqsfake.URL("orders"))}
	for _, body := range bodies {
		in.Entries = append(in.Entries, types.SendMessageBatchRequestEntry{Id: aws.String("e" + body), MessageBody: &body})
	}
	return b.api.SendMessageBatch(context.Background(), in)
}

func (b *bubble) receive(ctx context.Context, wait int32) ([]types.Message, error) {
	out, err := b.api.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{
		QueueUrl: aws.String(sqsfake.URL("orders")), MaxNumberOfMessages: 10, WaitTimeSeconds: wait, VisibilityTimeout: 30,
	})
	if err != nil {
		return nil, err
	}
	return out.Messages, nil
}

// Each fault is what the client sees, and says whether the request was carried out. The operations name it.
func TestFaults(t *testing.T) {
	for name, c := range map[string]struct {
		fault   *sqsfake.Fault
		carried int    // messages
		failed  int    // entries
		code    string // of the operation; an error if it is not empty
	}{
		"none":               {nil, 2, 0, ""},
		"throttled":          {sqsfake.Throttled(), 0, 0, "RequestThrottled"},
		"denied":             {sqsfake.Denied(), 0, 0, "AccessDeniedException"},
		"server error":       {sqsfake.ServerError(), 0, 0, "InternalFailure"},
		"late server error":  {&sqsfake.Fault{Status: 503, Code: "ServiceUnavailable", Carried: true}, 2, 0, "ServiceUnavailable"},
		"lost answer":        {sqsfake.LostAnswer(), 2, 0, "no answer"},
		"reset":              {sqsfake.Reset(), 0, 0, "no answer"},
		"connection refused": {sqsfake.ConnectionRefused(), 0, 0, "no answer"},
		"slow":               {&sqsfake.Fault{Delay: time.Minute, AnswerDelay: time.Minute}, 2, 0, ""},
		"one entry":          {sqsfake.FailedEntries("InternalError", func(e map[string]any) bool { return e["Id"] == "ea" }), 1, 1, ""},
		"one entry, falsely": {&sqsfake.Fault{Carried: true, Entry: func(map[string]any) string { return "InternalError" }}, 2, 2, ""},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, sqsfake.Options{}, func(b *bubble) {
				heal := b.Inject(func(*sqsfake.Call) *sqsfake.Fault { return c.fault })
				began := time.Now()
				out, err := b.send("a", "b")
				if (err != nil) != (c.code != "") || err == nil && len(out.Failed) != c.failed {
					b.Errorf("the answer is %+v, %v", out, err)
				}
				if n := len(b.Messages("orders")); n != c.carried {
					b.Errorf("%d messages were written, want %d", n, c.carried)
				}
				want := sqsfake.Operation{At: began, Connection: "one", Action: "SendMessageBatch", Queue: "orders", Code: c.code, Failed: c.failed}
				if all := b.Operations(); len(all) != 1 || all[0] != want {
					b.Errorf("the operations are %+v, want %+v", all, want)
				}
				heal()
				if _, err := b.send("c"); err != nil {
					b.Error(err)
				}
			})
		})
	}
}

// A process that is killed gets no answer any more. A receive that waits takes a message that nobody gets.
func TestACutConnection(t *testing.T) {
	inBubble(t, sqsfake.Options{Latency: 10 * time.Millisecond}, func(b *bubble) {
		received := make(chan error, 1)
		go func() {
			_, err := b.receive(context.Background(), 20)
			received <- err
		}()
		time.AfterFunc(time.Second, b.process.Cut)
		if err := <-received; !errors.Is(err, sqsfake.ErrCut) {
			b.Errorf("the receive ended with %v", err)
		}
		if _, err := b.send("a"); !errors.Is(err, sqsfake.ErrCut) {
			b.Errorf("a later request ended with %v", err)
		}
		other := sqs.NewFromConfig(*b.Connect("two").Config())
		if _, err := other.SendMessage(context.Background(), &sqs.SendMessageInput{QueueUrl: aws.String(sqsfake.URL("orders")), MessageBody: aws.String("b")}); err != nil {
			b.Fatal(err)
		}
		b.Wait()
		if m := b.Messages("orders"); len(m) != 1 || m[0].Receives != 1 || b.Abandoned() != 1 {
			b.Errorf("the queue has %+v; %d receives were abandoned, want 1", m, b.Abandoned())
		}
		b.process.Restore()
		if _, err := b.send("c"); err != nil {
			b.Errorf("after the process is back: %v", err)
		}
	})
}

// A request whose client gives up is carried out if the fault says so.
func TestARequestThatArrivesLate(t *testing.T) {
	for _, carried := range []bool{false, true} {
		inBubble(t, sqsfake.Options{}, func(b *bubble) {
			defer b.Inject(func(*sqsfake.Call) *sqsfake.Fault { return &sqsfake.Fault{Delay: time.Minute, Carried: carried} })()
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			_, err := b.receive(ctx, 0)
			b.Put("orders", sqsfake.Message{Body: "a"})
			b.Wait()
			if m := b.Messages("orders")[0]; !errors.Is(err, context.DeadlineExceeded) || (m.Receives == 1) != carried {
				b.Errorf("the client got %v; the message was received %d times, carried out: %t", err, m.Receives, carried)
			}
		})
	}
}

// A denied action is refused for its queue until it is allowed.
func TestDeny(t *testing.T) {
	inBubble(t, sqsfake.Options{}, func(b *bubble) {
		elsewhere, here := b.Deny("SendMessageBatch", "invoices"), b.Deny("SendMessageBatch", "orders")
		if _, err := b.send("a"); err == nil {
			b.Error("it is not denied")
		}
		here()
		if _, err := b.send("b"); err != nil {
			b.Error(err)
		}
		elsewhere()
	})
}

// A new queue cannot be used at once, and what a test changes is seen by a receive that waits.
func TestTheOwnerOfAQueue(t *testing.T) {
	inBubble(t, sqsfake.Options{CreateLatency: time.Second}, func(b *bubble) {
		if _, err := b.api.CreateQueue(context.Background(), &sqs.CreateQueueInput{QueueName: aws.String("new")}); err != nil {
			b.Fatal(err)
		}
		find := func() error {
			_, err := b.api.GetQueueUrl(context.Background(), &sqs.GetQueueUrlInput{QueueName: aws.String("new")})
			return err
		}
		if _, missing := errors.AsType[*types.QueueDoesNotExist](find()); !missing {
			b.Error("a new queue is there at once")
		}
		<-time.After(time.Second)
		if err := find(); err != nil {
			b.Error(err)
		}
		b.Put("orders", sqsfake.Message{Body: "a", Visible: time.Now().Add(time.Hour)})
		time.AfterFunc(5*time.Second, func() {
			b.Edit("orders", func(m *sqsfake.Message) { m.Visible = time.Now() })
		})
		began := time.Now()
		if found, err := b.receive(context.Background(), 20); err != nil || len(found) != 1 || time.Since(began) > 6*time.Second {
			b.Errorf("after %s the receive got %d messages, %v", time.Since(began), len(found), err)
		}
		b.Delete("orders")
		if _, err := b.receive(context.Background(), 0); err == nil {
			b.Error("a deleted queue is there")
		}
	})
}
