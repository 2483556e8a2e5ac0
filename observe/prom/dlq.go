package prom

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/redeliver/redeliver/deadletter"
)

// DLQConfig of [NewDLQs]. System and Queues are required.
type DLQConfig struct {
	// System is as in Config.
	System string
	// Queues are the DLQs. They must stay open for as long as they are collected.
	Queues []deadletter.Queue
	// Timeout bounds what one scrape asks of the broker. Default 5 s.
	Timeout time.Duration
}

// NewDLQs returns a collector that asks the broker at each scrape what lies in DLQs. It
// looks at no message:
//
//	redeliver_dlq_messages    how many lie there; where the broker only estimates it, exact is "false"
//	redeliver_dlq_open_tasks  replays and other tasks that run or can be resumed, by kind and status
//
// A DLQ that cannot be asked makes the scrape report an error, beside the others.
func NewDLQs(cfg DLQConfig) (prometheus.Collector, error) {
	if cfg.System == "" || len(cfg.Queues) == 0 {
		return nil, errors.New("prom: System and Queues are required: which DLQs, and of which broker")
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = 5 * time.Second
	}
	of := prometheus.Labels{"messaging_system": cfg.System}
	desc := func(name, help string, more ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, append([]string{"dlq", "origin", "group"}, more...), of)
	}
	return &dlqs{
		cfg:      cfg,
		messages: desc("redeliver_dlq_messages", "Messages in the DLQ.", "exact"),
		tasks:    desc("redeliver_dlq_open_tasks", "Tasks on the DLQ that run or can be resumed.", "kind", "status"),
	}, nil
}

type dlqs struct {
	cfg             DLQConfig
	messages, tasks *prometheus.Desc
}

// Describe implements [prometheus.Collector].
func (d *dlqs) Describe(to chan<- *prometheus.Desc) {
	to <- d.messages
	to <- d.tasks
}

// Collect implements [prometheus.Collector].
func (d *dlqs) Collect(to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), d.cfg.Timeout)
	defer cancel()
	for _, q := range d.cfg.Queues {
		if err := d.collect(ctx, q, to); err != nil {
			to <- prometheus.NewInvalidMetric(d.messages, err)
		}
	}
}

func (d *dlqs) collect(ctx context.Context, q deadletter.Queue, to chan<- prometheus.Metric) error {
	info := q.Info()
	gauge := func(desc *prometheus.Desc, v float64, more ...string) {
		to <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, v, append([]string{info.DLQ, info.Origin, info.Group}, more...)...)
	}
	n, exact, err := q.Count(ctx)
	if err != nil {
		return err
	}
	gauge(d.messages, float64(n), boolean(exact))
	tasks, err := deadletter.History(ctx, q)
	if err != nil {
		return err
	}
	type sort struct {
		kind   deadletter.Kind
		status deadletter.Status
	}
	open := make(map[sort]int)
	for i := range tasks {
		if t := &tasks[i]; t.Open() {
			open[sort{t.Kind, t.Status}]++
		}
	}
	for s, n := range open {
		gauge(d.tasks, float64(n), string(s.kind), string(s.status))
	}
	return nil
}
