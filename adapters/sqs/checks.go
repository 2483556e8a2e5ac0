package sqs

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/sqs/internal/api"
	"github.com/redeliver/redeliver/internal/check"
	"github.com/redeliver/redeliver/internal/engine"
)

// check refuses settings that would cut retries short, and adds notes.
func (l *layout) check(ps *check.Problems) {
	l.notes, l.unchecked = nil, nil
	for _, q := range l.queues() {
		if q.AttributesDenied {
			l.unchecked = append(l.unchecked, fmt.Sprintf("the attributes of %s (sqs:GetQueueAttributes is denied)", q.Name))
		}
	}
	for _, q := range slices.Backward(l.ownQueues()) {
		if q.Exists && !q.AttributesDenied && l.main.Exists && q.MaxSize < l.main.MaxSize {
			ps.Add("queue "+q.Name, q.MaxSize, fmt.Sprintf("must take messages of %d bytes as %s does: raise its MaximumMessageSize", l.main.MaxSize, l.main.Name))
		}
		switch {
		case !q.Exists || q.Retention() == 0:
		case q == l.dlq && l.dlqRetention > 0:
			if q.Retention() != l.dlqRetention {
				ps.Add("queue "+q.Name, q.Retention(), fmt.Sprintf("must keep messages for %s, as DLQ.Retention says: change one of the two", l.dlqRetention))
			}
		case q.Retention() < api.MaxRetention:
			l.notes = append(l.notes, fmt.Sprintf("%s keeps its messages for %s only; SQS can keep them for %s", q.Name, q.Retention(), api.MaxRetention))
		}
	}
	l.checkRetention(ps)
	for _, q := range []*api.Queue{l.main, l.suspects} {
		if q.Exists {
			l.checkRedrive(ps, q)
		}
	}
	if l.dlq == nil {
		l.notes = append(l.notes, "there is no DLQ: a message that is not retried is reported, and lost (DLQ.Discard)")
	} else if target, _, ok := l.dlq.RedrivePolicy(); ok {
		ps.Add("queue "+l.dlq.Name, target, "must have no RedrivePolicy of its own: each scan is a receive of every dead letter")
	}
	if l.place != nil {
		if target, _, ok := l.place.RedrivePolicy(); ok {
			ps.Add("queue "+l.place.Name, target, "must have no RedrivePolicy: a note is received often")
		}
	}
	for _, q := range []*api.Queue{l.main, l.suspects} {
		if text := l.redriveRefusal(q); text != "" {
			l.notes = append(l.notes, text)
		}
	}
	if l.main.Delay > 0 {
		if l.main.FIFO {
			l.notes = append(l.notes, fmt.Sprintf("%s delays each message by %d s when it is sent; retries wait hidden and are not delayed by that", l.main.Name, l.main.Delay))
		} else {
			l.notes = append(l.notes, fmt.Sprintf("%s delays each message by %d s; a retry has its own delay, which is at least 1 s there", l.main.Name, l.main.Delay))
		}
	}
}

// checkRetention refuses a queue that deletes messages while they wait in it.
func (l *layout) checkRetention(ps *check.Problems) {
	q := l.main
	if q.Retention() == 0 {
		return
	}
	if q.Retention() < api.MinRetention {
		ps.Add("queue "+q.Name, q.Retention(), fmt.Sprintf("must keep messages for at least %s, so that they can wait: raise its MessageRetentionPeriod", api.MinRetention))
		return
	}
	if wait, rule := l.waitOfCopy(); q.Retention() <= wait {
		ps.Add("queue "+q.Name, q.Retention(), fmt.Sprintf("must keep messages for longer than %s, %s: raise its MessageRetentionPeriod", wait, rule))
	}
}

// maxHeld returns how long a received message can be hidden for an attempt, without the waits that the policy plans, and
// why not longer.
func (l *layout) maxHeld() (longest time.Duration, why string) {
	longest, why = maxVisibility, "SQS hides a received message for at most 12 h"
	if l.main.FIFO { // waits are spent under one receive
		longest, why = longest-l.totalWait, why+", the waits of its group included"
	}
	wait, _ := l.waitOfCopy()
	if kept := l.main.Retention(); kept > 0 && kept-wait < longest {
		longest, why = kept-wait, fmt.Sprintf("SQS deletes a message, hidden or not, %s after it was sent; MessageRetentionPeriod can be raised", kept)
	}
	return longest, why
}

