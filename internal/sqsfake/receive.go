package sqsfake

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// poll is one receive.
type poll struct {
	call   *Call
	end    time.Time
	long   bool            // it waits
	looks  int             // so far
	locked map[string]bool // the groups that were held when it looked
}

// receive carries out ReceiveMessage. An error means that the client has gone. Then the receive continues.
func (s *Server) receive(ctx context.Context, c *Call) (answer, error) {
	p := &poll{call: c, locked: make(map[string]bool)}
	a, err := s.wait(ctx, p)
	if err != nil {
		s.mu.Lock()
		s.abandoned++
		s.mu.Unlock()
		s.background.Go(func() { _, _ = s.wait(context.Background(), p) })
	}
	return a, err
}

// wait looks for messages until there are some or the wait is over.
func (s *Server) wait(ctx context.Context, p *poll) (answer, error) {
	for {
		s.mu.Lock()
		a, next, changed := s.lookLocked(p)
		s.mu.Unlock()
		if next.IsZero() {
			return a, nil
		}
		timer := time.NewTimer(time.Until(next))
		select {
		case <-timer.C:
			continue
		case <-changed:
			timer.Stop()
		case <-ctx.Done():
			timer.Stop()
			return answer{}, context.Cause(ctx)
		}
		soon := time.Now().Add(s.options.PollLatency)
		if soon.After(p.end) {
			soon = p.end
		}
		if err := waitUntil(ctx, soon); err != nil {
			return answer{}, err
		}
	}
}

// lookLocked looks for messages once. If the receive is not over, it returns when to look again, and what to look at
// meanwhile.
func (s *Server) lookLocked(p *poll) (a answer, next time.Time, changed <-chan struct{}) {
	q, refusal := s.queueLocked(p.call)
	if refusal == nil && p.looks == 0 {
		refusal = checkReceive(p.call.In)
	}
	if refusal != nil {
		return answer{refusal: refusal}, time.Time{}, nil
	}
	now := time.Now()
	if p.looks++; p.looks == 1 {
		wait := seconds(p.call.In, "WaitTimeSeconds", q.attributes["ReceiveMessageWaitTimeSeconds"])
		p.end, p.long = now.Add(wait), wait > 0
	}
	room := s.options.MaxInFlight
	for _, m := range q.messages {
		if m.isInFlight(now) {
			room--
		}
	}
	if room <= 0 && !p.long && !q.fifo {
		return answer{refusal: refuse("OverLimit", "Too many messages in flight.")}, time.Time{}, nil
	}
	found, visible := s.takeLocked(q, p, room, now)
	if len(found) > 0 || !now.Before(p.end) {
		return answer{out: map[string]any{"Messages": found}}, time.Time{}, nil
	}
	if p.looks == 1 && visible && len(p.locked) > 0 {
		s.blocked++
	}
	next = p.end
	for _, m := range q.messages {
		if m.Visible.After(now) && m.Visible.Before(next) && !p.locked[m.Group] {
			next = m.Visible
		}
	}
	return answer{}, next, q.changed
}

// takeLocked receives the messages that a receive can have, at most room. It reports whether there were visible ones.
func (s *Server) takeLocked(q *queue, p *poll, room int, now time.Time) (found []any, visible bool) {
	count := 1
	if n, ok := p.call.In["MaxNumberOfMessages"].(float64); ok {
		count = int(n)
	}
	hidden := seconds(p.call.In, "VisibilityTimeout", q.attributes["VisibilityTimeout"])
	all := slices.Clone(q.messages)
	if q.fifo {
		all = all[:min(len(all), s.options.MaxInFlight)]
		for _, m := range q.messages {
			if m.isInFlight(now) {
				p.locked[m.Group] = true
			}
		}
	}
	found = []any{}
	delayed := make(map[string]bool) // groups of a FIFO queue
	for _, m := range all {
		if m.Visible.After(now) {
			delayed[m.Group] = q.fifo
			continue
		}
		visible = true
		if len(found) >= min(count, room) {
			break
		}
		if q.fifo && p.locked[m.Group] || delayed[m.Group] || s.redriveLocked(q, m) {
			continue
		}
		delete(q.received, m.Receipt)
		m.Receives++
		m.Receipt = s.nextLocked(receiptPrefix(q))
		m.Received, m.Visible = now, now.Add(hidden)
		if m.Receives == 1 {
			m.First = now
		}
		q.received[m.Receipt] = m
		found = append(found, m.toReceived(p.call.In))
	}
	return found, visible
}

