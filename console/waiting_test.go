package console

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// waitingErrorStub is a healthy DLQ whose request for waiting messages fails.
type waitingErrorStub struct {
	*stub
	mu    sync.Mutex
	err   error
	asked int
}

func (q *waitingErrorStub) Waiting(context.Context) ([]Level, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.asked++
	return []Level{{Name: "10s", Count: 4}}, q.err
}

func (q *waitingErrorStub) answers(err error) (asked int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.err = err
	return q.asked
}

// If the broker does not report waiting messages, the DLQ does not count as one that does not answer. Each request may
// open a connection, so they are rare.
func TestWaitingMessagesAreCountedRarelyAndTheirErrorHidesNoDLQ(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &waitingErrorStub{stub: newStub("q", 3), err: errors.New("access refused for amqp://ann:secret@rabbit")}
		c, err := New(Config{Queues: []Queue{{Queue: q}}, Notes: []string{"eu/mails.dlq is not shown"}})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		<-time.After(time.Second)
		home, dlq := get(t, c, "/"), get(t, c, page("dlq", q))
		home.has(t, "3 dead letters", "not known: access refused", "eu/mails.dlq is not shown")
		dlq.has(t, "Waiting for a retry Not known: access refused")
		for _, text := range []string{home.text(), dlq.text()} {
			for _, not := range []string{"no answer", "The broker does not answer", "secret"} {
				if strings.Contains(text, not) {
					t.Errorf("a page says %q:\n%s", not, text)
				}
			}
		}
		q.answers(nil)
		<-time.After(time.Hour)
		get(t, c, "/").has(t, "4 waiting: 10s 4")
		if n := q.answers(nil); n < 50 || n > 62 {
			t.Errorf("it was asked %d times in an hour", n)
		}
	})
}

// A console without DLQs shows why there are none.
func TestAConsoleWithoutDLQsSaysWhy(t *testing.T) {
	t.Parallel()
	c, err := New(Config{Notes: []string{"there is none yet, 17"}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	get(t, c, "/").has(t, "No dead-letter queues", "there is none yet, 17")
}

// An unreadable certificate is reported before the address.
func TestAnInvalidCertificateIsRefusedBeforeItListens(t *testing.T) {
	t.Parallel()
	c, err := New(Config{Queues: []Queue{{Queue: newStub("q", 0)}}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	err = c.ListenAndServe(t.Context(), ServeConfig{Address: "127.0.0.1:0", CertFile: "waiting_test.go", KeyFile: "waiting_test.go", Ready: func(url string) { t.Errorf("it listens on %s", url) }})
	if err == nil || !strings.Contains(err.Error(), "the certificate") {
		t.Errorf("it says %v", err)
	}
}