// holders returns for each queue how long its messages can be hidden, as far as that is known without a request.
func (c Config) holders(queues []string) (all []*engine.Subscription) {
	for _, queue := range queues {
		if l, err := newLayout(&c, queue); err == nil { // otherwise the start fails for that
			s := &engine.Subscription{Origin: l.main.Name, Policy: l.policy}
			s.MaxHeld, s.MaxHeldWhy = l.maxHeld()
			all = append(all, s)
		}
	}
	return all
}

// waitOfCopy returns the longest time for which the policy lets a copy of a message wait in the queue, and what that is.
func (l *layout) waitOfCopy() (wait time.Duration, rule string) {
	if l.main.FIFO {
		return l.totalWait, "all waits together: a message keeps its age"
	}
	return min(l.longestWait, 15*time.Minute), "the longest wait of one copy"
}

// checkRedrive checks a queue's own RedrivePolicy.
func (l *layout) checkRedrive(ps *check.Problems, q *api.Queue) {
	target, maxReceives, ok := q.RedrivePolicy()
	if !ok {
		if q.Kind == api.MainQueue && !q.AttributesDenied && l.dlq != nil {
			l.notes = append(l.notes, fmt.Sprintf("%s has no RedrivePolicy, and needs none: redeliver writes to %s itself", q.Name, l.dlq.Name))
		}
		return
	}
	target = target[strings.LastIndexByte(target, ':')+1:]
	if api.IsFIFO(target) != q.FIFO {
		ps.Add("queue "+q.Name, "RedrivePolicy to "+target, "must point to a queue of its own kind: FIFO to FIFO, standard to standard")
	}
	minReceiveCount, why := minReceives, "a message that comes back is rewritten before SQS moves it away"
	switch {
	case q.Kind == api.SuspectQueue:
		minReceiveCount, why = l.policy.MaxCrashes+1, "a suspect is received once for each crash"
	case q.FIFO:
		minReceiveCount = max(0, l.policy.MaxRetries) + 1 + 3
		why = "MaxRetries+1 attempts, and 3 more receives for restarts"
	}
	if maxReceives < minReceiveCount {
		ps.Add("queue "+q.Name, fmt.Sprintf("maxReceiveCount %d", maxReceives), fmt.Sprintf("must be at least %d in its RedrivePolicy: %s", minReceiveCount, why))
		return
	}
	if q.Kind != api.MainQueue || maxReceives >= maxReceiveCount && l.dlq != nil && target == l.dlq.Name {
		return
	}
	restart := "each retry is a new message, so that only restarts and crashes count as receives"
	if q.FIFO {
		restart = "a retry is not a receive while its process lives; each restart is one"
	}
	l.notes = append(l.notes, fmt.Sprintf(
		"%s has a RedrivePolicy of its own: after %d receives SQS moves a message to %s, without redeliver's state; %s", q.Name, maxReceives, target, restart))
}

// maxHandlerWait returns the longest wait that a handler may ask for.
func (l *layout) maxHandlerWait() time.Duration {
	switch kept := l.main.Retention(); {
	case !l.main.FIFO:
		return redeliver.MaxWait
	case kept > 0: // the message keeps its age
		return min(maxVisibility, kept)
	default:
		return maxVisibility
	}
}

// redriveRefusal says that the DLQ's RedriveAllowPolicy refuses a queue of redeliver, or a queue that redeliver creates, as
// a source. It returns "" if not. Such a queue has no RedrivePolicy, and needs none.
func (l *layout) redriveRefusal(q *api.Queue) string {
	if _, _, has := q.RedrivePolicy(); has || q == l.main && q.Exists || l.dlq == nil || l.dlq.ARN == "" {
		return ""
	}
	arn := l.dlq.ARN[:strings.LastIndexByte(l.dlq.ARN, ':')+1] + q.Name
	if l.dlq.AllowsSource(arn) {
		return ""
	}
	return fmt.Sprintf("the RedriveAllowPolicy of %s does not allow %s, which has no RedrivePolicy therefore: SQS moves nothing there, and redeliver needs no such move. "+
		"If you want one, set redrivePermission byQueue with %s in sourceQueueArns, and then the RedrivePolicy of %s", l.dlq.Name, q.Name, arn, q.Name)
}
