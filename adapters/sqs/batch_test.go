package sqs

import (
	"fmt"
	"testing"
	"time"
)

// requests returns how many requests for messages the server has got, by action.
func (b *bubble) requests() map[string]int {
	all := map[string]int{}
	for _, action := range []string{"ReceiveMessage", "DeleteMessageBatch", "ChangeMessageVisibilityBatch", "SendMessageBatch"} {
		all[action] = b.Count(action)
	}
	return all
}

func (b *bubble) messageRequests() (total int) {
	for _, n := range b.requests() {
		total += n
	}
	return total
}

// A user pays for each request. The test counts them on success, with all messages there at the start, and for retries,
// with 500 new messages a second.
func TestRequestsPerMessage(t *testing.T) {
	const n = 1000 // the time of the fake grows with the square of n
	inBubble(t, func(b *bubble) {
		b.Create("orders")
		for i := range n {
			b.put("orders", fmt.Sprint("m", i), "v", "", nil)
		}
		c := b.start("one", "orders", Config{}, succeed)
		b.advance(5 * time.Second)
		b.close(c)
		total := b.messageRequests()
		t.Logf("report: %.3f requests for a message that succeeds", float64(total)/n)
		if len(b.ran("")) != n || float64(total)/n > 0.22 {
			t.Errorf("%d requests for %d messages, %d ran: %v", total, n, len(b.ran("")), b.requests())
		}
	})
	inBubble(t, func(b *bubble) {
		b.Create("orders")
		c := b.start("one", "orders", Config{Policy: steps(3, time.Second), MaxInFlight: 500}, failHandler)
		for i := range n {
			b.put("orders", fmt.Sprint("m", i), "v", "", nil)
			if i%5 == 0 {
				b.advance(10 * time.Millisecond)
			}
		}
		b.advance(10 * time.Second)
		b.close(c)
		total := b.messageRequests()
		t.Logf("report: %.3f requests for one run of a message that fails, %v", float64(total)/n/4, b.requests())
		if len(b.ran("")) != 4*n || float64(total)/n/4 > 0.45 {
			t.Errorf("%d requests for %d runs: %v", total, len(b.ran("")), b.requests())
		}
	})
}
