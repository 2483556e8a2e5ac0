//go:build prove

package faults_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/aws/aws-sdk-go-v2/aws"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/sqs"
	"github.com/redeliver/redeliver/integration/sqs/proxy"
)

// SQS gives each faulty answer to each of its actions. In the end everything is handled or in the DLQ, and the queue
// is empty. The test lists the messages that may run again because of a fault; no others do.
func TestFaultyAnswersLoseNothing(t *testing.T) {
	t.Parallel()
	for _, action := range []string{"ReceiveMessage", "SendMessage", "DeleteMessage", "ChangeMessageVisibility"} {
		for _, fault := range []proxy.Fault{
			proxy.ServerError, proxy.Throttled, proxy.ExpiredCredentials, proxy.Refused, proxy.Cut, proxy.Unread, proxy.Silent, proxy.Partial, proxy.FalseFailure,
		} {
			if action == "ReceiveMessage" && (fault == proxy.Partial || fault == proxy.FalseFailure) {
				continue // it has no batch
			}
			t.Run(action+"/"+fault.String(), func(t *testing.T) {
				t.Parallel()
				l := newFixture(t, "")
				good, once, always := numbered("good", 12), numbered("once", 12), numbered("always", 12)
				l.send(slices.Concat(good, once, always)...)
				rule := l.proxy.Add(proxy.Rule{
					Fault: fault, Times: 3,
					Match: func(c *proxy.Call) bool { return strings.HasPrefix(c.Action, action) },
				})
				cfg := l.config()
				if fault == proxy.Silent { // the client waits that long for an answer
					cfg.SendTimeout = 3 * time.Second
				}
				l.work(cfg, nil)
				l.committed(append(good, once...))
				dead := l.dead(len(always))
				if got := slices.Compact(slices.Clone(dead)); !slices.Equal(got, sorted(always)) {
					t.Errorf("in the DLQ are %q, want %q", got, always)
				}
				l.awaitDepth(0)
				if action != "ChangeMessageVisibility" { // workers that extend nothing send no request
					ctx, cancel := context.WithTimeout(t.Context(), maxWait)
					defer cancel()
					if err := rule.Await(ctx, 3); err != nil {
						t.Error(err)
					}
				}
				l.mu.Lock()
				defer l.mu.Unlock()
				// An unread answer leaves it open whether a copy exists. It is written again, and both run. A machine
				// that stalls for longer than SendTimeout has the same effect on any write, which is reported.
				doubt := action == "SendMessage" && (fault == proxy.Unread || fault == proxy.FalseFailure)
				late := l.lateLocked()
				for _, body := range slices.Concat(good, once, always) {
					want := map[string]int{"good": 1, "once": 2, "always": 3}[strings.Fields(body)[0]]
					if n := len(l.runs[body]); n < want || n > want && !doubt && !late[body] {
						t.Errorf("%q ran %d times (%v), want %d", body, n, l.runs[body], want)
					}
				}
				for i, body := range dead {
					if i > 0 && dead[i-1] == body && !doubt && !late[body] {
						t.Errorf("%q is in the DLQ more than once", body)
					}
				}
			})
		}
	}
}

func sorted(s []string) []string {
	s = slices.Clone(s)
	slices.Sort(s)
	return s
}

