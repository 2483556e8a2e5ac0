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
	"github.com/redeliver/redeliver/delayqueue"
	"github.com/redeliver/redeliver/doctor"
	"github.com/redeliver/redeliver/internal/observed"
)

// WaitingConfig configures [NewWaiting]. System and Subscriptions are required.
type WaitingConfig struct {
	// System is as in Config.
	System string
	// Subscriptions are the subscriptions to examine. Keep the clients of their functions open while the collector is
	// in use.
	Subscriptions []Waiting
	// Timeout bounds the requests about one subscription. All subscriptions are examined at the same time. Default 5 s.
	Timeout time.Duration
	// Interval is how long an answer is valid. A scrape before that reuses the last answer. Default 30 s.
	Interval time.Duration
}

// Waiting is a subscription that the collector examines from outside, with functions of an adapter's client. It may be one that no
// process consumes.
type Waiting struct {
	// Origin and Group are its labels. Origin is required. On brokers without groups both are the queue.
	Origin, Group string
	// Levels returns the waiting messages. It calls Levels of mq.Waiting, or mq.Operations.WaitingLevels.
	// Optional.
	Levels func(ctx context.Context) ([]deadletter.WaitingLevel, error)
	// Doctor returns the problems. It calls mq.Operations.Doctor. Optional.
	Doctor func(ctx context.Context) (*doctor.Diagnosis, error)
}

// NewWaiting returns a collector that asks the broker about messages that wait for a retry, or are due and not
// delivered. Events report delivered messages; this collector also reports messages that no process consumes:
//
//	redeliver_waiting_up               1 if the broker answered all requests, otherwise 0
//	redeliver_waiting_messages         the number of waiting messages, by level; exact is "false" for an estimate
//	redeliver_waiting_overdue_seconds  how long the first message of a level has been due, or 0; absent if the broker does not report it
//	redeliver_doctor_findings          the findings of Doctor, by kind; 0 if the checks that were possible found none
//	redeliver_origin_messages          an estimate of the origin's unhandled messages: Doctor's Backlog
//
// On Kafka the collector reads only the first message of each partition of a level, which stays there until it is
// settled. RabbitMQ and SQS do not report when a message is due; use the findings "late" and "consumer", and
// redeliver_retry_lateness_seconds.
func NewWaiting(cfg WaitingConfig) (prometheus.Collector, error) {
	if cfg.System == "" || len(cfg.Subscriptions) == 0 {
		return nil, errors.New("prom: System (the broker) and Subscriptions are required")
	}
	cfg.Timeout = cmp.Or(cfg.Timeout, observed.DefaultTimeout)
	cfg.Interval = cmp.Or(cfg.Interval, 30*time.Second)
	of := prometheus.Labels{"messaging_system": cfg.System}
	desc := func(name, help string, more ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, append([]string{"origin", "group"}, more...), of)
	}
	all := &waitingCollector{
		timeout: cfg.Timeout, interval: cfg.Interval,
		up:       desc("redeliver_waiting_up", "1 if the broker answered all requests about the subscription, otherwise 0."),
		messages: desc("redeliver_waiting_messages", "Messages that wait for a retry, by level.", "level", "exact"),
		overdue:  desc("redeliver_waiting_overdue_seconds", "How long the first message on a level has been due; 0 if it is not due yet.", "level"),
		origin:   desc("redeliver_origin_messages", "Estimate of the origin's messages that the group has not handled."),
		findings: desc("redeliver_doctor_findings", "Problems that Doctor found, by kind.", "kind"),
	}
	known := make(map[place]bool)
	for _, w := range cfg.Subscriptions {
		switch p := (place{w.Origin, w.Group}); {
		case w.Origin == "":
			return nil, errors.New("prom: a subscription of Subscriptions has no Origin")
		case w.Levels == nil && w.Doctor == nil:
			return nil, fmt.Errorf("prom: the subscription of %s of group %q needs Levels, Doctor or both", w.Origin, w.Group)
		case known[p]:
			return nil, fmt.Errorf("prom: %s of group %q is in Subscriptions twice", w.Origin, w.Group)
		default:
			known[p] = true
			all.subscriptions = append(all.subscriptions, &waitingSubscription{Waiting: w})
		}
	}
	return all, nil
}

type waitingCollector struct {
	subscriptions     []*waitingSubscription
	timeout, interval time.Duration

	up, messages, overdue, findings, origin *prometheus.Desc
}

