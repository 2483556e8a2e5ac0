package kafkaworld

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka"
	"github.com/redeliver/redeliver/deadletter"

	"github.com/redeliver/redeliver/integration/worlds/plan"
	"github.com/redeliver/redeliver/mq"
)

// operator opens a client as an operator's command does.
func (d *Driver) operator(group string) (*mq.Client, error) {
	return kafka.Open(context.Background(), kafka.Config{
		Brokers: d.addrs, Group: group, Sarama: saramaConfig("operator", newMachine(&d.network, "operator")), Sink: redeliver.SinkFunc(func(redeliver.Event) {}),
	})
}

// workOnDLQ replays or purges a DLQ, and returns an error if that is not done. The driver first reads the dead letters, because
// redeliver deletes them when they are settled. Meanwhile the DLQ refuses others.
func (d *Driver) workOnDLQ(o plan.Word, group string) (err error) {
	defer d.lockWork()()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	dlq := o.Topic + "." + group + ".dlq"
	if d.cluster.TopicInfo(dlq) == nil {
		return errors.New("there is no DLQ")
	}
	defer d.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: dlq, Err: kerr.NotLeaderForPartition, Count: -1}).Remove()
	letters, err := d.readDLQ(ctx, dlq)
	if err != nil {
		return err
	}
	d.mu.Lock()
	d.letters[group] = append(d.letters[group], letters...)
	d.mu.Unlock()
	task, err := d.withDLQ(ctx, o.Topic, group, func(ctx context.Context, q deadletter.Queue) (deadletter.Task, error) {
		if o.What == plan.Purge {
			return deadletter.Purge(ctx, q, deadletter.PurgeOptions{Who: "world", Why: "a world", Everything: true})
		}
		options := deadletter.ReplayOptions{Who: "world", Why: "a world"}
		switch o.Count {
		case 1:
			options.Canary, options.Watch = []int{1, 10}, 10*time.Second
		case 2:
			options.Rate = 2
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, 3*time.Second)
			defer cancel()
		}
		return deadletter.Replay(ctx, q, options)
	})
	if o.Count == 2 && task.Resumable() {
		task, err = d.withDLQ(ctx, o.Topic, group, func(ctx context.Context, q deadletter.Queue) (deadletter.Task, error) {
			return deadletter.Resume(ctx, q, task.ID, deadletter.ResumeOptions{Who: "world"})
		})
	}
	if err == nil && task.Status != deadletter.StatusDone {
		err = fmt.Errorf("the task is %s: %s", task.Status, task.Note)
	}
	return err
}

// withDLQ opens a DLQ for one piece of work.
func (d *Driver) withDLQ(ctx context.Context, topic, group string, do func(context.Context, deadletter.Queue) (deadletter.Task, error)) (t deadletter.Task, err error) {
	c, err := d.operator(group)
	if err != nil {
		return t, err
	}
	q, err := c.Operations().DeadLetters(ctx, mq.DeadLetterConfig{Topic: topic})
	if err == nil {
		t, err = do(ctx, q)
		err = errors.Join(err, q.Close())
	}
	return t, errors.Join(err, c.Close(context.Background()))
}
