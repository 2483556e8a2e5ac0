package otel

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	api "go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/internal/observed"
)

// DLQConfig configures [WatchDLQs]. System and Queues are required.
type DLQConfig struct {
	// System is as in Config.
	System string
	// MeterProvider is as in Config.
	MeterProvider metric.MeterProvider
	// Queues are the DLQs. They must stay open until the registration ends.
	Queues []deadletter.Queue
	// Timeout bounds the requests to one DLQ at a collection. All DLQs are asked at the same time. Default 5 s.
	Timeout time.Duration
}

// WatchDLQs registers gauges that ask the broker about DLQs at each collection. They read no message:
//
//	redeliver.dlq_up             1 if the broker answered, otherwise 0 and no other series of that DLQ
//	redeliver.dlq_messages       the number of messages; redeliver.exact is false for an estimate
//	redeliver.dlq_oldest_age     the age of the oldest message; absent for an empty DLQ
//	redeliver.dlq_retention      how long the broker keeps a message; absent if forever
//	redeliver.dlq_open_tasks     replays and other tasks that run or can be resumed, by kind and status
//	redeliver.dlq_task_messages  messages in the recorded tasks, by kind and outcome
//
// Tasks and the retention are read at most every half minute, because on RabbitMQ and SQS that takes a lock that others
// wait for. Age and retention are absent if the broker does not report them. Unregister ends the gauges.
func WatchDLQs(cfg DLQConfig) (metric.Registration, error) {
	if cfg.System == "" || len(cfg.Queues) == 0 {
		return nil, errors.New("otel: System (the broker) and Queues (its DLQs) are required")
	}
	if cfg.MeterProvider == nil {
		cfg.MeterProvider = api.GetMeterProvider()
	}
	cfg.Timeout = cmp.Or(cfg.Timeout, observed.DefaultTimeout)
	queues, err := observed.DLQs(cfg.Queues)
	if err != nil {
		return nil, fmt.Errorf("otel: %w", err)
	}
	m := instruments{meter: cfg.MeterProvider.Meter(scope)}
	d := &dlqs{
		system: cfg.System, timeout: cfg.Timeout, of: queues,
		up:           m.observable("redeliver.dlq_up", "1 if the broker answered, otherwise 0.", "1"),
		messages:     m.observable("redeliver.dlq_messages", "Messages in the DLQ.", "{message}"),
		tasks:        m.observable("redeliver.dlq_open_tasks", "Tasks on the DLQ that run or can be resumed.", "{task}"),
		taskMessages: m.observable("redeliver.dlq_task_messages", "Messages in all recorded tasks, by kind of the task and outcome.", "{message}"),
		age:          m.seconds("redeliver.dlq_oldest_age", "Age of the oldest message in the DLQ."),
		retention:    m.seconds("redeliver.dlq_retention", "How long the broker keeps a message in the DLQ."),
	}
	if m.err != nil {
		return nil, m.err
	}
	return m.meter.RegisterCallback(d.collect, d.up, d.messages, d.tasks, d.taskMessages, d.age, d.retention)
}

type dlqs struct {
	system  string
	timeout time.Duration
	of      []*observed.DLQ

	up, messages, tasks, taskMessages metric.Int64ObservableGauge
	age, retention                    metric.Float64ObservableGauge
}

// collect reads all DLQs at the same time, so that a broker that does not answer does not delay the others.
func (d *dlqs) collect(ctx context.Context, to metric.Observer) error {
	measured, errs := make([]observed.Measurement, len(d.of)), make([]error, len(d.of))
	var all sync.WaitGroup
	for i, q := range d.of {
		all.Go(func() { measured[i], errs[i] = q.Measure(ctx, d.timeout) })
	}
	all.Wait()
	for i, q := range d.of {
		d.observe(to, &q.Info, &measured[i], errs[i])
	}
	return nil
}

func (d *dlqs) observe(to metric.Observer, info *deadletter.Info, m *observed.Measurement, err error) {
	attrs := []attribute.KeyValue{attrSystem.String(d.system), attrDLQ.String(info.DLQ), attrDest.String(info.Origin), attrGroupName.String(info.Group)}
	attrs = slices.Clip(attrs)
	if err != nil {
		to.ObserveInt64(d.up, 0, with(attrs...))
		return
	}
	to.ObserveInt64(d.up, 1, with(attrs...))
	to.ObserveInt64(d.messages, m.Messages, with(append(attrs, attrExact.String(strconv.FormatBool(m.Exact)))...))
	if m.HasAge {
		to.ObserveFloat64(d.age, m.Age.Seconds(), with(attrs...))
	}
	if m.Retention > 0 {
		to.ObserveFloat64(d.retention, m.Retention.Seconds(), with(attrs...))
	}
	for s, n := range m.OpenTasks {
		to.ObserveInt64(d.tasks, int64(n), with(append(attrs, attrTaskKind.String(string(s.Kind)), attrTaskStat.String(string(s.Status)))...))
	}
	for f, n := range m.TaskMessages {
		to.ObserveInt64(d.taskMessages, n, with(append(attrs, attrTaskKind.String(string(f.Kind)), attrTaskOut.String(f.Outcome))...))
	}
}
