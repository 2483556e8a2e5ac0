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
//	redeliver_dlq_up                  1 where the broker has answered, else 0, and nothing else of that DLQ
//	redeliver_dlq_messages            how many lie there; where the broker only estimates it, exact is "false"
//	redeliver_dlq_oldest_age_seconds  how long the oldest has lain there; not there for an empty DLQ
//	redeliver_dlq_retention_seconds   how long the broker keeps one; not there where nothing ends by itself
//	redeliver_dlq_open_tasks          replays and other tasks that run or can be resumed, by kind and status
//	redeliver_dlq_task_messages       what became of messages in the tasks that are recorded, by kind and outcome
//
// What it says of tasks and of the retention is asked at most every half minute: on RabbitMQ
// and SQS it takes what others wait for. Age and retention are told of a queue that has the
// methods Oldest(ctx) (time.Time, bool, error) and Keeps(ctx) (time.Duration, error), as those
// of our adapters have where their broker tells; where it refuses them, only they are not there.
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
		age:      desc("redeliver_dlq_oldest_age_seconds", "How long the oldest message has lain in the DLQ."),
		keeps:    desc("redeliver_dlq_retention_seconds", "How long the broker keeps a message in the DLQ."),
		became:   desc("redeliver_dlq_task_messages", "Messages of the tasks that are recorded, by what became of them.", "kind", "outcome"),
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

// dear is how long an answer stands that is not asked for at each scrape.
const dear = 30 * time.Second

// aged is a DLQ that tells when its oldest message was written there; ok is false when
// there is none, or nobody knows.
type aged interface {
	Oldest(ctx context.Context) (at time.Time, ok bool, err error)
}

// keeper is a DLQ that tells how long its broker keeps a message; 0: nothing ends by itself.
// It is console.Keeper, too.
type keeper interface {
	Keeps(ctx context.Context) (time.Duration, error)
}

type dlqs struct {
	of      []*dlq
	timeout time.Duration

	up, messages, age, keeps, tasks, became *prometheus.Desc
}

type dlq struct {
	queue deadletter.Queue
	info  deadletter.Info

	mu    sync.Mutex // scrapes may come at the same time
	asked time.Time
	told  told
}

// told is what is not asked for at each scrape.
type told struct {
	open   map[sort]int
	became map[fate]int64
	keeps  time.Duration
}

// fate is what became of messages in tasks of a kind.
type fate struct {
	kind    deadletter.Kind
	outcome string
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
	to <- d.age
	to <- d.keeps
	to <- d.tasks
	to <- d.became
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
	var known told
	if err == nil {
		known, err = q.ask(ctx)
	}
	if err != nil {
		gauge(d.up, 0)
		return
	}
	gauge(d.up, 1)
	gauge(d.messages, float64(n), boolean(exact))
	if a, ok := q.queue.(aged); ok {
		if at, ok, err := a.Oldest(ctx); err == nil && ok {
			gauge(d.age, max(0, time.Since(at).Seconds()))
		}
	}
	if known.keeps > 0 {
		gauge(d.keeps, known.keeps.Seconds())
	}
	for s, n := range known.open {
		gauge(d.tasks, float64(n), string(s.kind), string(s.status))
	}
	for f, n := range known.became {
		gauge(d.became, float64(n), string(f.kind), f.outcome)
	}
}

// ask asks for what is dear, unless that is known.
func (q *dlq) ask(ctx context.Context) (told, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.asked.IsZero() && time.Since(q.asked) < dear {
		return q.told, nil
	}
	all, err := deadletter.History(ctx, q.queue)
	if err != nil {
		return told{}, err
	}
	now := told{open: make(map[sort]int), became: make(map[fate]int64)}
	for i := range all {
		t := &all[i]
		if t.Open() {
			now.open[sort{t.Kind, t.Status}]++
		}
		for outcome, n := range map[string]int64{
			"replayed": t.Counts.Replayed, "edited": t.Counts.Edited, "purged": t.Counts.Purged, "imported": t.Counts.Imported,
			"quarantined": t.Counts.Quarantined, "refused": t.Counts.Refused, "came_back": t.Counts.CameBack,
		} {
			if n > 0 {
				now.became[fate{t.Kind, outcome}] += n
			}
		}
	}
	if k, ok := q.queue.(keeper); ok {
		// Who may not ask for it still hears of everything else.
		if keeps, err := k.Keeps(ctx); err == nil {
			now.keeps = keeps
		}
	}
	q.told, q.asked = now, time.Now()
	return now, nil
}