// While a message cannot be written, only the write is repeated. The handler does not run again, nothing is given
// back, and heartbeats extend the visibility timeout, here to three times its length.
func TestAnOutageOfTheNextHopKeepsTheMessageInHand(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ end, body string }{
		"retry":     {"", "once 1"},
		"DLQ":       {"", "permanent 1"},
		"DLQ, FIFO": {".fifo", "permanent 1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newFixture(t, c.end)
			cfg := l.config()
			l.send(c.body)
			outage := l.proxy.Add(proxy.Rule{Fault: proxy.ServerError, Match: func(c *proxy.Call) bool { return strings.HasPrefix(c.Action, "SendMessage") }})
			handler := func(msg *message.Message) error {
				st, _ := redeliver.FromContext(msg.Context())
				switch {
				case strings.HasPrefix(c.body, "permanent"):
					return redeliver.Permanent(errRule)
				case st.Attempt() == 1:
					return errRule
				}
				return nil
			}
			l.work(cfg, handler)
			l.work(cfg, handler) // a second process, which must not get it
			l.until("failed writes", func() bool { return count[redeliver.PublishFailed](l.events) > 0 })
			held := time.Now()
			tick := time.NewTicker(50 * time.Millisecond)
			defer tick.Stop()
			for time.Since(held) < 3*cfg.VisibilityTimeout {
				<-tick.C
				l.mu.Lock()
				if n := len(l.runs[c.body]); n != 1 {
					t.Errorf("it ran %d times while nothing could be written", n)
				}
				l.mu.Unlock()
				if t.Failed() {
					break
				}
			}
			outage.Remove()
			if strings.HasPrefix(c.body, "once") {
				l.committed([]string{c.body})
			} else if dead := l.dead(1); !slices.Equal(dead, []string{c.body}) {
				t.Errorf("in the DLQ are %q", dead)
			}
			l.awaitDepth(0)
		})
	}
}

// If heartbeats fail, others get the message: the handler's context ends, and its answer is not written.
func TestALostReceiptEndsTheHandler(t *testing.T) {
	t.Parallel()
	l := newFixture(t, "")
	cfg := l.config()
	cfg.VisibilityTimeout = 2 * time.Second
	l.send("slow 1")
	l.proxy.Add(proxy.Rule{Fault: proxy.ServerError, Match: func(c *proxy.Call) bool { return strings.HasPrefix(c.Action, "ChangeMessageVisibility") }})
	ended := make(chan error, 10)
	l.work(cfg, func(msg *message.Message) error {
		l.mu.Lock()
		first := len(l.runs["slow 1"]) == 1
		l.mu.Unlock()
		if !first {
			return nil
		}
		select {
		case <-msg.Context().Done():
			ended <- context.Cause(msg.Context())
		case <-time.After(maxWait):
			ended <- errors.New("the context did not end")
		}
		return errRule
	})
	if cause := <-ended; cause == nil || strings.Contains(cause.Error(), "did not end") {
		t.Errorf("the handler's context: %v", cause)
	}
	l.committed([]string{"slow 1"})
	l.awaitDepth(0)
}

// A handler that takes three times the visibility timeout runs once.
func TestASlowHandlerKeepsItsMessage(t *testing.T) {
	t.Parallel()
	for _, end := range []string{"", ".fifo"} {
		t.Run("queue"+end, func(t *testing.T) {
			t.Parallel()
			l := newFixture(t, end)
			cfg := l.config()
			l.send("slow 1")
			slow := func(*message.Message) error {
				<-time.After(3 * cfg.VisibilityTimeout)
				return nil
			}
			l.work(cfg, slow)
			l.work(cfg, slow)
			l.committed([]string{"slow 1"})
			l.awaitDepth(0)
			l.mu.Lock()
			defer l.mu.Unlock()
			if n := len(l.runs["slow 1"]); n != 1 {
				t.Errorf("it ran %d times", n)
			}
		})
	}
}

// Credentials expire. Work continues with new ones, nothing is lost, and no event contains a key.
func TestExpiredCredentialsLoseNothing(t *testing.T) {
	t.Parallel()
	l := newFixture(t, "")
	bodies := append(numbered("good", 5), numbered("once", 5)...)
	l.work(l.config(), nil)
	expired := l.proxy.Add(proxy.Rule{Fault: proxy.ExpiredCredentials})
	ctx, cancel := context.WithTimeout(t.Context(), maxWait)
	defer cancel()
	l.send(bodies...)
	if err := expired.Await(ctx, 5); err != nil {
		t.Fatal(err)
	}
	expired.Remove()
	l.committed(bodies)
	l.awaitDepth(0)
}