// expireLocked deletes the messages whose retention is over, hidden and delayed ones, too.
func (s *Server) expireLocked(q *queue) {
	retention, now := time.Duration(q.number("MessageRetentionPeriod"))*time.Second, time.Now()
	isOver := func(m *Message) bool { return retention > 0 && now.Sub(m.Sent) >= retention }
	if !slices.ContainsFunc(q.messages, isOver) {
		return
	}
	q.messages = slices.DeleteFunc(q.messages, func(m *Message) bool {
		if !isOver(m) {
			return false
		}
		delete(q.received, m.Receipt)
		s.expired = append(s.expired, *m)
		return true
	})
}

// redriveLocked moves a message to the target of the RedrivePolicy when it has been received maxReceiveCount times.
func (s *Server) redriveLocked(q *queue, m *Message) bool {
	p, ok := q.redrivePolicy()
	target := s.queues[nameInARN(p.Target)]
	most, err := p.Most.Int64()
	if !ok || err != nil || target == nil || m.Receives < int(most) {
		return false
	}
	q.drop(m)
	m.Source = ARN(q.name)
	if q.fifo { // a standard queue keeps the age
		m.Sent = time.Now()
	}
	target.messages = append(target.messages, m)
	target.wake()
	return true
}

func (q *queue) drop(m *Message) {
	delete(q.received, m.Receipt)
	if i := slices.Index(q.messages, m); i >= 0 {
		q.messages = slices.Delete(q.messages, i, i+1)
	}
	q.wake() // it may have made room
}

func receiptPrefix(q *queue) string { return "receipt:" + q.name + ":" }

// checkReceipt returns the message of a receipt. It has none if the message is deleted, or if it was received again.
func (s *Server) checkReceipt(q *queue, receipt string) (*Message, *Refusal) {
	m := q.received[receipt]
	if !strings.HasPrefix(receipt, receiptPrefix(q)) || s.options.StrictReceipts && (m == nil || !m.Visible.After(time.Now())) {
		return nil, refuse("ReceiptHandleIsInvalid", "The input receipt handle %q is not a valid receipt handle.", receipt)
	}
	return m, nil
}

// removeLocked carries out DeleteMessage, or an entry of its batch.
func (s *Server) removeLocked(q *queue, receipt string) (map[string]any, *Refusal) {
	m, refusal := s.checkReceipt(q, receipt)
	switch {
	case refusal != nil:
		return nil, refusal
	case m == nil: // deleted, or received again: the request succeeds without effect
	case q.fifo && !m.Visible.After(time.Now()):
		return nil, refuse("InvalidParameterValue", "Value %s for parameter ReceiptHandle is invalid. Reason: The receipt handle has expired.", receipt)
	default:
		q.drop(m)
	}
	return map[string]any{}, nil
}

// hideLocked carries out ChangeMessageVisibility, or an entry of its batch.
func (s *Server) hideLocked(q *queue, e map[string]any) (map[string]any, *Refusal) {
	receipt, now := text(e, "ReceiptHandle"), time.Now()
	m, refusal := s.checkReceipt(q, receipt)
	if refusal == nil {
		refusal = checkRange(e, "VisibilityTimeout", 0, maxVisibility)
	}
	until := now.Add(seconds(e, "VisibilityTimeout", "0"))
	switch {
	case refusal != nil:
		return nil, refusal
	case m == nil:
		return nil, refuse("InvalidParameterValue", "Value %s for parameter ReceiptHandle is invalid. Reason: Message does not exist or is not available for visibility timeout change.", receipt)
	case !m.Visible.After(now):
		return nil, refuse("MessageNotInflight", "The message is not in flight.")
	case until.After(m.Received.Add(maxVisibleAge)):
		return nil, refuse("InvalidParameterValue", "Value %s for parameter VisibilityTimeout is invalid. Reason: Total VisibilityTimeout for the message is beyond the limit [%d seconds].",
			fmt.Sprint(e["VisibilityTimeout"]), maxVisibility)
	}
	m.Visible = until
	q.wake()
	return map[string]any{}, nil
}
