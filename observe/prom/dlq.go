package prom

import (
	"context"
	"errors"
	"fmt"
	"sync"
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
	// Timeout bounds what one scrape asks of one DLQ; they are asked at the same time.
	// Default 5 s.
	Timeout time.Duration
}

// NewDLQs returns a collector that asks the broker at each scrape what lies in DLQs. It
// looks at no message:
//
//	redeliver_dlq_up          1 where the broker has answered, else 0, and nothing else of that DLQ
//	redeliver_dlq_messages    how many lie there; where the broker only estimates it, exact is "false"
//	redeliver_dlq_open_tasks  replays and other tasks that run or can be resumed, by kind and status
//
// What it says of tasks is asked at most every half minute: on RabbitMQ and SQS it takes
// what others wait for.
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
	all := &dlqs{
		timeout:  cfg.Timeout,
		up:       desc("redeliver_dlq_up", "1 where the broker has answered, else 0."),
		messages: desc("redeliver_dlq_messages", "Messages in the DLQ.", "exact"),
		tasks:    desc("redeliver_dlq_open_tasks", "Tasks on the DLQ that run or can be resumed.", "kind", "status"),
	}
	known := make(map[deadletter.Info]bool)
	for _, q := range cfg.Queues {
		info := q.Info()
		if known[info] {
			return nil, fmt.Errorf("prom: %s of group %q is in Queues twice", info.DLQ, info.Group)
		}
		known[info] = true
		all.of = append(all.of, &dlq{queue: q, info: info})
	}
	return all, nil
}

// tasksFor is how long what was said of tasks stands.
const tasksFor = 30 * time.Second

type dlqs struct {
	of                  []*dlq
	timeout             time.Duration
	up, messages, tasks *prometheus.Desc
}

type dlq struct {
	queue deadletter.Queue
	info  deadletter.Info

	mu    sync.Mutex // scrapes may come at the same time
	asked time.Time
	open  map[sort]int
}

// sort is a sort of tasks.
type sort struct {
	kind   deadletter.Kind
	status deadletter.Status
}

// Describe implements [prometheus.Collector].
func (d *dlqs) Describe(to chan<- *prometheus.Desc) {
	to <- d.up
	to <- d.messages
	to <- d.tasks
}

// Collect implements [prometheus.Collector].
func (d *dlqs) Collect(to chan<- prometheus.Metric) {
	var all sync.WaitGroup
	for _, q := range d.of {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), d.timeout)
			defer cancel()
			q.collect(ctx, d, to)
		})
	}
	all.Wait()
}

func (q *dlq) collect(ctx context.Context, d *dlqs, to chan<- prometheus.Metric) {
	gauge := func(desc *prometheus.Desc, v float64, more ...string) {
		to <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, v, append([]string{q.info.DLQ, q.info.Origin, q.info.Group}, more...)...)
	}
	n, exact, err := q.queue.Count(ctx)
	var open map[sort]int
	if err == nil {
		open, err = q.tasks(ctx)
	}
	if err != nil {
		gauge(d.up, 0)
		return
	}
	gauge(d.up, 1)
	gauge(d.messages, float64(n), boolean(exact))
	for s, n := range open {
		gauge(d.tasks, float64(n), string(s.kind), string(s.status))
	}
}

// tasks is how many are open, of each sort.
func (q *dlq) tasks(ctx context.Context) (map[sort]int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.asked.IsZero() && time.Since(q.asked) < tasksFor {
		return q.open, nil
	}
	all, err := deadletter.History(ctx, q.queue)
	if err != nil {
		return nil, err
	}
	q.open = make(map[sort]int)
	for i := range all {
		if t := &all[i]; t.Open() {
			q.open[sort{t.Kind, t.Status}]++
		}
	}
	q.asked = time.Now()
	return q.open, nil
}
