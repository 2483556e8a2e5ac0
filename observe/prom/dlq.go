package prom

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/internal/observed"
)

// DLQConfig configures [NewDLQs]. System and Queues are required.
type DLQConfig struct {
	// System is as in Config.
	System string
	// Queues are the DLQs. They must stay open while they are collected.
	Queues []deadletter.Queue
	// Timeout bounds the requests to one DLQ at a scrape. All DLQs are asked at the same time. Default 5 s.
	Timeout time.Duration
	// ReadAges reads at most 100 messages of a DLQ, once a minute, if the broker does not report the age of the oldest
	// one. Queue.Info().ReadEffect says what that does to them. It reads no DLQ with MaxReads, and none on RabbitMQ, where a
	// policy may set a delivery limit at any time. Default false.
	ReadAges bool
}

// NewDLQs returns a collector that asks the broker about DLQs at each scrape. It reads no message, except for ReadAges:
//
//	redeliver_dlq_up                  1 if the broker answered, otherwise 0 and no other series of that DLQ
//	redeliver_dlq_messages            the number of messages; exact is "false" for an estimate
//	redeliver_dlq_oldest_age_seconds  the age of the oldest message; absent for an empty DLQ
//	redeliver_dlq_retention_seconds   how long the broker keeps a message; absent if forever
//	redeliver_dlq_open_tasks          replays and other tasks that run or can be resumed, by kind and status
//	redeliver_dlq_task_messages       messages in the recorded tasks, by kind and outcome
//
// Tasks and the retention are read at most every half minute, because on RabbitMQ and SQS that takes a lock that others
// wait for. If the broker does not report age or retention, only those are missing.
func NewDLQs(cfg DLQConfig) (prometheus.Collector, error) {
	if cfg.System == "" || len(cfg.Queues) == 0 {
		return nil, errors.New("prom: System (the broker) and Queues (its DLQs) are required")
	}
	cfg.Timeout = cmp.Or(cfg.Timeout, observed.DefaultTimeout)
	of := prometheus.Labels{"messaging_system": cfg.System}
	desc := func(name, help string, more ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, append([]string{"dlq", "origin", "group"}, more...), of)
	}
	all := &dlqs{
		timeout:      cfg.Timeout,
		up:           desc("redeliver_dlq_up", "1 if the broker answered, otherwise 0."),
		messages:     desc("redeliver_dlq_messages", "Messages in the DLQ.", "exact"),
		age:          desc("redeliver_dlq_oldest_age_seconds", "Age of the oldest message in the DLQ."),
		retention:    desc("redeliver_dlq_retention_seconds", "How long the broker keeps a message in the DLQ."),
		taskMessages: desc("redeliver_dlq_task_messages", "Messages in all recorded tasks, by kind of the task and outcome.", "kind", "outcome"),
		tasks:        desc("redeliver_dlq_open_tasks", "Tasks on the DLQ that run or can be resumed.", "kind", "status"),
	}
	queues, err := observed.DLQs(cfg.Queues)
	if err != nil {
		return nil, fmt.Errorf("prom: %w", err)
	}
	for _, q := range queues {
		q.ReadAge = cfg.ReadAges && cfg.System != "rabbitmq"
	}
	all.of = queues
	return all, nil
}

type dlqs struct {
	of      []*observed.DLQ
	timeout time.Duration

	up, messages, age, retention, tasks, taskMessages *prometheus.Desc
}

// Describe implements [prometheus.Collector].
func (d *dlqs) Describe(to chan<- *prometheus.Desc) {
	to <- d.up
	to <- d.messages
	to <- d.age
	to <- d.retention
	to <- d.tasks
	to <- d.taskMessages
}

// Collect implements [prometheus.Collector].
func (d *dlqs) Collect(to chan<- prometheus.Metric) {
	var all sync.WaitGroup
	for _, q := range d.of {
		all.Go(func() { d.collectQueue(q, to) })
	}
	all.Wait()
}

func (d *dlqs) collectQueue(q *observed.DLQ, to chan<- prometheus.Metric) {
	send := func(desc *prometheus.Desc, v float64, more ...string) {
		to <- gauge(desc, v, append([]string{q.Info.DLQ, q.Info.Origin, q.Info.Group}, more...)...)
	}
	m, err := q.Measure(context.Background(), d.timeout)
	send(d.up, oneIf(err == nil))
	if err != nil {
		return
	}
	send(d.messages, float64(m.Messages), strconv.FormatBool(m.Exact))
	if m.HasAge {
		send(d.age, m.Age.Seconds())
	}
	if m.Retention > 0 {
		send(d.retention, m.Retention.Seconds())
	}
	for s, n := range m.OpenTasks {
		send(d.tasks, float64(n), string(s.Kind), string(s.Status))
	}
	for f, n := range m.TaskMessages {
		send(d.taskMessages, float64(n), string(f.Kind), f.Outcome)
	}
}
