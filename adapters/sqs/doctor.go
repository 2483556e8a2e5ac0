package sqs

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/doctor"
	"github.com/redeliver/redeliver/internal/wait"
)

// Doctor makes readChecks checks, readCheckPause apart, before it reports no reader.
const (
	readChecks     = 4
	readCheckPause = time.Second
)

// Doctor checks a queue and the queues beside it. It checks that they exist, keep their messages
// for long enough, and are read. It receives nothing, because that would hide messages from others.
// It writes and creates nothing. So it finds neither late messages nor consumers. It takes some
// seconds if the queue has messages. It returns an error if SQS does not answer.
func (c *Client) Doctor(ctx context.Context, topic string, how doctor.Examination) (*doctor.Diagnosis, error) {
	l, a, err := newLayout(&c.cfg, topic)
	if err != nil {
		return nil, err
	}
	d := &doctor.Diagnosis{Origin: l.main.name, Group: l.main.name}
	for _, q := range l.queues() {
		at := address{name: q.name}
		if q == l.main {
			at = a
		}
		if err := c.describeQueue(ctx, q, at); err != nil {
			return nil, err
		}
		if !q.exists {
			d.Add(doctor.SymptomMissing, q.name, fmt.Sprintf("the queue does not exist (%s): there was never a subscription to %s, or it was deleted", q.kind, l.main.name))
		}
	}
	if l.main.exists {
		mark, err := c.pauseMark(ctx, l.main)
		if err != nil {
			d.NotChecked = append(d.NotChecked, fmt.Sprintf("whether the queue is paused (%v)", err))
		} else {
			d.AddPause(mark)
		}
	}
	if how.AnyPolicy { // the policy with the longest waits is unknown
		l.longestWait, l.totalWait = 0, 0
		d.NotChecked = append(d.NotChecked, "whether the retention is longer than the waits (the policy is not given)")
	}
	var ps redeliver.Problems
	l.check(&ps)
	for _, p := range ps {
		kind := doctor.SymptomSettings
		if strings.Contains(p.Rule, "MessageRetentionPeriod") {
			kind = doctor.SymptomRetention
		}
		d.Add(kind, strings.TrimPrefix(p.Field, "queue "), fmt.Sprintf("%v: %s", p.Value, p.Rule))
	}
	for _, q := range l.queues() {
		if q.exists && !q.attributesDenied && q.retention == 0 {
			d.NotChecked = append(d.NotChecked, "the retention of "+q.name+" (the server does not report it)")
		}
		if q != l.main && q.exists && q.retention > 0 && q.retention < maxRetention {
			d.Add(doctor.SymptomRetention, q.name, fmt.Sprintf("SQS deletes its messages after %s, and can keep them for %s: raise its MessageRetentionPeriod", q.retention, maxRetention))
		}
	}
	d.Checked = append(d.Checked, "which queues are there, and their RedrivePolicy")
	if l.main.retention > 0 {
		d.Checked = append(d.Checked, "retention")
	}
	d.NotChecked = append(d.NotChecked, l.unchecked...)
	d.NotChecked = append(d.NotChecked,
		"what is late (SQS does not report it without a receive; CloudWatch has ApproximateAgeOfOldestMessage)",
		"the policies of the consumers (SQS does not know its consumers)")
	return d, c.checkReaders(ctx, l.main, d)
}

// checkReaders checks whether anything reads the queue. Without a reader, messages stay for a while and none is in
// flight.
func (c *Client) checkReaders(ctx context.Context, q *queue, d *doctor.Diagnosis) error {
	if !q.exists {
		return nil
	}
	var waiting int64
	for n := range readChecks {
		if n > 0 {
			if wait.For(ctx, readCheckPause) != nil {
				return ctx.Err()
			}
			if err := c.describeQueue(ctx, q, address{name: q.name, url: q.url}); err != nil {
				return err
			}
		}
		visible, err1 := strconv.ParseInt(q.attributes["ApproximateNumberOfMessages"], 10, 64)
		hidden, err2 := strconv.ParseInt(q.attributes["ApproximateNumberOfMessagesNotVisible"], 10, 64)
		if err1 != nil || err2 != nil {
			d.NotChecked = append(d.NotChecked, "whether there is a reader of "+q.name+" (the server does not report its attributes)")
			return nil //nolint:nilerr // which is said
		}
		d.Backlog = &visible
		if waiting = visible; visible == 0 || hidden > 0 {
			break
		}
	}
	d.Checked = append(d.Checked, "whether there is a reader of "+q.name)
	if waiting > 0 && q.isIdle() {
		d.Add(doctor.SymptomConsumer, q.name, fmt.Sprintf("about %d messages wait in it, and for %s none was in flight: it has no reader", waiting, (readChecks-1)*readCheckPause))
	}
	return nil
}

// isIdle reports whether no message of the queue is in flight.
func (q *queue) isIdle() bool { return q.attributes["ApproximateNumberOfMessagesNotVisible"] == "0" }