// At the start, an unavailable queue is an error in bounded time that names the queue and no key.
func TestFailuresAtStartAreReported(t *testing.T) {
	t.Parallel()
	for _, fault := range []proxy.Fault{proxy.ExpiredCredentials, proxy.Refused} {
		t.Run(fault.String(), func(t *testing.T) {
			t.Parallel()
			l := newFixture(t, "")
			l.proxy.Add(proxy.Rule{Fault: fault})
			client, err := sqs.Open(t.Context(), l.config())
			if err == nil {
				defer client.Close(context.Background())
				_, err = client.Subscriber().Subscribe(t.Context(), l.queue)
			}
			if err == nil || strings.Contains(err.Error(), secretKey) || strings.Contains(err.Error(), sessionToken) || !strings.Contains(err.Error(), l.queue) {
				t.Errorf("the error is: %v", err)
			}
		})
	}
}

// Every write of a dead letter is refused, as with a missing right. The message stays in the queue, and goes to the
// DLQ when the right is there.
func TestMessagesStayInTheQueueWhileTheDLQRefuses(t *testing.T) {
	t.Parallel()
	l := newFixture(t, "")
	refused := l.proxy.Add(proxy.Rule{Fault: proxy.Refused, Queue: l.queue + "-dlq", Match: func(c *proxy.Call) bool { return strings.HasPrefix(c.Action, "SendMessage") }})
	bodies := numbered("always", 3)
	l.send(bodies...)
	l.work(l.config(), nil)
	ctx, cancel := context.WithTimeout(t.Context(), maxWait)
	defer cancel()
	if err := refused.Await(ctx, 3); err != nil {
		t.Fatal(err)
	}
	l.awaitDepth(len(bodies)) // a message that moves to its next attempt briefly exists twice
	refused.Remove()
	if dead := l.dead(len(bodies)); !slices.Equal(dead, bodies) {
		t.Errorf("in the DLQ are %q", dead)
	}
	l.awaitDepth(0)
}

// A queue has its owner's RedrivePolicy. Retries are new messages, so they do not reach its maxReceiveCount, and
// exhausted messages are in redeliver's DLQ.
func TestRetriesDoNotReachTheQueuesOwnRedrivePolicy(t *testing.T) {
	t.Parallel()
	l := newFixture(t, "")
	owners, err := l.plain.CreateQueue(t.Context(), &awssqs.CreateQueueInput{QueueName: aws.String(l.queue + "-owners")})
	if err != nil {
		t.Fatal(err)
	}
	arn, err := l.plain.GetQueueAttributes(t.Context(), &awssqs.GetQueueAttributesInput{QueueUrl: owners.QueueUrl, AttributeNames: []types.QueueAttributeName{"QueueArn"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.plain.SetQueueAttributes(t.Context(), &awssqs.SetQueueAttributesInput{QueueUrl: &l.url, Attributes: map[string]string{
		"RedrivePolicy": fmt.Sprintf(`{"deadLetterTargetArn":%q,"maxReceiveCount":"3"}`, arn.Attributes["QueueArn"]),
	}}); err != nil {
		t.Fatal(err)
	}
	always, once := numbered("always", 5), numbered("once", 5)
	l.send(append(always, once...)...)
	cfg := l.config()
	cfg.Policy.MaxRetries = 4 // 5 attempts are more than 3 receives
	client, err := sqs.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close(context.Background())
	plan, err := client.Plan(t.Context(), l.queue)
	if err != nil || !strings.Contains(plan.String(), "after 3 receives SQS moves a message to "+l.queue+"-owners") {
		t.Errorf("the plan does not mention it: %v, %v", err, plan)
	}
	l.work(cfg, nil)
	l.committed(once)
	if dead := l.dead(len(always)); !slices.Equal(slices.Compact(dead), always) {
		t.Errorf("in our DLQ are %q", dead)
	}
	l.awaitDepth(0)
	out, err := l.plain.ReceiveMessage(t.Context(), &awssqs.ReceiveMessageInput{QueueUrl: owners.QueueUrl})
	if err != nil || len(out.Messages) > 0 {
		t.Errorf("in the owner's DLQ are %d (%v)", len(out.Messages), err)
	}
}
