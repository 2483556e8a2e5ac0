//go:build prove

package amqp_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/integration/brokers"
	"github.com/redeliver/redeliver/mq"
)

// Complete scans keep the order, wait for each other, and take no message from a replay.
func TestScansKeepTheOrderAndTakeNothingFromAReplay(t *testing.T) {
	t.Parallel()
	for version, b := range brokers.RequireRabbitMQs(t) {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			scansDoNotDisturb(t, newFailingService(t, b, nil))
		})
	}
}

func scansDoNotDisturb(t *testing.T, d *failingService) {
	t.Helper()
	d.fillByBroker(amqp091.Table{})
	all := ids(3000)
	d.declared()
	d.putTo(d.queue+".dlq", all...)
	d.awaitReady(d.queue+".dlq", len(all))
	open := func() deadletter.Queue {
		q, err := d.client.Operations().DeadLetters(t.Context(), mq.DeadLetterConfig{Topic: d.queue})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = q.Close() })
		return q
	}
	q, second := open(), open()
	for range 2 {
		if got := idsInDLQ(t, q); !slices.Equal(got, all) {
			t.Fatalf("%d messages, or a wrong order: %q", len(got), got[:min(5, len(got))])
		}
	}
	s, err := q.Scan(t.Context(), deadletter.FromStart)
	if err != nil {
		t.Fatal(err)
	}
	for range 200 {
		if _, err := s.Next(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if _, err := second.Scan(ctx, deadletter.FromStart); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("while another reader reads: %v, want that it waits", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	got := idsInDLQ(t, second) // messages that the incomplete scan passed are at the end now
	if slices.Sort(got); !slices.Equal(got, all) {
		t.Fatalf("after half a scan %d messages: %q", len(got), got[:min(5, len(got))])
	}
	c, err := q.Claim(t.Context(), deadletter.Holder{Who: "ann", Task: "t"})
	if err != nil {
		t.Fatal(err)
	}
	looking, err := second.Scan(t.Context(), deadletter.FromStart)
	if err != nil {
		t.Fatal(err)
	}
	waits, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if _, err := c.Scan(waits, deadletter.FromStart); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a runner, while another reader reads: %v, want that it waits", err)
	}
	if err := looking.Close(); err != nil {
		t.Fatal(err)
	}
	if s, err = c.Scan(t.Context(), deadletter.FromStart); err != nil {
		t.Fatal(err)
	}
	if _, err := q.Scan(t.Context(), deadletter.FromStart); !errors.Is(err, deadletter.ErrHeld) {
		t.Errorf("while the process's own runner reads: %v, want the name of the holder", err)
	}
	if _, err := second.Scan(t.Context(), deadletter.FromStart); !errors.Is(err, deadletter.ErrHeld) {
		t.Errorf("while a runner reads: %v, want the name of the holder", err)
	}
	if err := errors.Join(s.Close(), c.Release(t.Context())); err != nil {
		t.Fatal(err)
	}
	got = idsInDLQ(t, second)
	if slices.Sort(got); !slices.Equal(got, all) {
		t.Errorf("after a claim %d messages", len(got))
	}
}

// A slow replay holds messages for longer than the broker allows. It returns them in time and continues.
func TestAReplayThatTakesLongerThanTheConsumerTimeout(t *testing.T) {
	t.Parallel()
	d := newFailingService(t, brokers.RequireRabbitMQ(t), func(l *fixture) { l.cfg.ConsumerTimeout = time.Second; l.cfg.Policy.Timeout = time.Second })
	d.fillByBroker(amqp091.Table{})
	all := ids(60)
	d.declared()
	for i, id := range all {
		if err := d.raw.PublishWithContext(t.Context(), "", d.queue+".dlq", true, false, amqp091.Publishing{
			MessageId: id, Headers: amqp091.Table{"odd": fmt.Sprint(i % 2)},
		}); err != nil {
			t.Fatal(err)
		}
	}
	d.awaitReady(d.queue+".dlq", len(all))
	d.fixed.Store(true)
	d.makeDeadLetters()
	q, err := d.client.Operations().DeadLetters(t.Context(), mq.DeadLetterConfig{Topic: d.queue})
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	r := deadletter.ReplayOptions{Who: "ann", Why: "test", Window: 5, Rate: 16, Filter: deadletter.Filter{Headers: map[string]string{"odd": "1"}}}
	task, err := deadletter.Replay(t.Context(), q, r)
	if err != nil || task.Counts.Replayed != 30 {
		t.Fatalf("the replay says %+v: %v", task, err)
	}
	if task.Counts.Scanned <= 60 {
		t.Errorf("%d messages were read: none was returned in between, so this test checks nothing", task.Counts.Scanned)
	}
	var odd, even []string
	for i, id := range all {
		if i%2 == 1 {
			odd = append(odd, id)
		} else {
			even = append(even, id)
		}
	}
	d.awaitEnds(odd)
	if left := idsInDLQ(t, q); !slices.Equal(left, even) {
		t.Errorf("%q are in the DLQ, want the other half", left)
	}
	d.await("no duplicate", func() bool { return d.duplicatesLocked() == 0 })
}

// The documented rights are enough for a runner, and allow nothing else.
func TestARunnerNeedsTheseRights(t *testing.T) {
	t.Parallel()
	for version, b := range brokers.RequireRabbitMQs(t) {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			d := newFailingService(t, b, nil)
			all := ids(20)
			d.makeDeadLetters(all...)
			management := b.Management()
			user, dlq := "runner-"+d.queue, regexp.QuoteMeta(d.queue+".dlq")
			callAPI(t, management, http.MethodPut, "/api/users/"+user, map[string]string{"password": "s3cret", "tags": ""}, nil)
			callAPI(t, management, http.MethodPut, "/api/permissions/%2F/"+user, map[string]string{
				"configure": "^" + dlq + `\.state(\..*)?$`, "write": "^amq\\.default$", "read": "^" + dlq + `(\.state)?$`,
			}, nil)
			u, err := url.Parse(b.URL())
			if err != nil {
				t.Fatal(err)
			}
			u.User = url.UserPassword(user, "s3cret")
			q, _ := deadLetters(u.String())(t, d.queue, d.queue)
			defer q.Close()
			d.fixed.Store(true)
			task, err := deadletter.Replay(t.Context(), q, deadletter.ReplayOptions{Who: "ann", Why: "test", Window: 5, Canary: []int{1}, Watch: time.Second})
			if err != nil || task.Counts.Replayed != 20 {
				t.Fatalf("the replay says %+v: %v", task, err)
			}
			d.await("commit of all messages", func() bool { return len(d.done) == len(all) })
		})
	}
}