// waitingSubscription is a subscription with the latest answers about it.
type waitingSubscription struct {
	Waiting

	mu          sync.Mutex // because scrapes may overlap
	asked       time.Time
	up          bool
	levelStates map[string]*levelState
	// reportsDue reports whether the broker has ever reported a due time. Only then does a level without waiting
	// messages count as not overdue.
	reportsDue bool
	findings   map[doctor.SymptomKind]int // nil if there is no doctor, or it did not answer
	backlog    *int64                     // nil if it is unknown
}

// levelState is the state of one level.
type levelState struct {
	messages int64
	exact    bool
	due      time.Time // of the first message
}

// Describe implements [prometheus.Collector].
func (c *waitingCollector) Describe(to chan<- *prometheus.Desc) {
	to <- c.up
	to <- c.messages
	to <- c.overdue
	to <- c.findings
	to <- c.origin
}

// Collect implements [prometheus.Collector].
func (c *waitingCollector) Collect(to chan<- prometheus.Metric) {
	var all sync.WaitGroup
	for _, w := range c.subscriptions {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), c.timeout)
			defer cancel()
			w.collect(ctx, c, to)
		})
	}
	all.Wait()
}

func (w *waitingSubscription) collect(ctx context.Context, c *waitingCollector, to chan<- prometheus.Metric) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	if w.asked.IsZero() || now.Sub(w.asked) >= c.interval {
		w.asked = now
		w.queryLocked(ctx)
	}
	send := func(desc *prometheus.Desc, v float64, more ...string) {
		to <- gauge(desc, v, append([]string{w.Origin, w.Group}, more...)...)
	}
	send(c.up, oneIf(w.up))
	for name, l := range w.levelStates {
		send(c.messages, float64(l.messages), name, strconv.FormatBool(l.exact))
		switch {
		case !l.due.IsZero(): // as of w.asked, because the message may have left since
			send(c.overdue, max(0, w.asked.Sub(l.due).Seconds()), name)
		case l.messages == 0 && w.reportsDue:
			send(c.overdue, 0, name)
		}
	}
	if w.backlog != nil {
		send(c.origin, float64(*w.backlog))
	}
	if w.findings != nil {
		for _, kind := range symptomKinds {
			send(c.findings, float64(w.findings[kind]), string(kind))
		}
	}
}

// symptomKinds are the kinds of findings that are exported: all kinds of package doctor.
var symptomKinds = []doctor.SymptomKind{
	doctor.SymptomMissing, doctor.SymptomSettings, doctor.SymptomRetention, doctor.SymptomOrphan,
	doctor.SymptomLate, doctor.SymptomConsumer, doctor.SymptomPaused,
}

// queryLocked asks the broker.
func (w *waitingSubscription) queryLocked(ctx context.Context) {
	w.levelStates, w.findings, w.backlog = nil, nil, nil
	var both sync.WaitGroup
	var levels []deadletter.WaitingLevel
	var found *doctor.Diagnosis
	var levelsErr, doctorErr error
	if w.Levels != nil {
		both.Go(func() { levels, levelsErr = w.Levels(ctx) })
	}
	if w.Doctor != nil {
		both.Go(func() { found, doctorErr = w.Doctor(ctx) })
	}
	both.Wait()
	w.up = levelsErr == nil && doctorErr == nil
	if levelsErr == nil {
		w.addLevels(levels)
	}
	if doctorErr == nil && found != nil {
		w.backlog = found.Backlog
		w.findings = make(map[doctor.SymptomKind]int)
		for _, s := range found.Symptoms {
			w.findings[s.Kind]++
		}
	}
}

// addLevels adds up the places of each level.
func (w *waitingSubscription) addLevels(levels []deadletter.WaitingLevel) {
	w.levelStates = make(map[string]*levelState)
	for i := range levels {
		l := &levels[i]
		if l.Depth < 0 {
			continue // unknown
		}
		name := observed.Level(l.Place) // "" for the queue, "hold" for the retry queue
		if l.Level > 0 {
			name = delayqueue.LevelName(l.Level)
		}
		sum := w.levelStates[name]
		if sum == nil {
			sum = &levelState{exact: true}
			w.levelStates[name] = sum
		}
		sum.messages, sum.exact = sum.messages+l.Depth, sum.exact && l.Exact
		if l.Depth > 0 && !l.Due.IsZero() {
			w.reportsDue = true
			if sum.due.IsZero() || l.Due.Before(sum.due) {
				sum.due = l.Due
			}
		}
	}
}
