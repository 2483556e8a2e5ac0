package sqs

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/redeliver/redeliver/adapters/sqs/internal/api"
	"github.com/redeliver/redeliver/doctor"
	"github.com/redeliver/redeliver/internal/check"
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
func (c *client) Doctor(ctx context.Context, topic string, how doctor.Examination) (*doctor.Diagnosis, error) {
	l, err := newLayout(&c.cfg, topic)
	if err == nil {
		err = c.describeQueues(ctx, l)
	}
	if err != nil {
		return nil, err
	}
	d := &doctor.Diagnosis{Origin: l.main.Name, Group: l.main.Name}
	for _, q := range l.queues() {
		if !q.Exists {
			d.Add(doctor.SymptomMissing, q.Name, fmt.Sprintf("the queue does not exist (%s): there was never a subscription to %s, or it was deleted", q.Kind, l.main.Name))
		}
	}
	if l.main.Exists {
		d.AddPause(pauseMark(ctx, l.main))
	}
	if how.AnyPolicy { // the policy with the longest waits is unknown
		l.longestWait, l.totalWait = 0, 0
		d.NotChecked = append(d.NotChecked, "whether the retention is longer than the waits (the policy is not given)")
	}
	var ps check.Problems
	l.check(&ps)
	for _, p := range ps {
		kind := doctor.SymptomSettings
		if strings.Contains(p.Rule, "MessageRetentionPeriod") {
			kind = doctor.SymptomRetention
		}
		d.Add(kind, strings.TrimPrefix(p.Field, "queue "), fmt.Sprintf("%v: %s", p.Value, p.Rule))
	}
	if text := l.redriveRefusal(l.suspects); text != "" {
		d.Add(doctor.SymptomSettings, l.dlq.Name, text)
	}
	for _, q := range l.queues() {
		if q.Exists && !q.AttributesDenied && q.Retention() == 0 {
			d.NotChecked = append(d.NotChecked, "the retention of "+q.Name+" (the server does not report it)")
		}
		if q != l.main && q.Exists && q.Retention() > 0 && q.Retention() < api.MaxRetention {
			d.Add(doctor.SymptomRetention, q.Name, fmt.Sprintf("SQS deletes its messages after %s, and can keep them for %s: raise its MessageRetentionPeriod", q.Retention(), api.MaxRetention))
		}
	}
	d.Checked = append(d.Checked, "which queues are there, and their RedrivePolicy")
	if l.main.Retention() > 0 {
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
func (c *client) checkReaders(ctx context.Context, q *api.Queue, d *doctor.Diagnosis) error {
	if !q.Exists {
		return nil
	}
	var counts api.Counts
	for n := range readChecks {
		if n > 0 {
			if wait.For(ctx, readCheckPause) != nil {
				return ctx.Err()
			}
			if err := c.describeQueue(ctx, q, address{name: q.Name, url: q.URL}); err != nil {
				return err
			}
		}
		var err error
		if counts, err = q.LastCounts(); err != nil {
			d.NotChecked = append(d.NotChecked, "whether there is a reader of "+q.Name+" (the server does not report its attributes)")
			return nil //nolint:nilerr // NotChecked has it
		}
		if counts.Visible == 0 || counts.Hidden > 0 {
			break
		}
	}
	d.Backlog = &counts.Visible
	d.Checked = append(d.Checked, "whether there is a reader of "+q.Name)
	if counts.Visible > 0 && counts.Hidden == 0 {
		d.Add(doctor.SymptomConsumer, q.Name, fmt.Sprintf("about %d messages wait in it, and for %s none was in flight: it has no reader", counts.Visible, (readChecks-1)*readCheckPause))
	}
	return nil
}
