package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/doctor"
	"github.com/redeliver/redeliver/internal/brokerurl"
	"github.com/redeliver/redeliver/observe/prom"
)

const (
	// searchEvery is the time between two searches for new DLQs.
	searchEvery = time.Minute
	// pollReaders is how many DLQs and subscriptions are read at once.
	pollReaders = 8
	// staleAfter is the number of polls that may be missed before the result of the latest one is dropped.
	staleAfter = 3
)

// pollFlags configure a poller.
type pollFlags struct {
	every, timeout time.Duration
	max            int  // number of DLQs
	ages           bool // read messages for their age
}

// poller reads the DLQs of a broker and their subscriptions again and again. A scrape gets the result of the latest
// poll, so a slow or absent broker delays no scrape, and more scrapers cause no more requests.
type poller struct {
	pollFlags

	b    *broker
	only []subject // the DLQs to read; nil for all that the broker lists
	// knowsPolicy reports whether the client has the policy of the subscriptions. RabbitMQ needs it to find their
	// levels without the management API.
	knowsPolicy bool
	say         func(format string, args ...any)

	up, omitted *prometheus.Desc

	// Only run's goroutine has these.
	places   map[subject]*polled
	searched time.Time
	unpolled int       // DLQs beyond max
	problem  string    // problem of the latest search
	began    time.Time // when problem changed
	reported string    // the last problem that was passed to say

	mu     sync.Mutex
	latest []prometheus.Metric
	until  time.Time // when latest is dropped
}

// polled is a DLQ with its subscription.
type polled struct {
	q          deadletter.Queue // nil if it could not be opened
	collectors []prometheus.Collector
}

func newPoller(b *broker, f pollFlags, only []subject, say func(format string, args ...any)) *poller {
	of := prometheus.Labels{"messaging_system": systems[b.kind]}
	return &poller{
		b: b, pollFlags: f, only: only, say: say, places: make(map[subject]*polled),
		up: prometheus.NewDesc("redeliver_exporter_up",
			"1 if the latest look at the broker's DLQs and subscriptions found them; 0 also if it is too old, and nothing else of it is there.", nil, of),
		omitted: prometheus.NewDesc("redeliver_exporter_omitted_dlqs", "DLQs without metrics, because there are more than the exporter may look at.", nil, of),
	}
}

// Describe implements [prometheus.Collector]. It describes nothing, because the series are those of other collectors.
func (p *poller) Describe(chan<- *prometheus.Desc) {}

// Collect implements [prometheus.Collector].
func (p *poller) Collect(to chan<- prometheus.Metric) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if time.Now().After(p.until) {
		to <- prometheus.MustNewConstMetric(p.up, prometheus.GaugeValue, 0)
		return
	}
	for _, m := range p.latest {
		to <- m
	}
}

// run polls until ctx ends. Until it has found everything, its pauses are shorter, because the topics of a new sidecar
// take a moment to appear.
func (p *poller) run(ctx context.Context) {
	defer p.close()
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, p.every) {
		if p.poll(ctx); !p.searched.IsZero() {
			pause = p.every
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}

// poll asks the broker once.
func (p *poller) poll(ctx context.Context) {
	began := time.Now()
	err := p.search(ctx)
	found := make(chan prometheus.Metric)
	go func() {
		defer close(found)
		var readers sync.WaitGroup
		free := make(chan struct{}, pollReaders)
		for _, one := range p.places {
			for _, c := range one.collectors {
				free <- struct{}{}
				readers.Go(func() {
					defer func() { <-free }()
					c.Collect(found)
				})
			}
		}
		readers.Wait()
	}()
	var all []prometheus.Metric
	for open := true; open; {
		select {
		case m, more := <-found:
			if open = more; more {
				all = append(all, m)
			}
		case <-ctx.Done(): // the requests end by their timeouts
			go func() {
				for range found {
				}
			}()
			return
		}
	}
	up := 1.0
	if err != nil {
		up = 0
	}
	all = append(all, prometheus.MustNewConstMetric(p.up, prometheus.GaugeValue, up),
		prometheus.MustNewConstMetric(p.omitted, prometheus.GaugeValue, float64(p.unpolled)))
	p.mu.Lock()
	defer p.mu.Unlock()
	// A poll of many DLQs takes long, and the next one will, too.
	p.latest, p.until = all, time.Now().Add(staleAfter*p.every+time.Since(began))
}

// search opens new DLQs and those that could not be opened before, and closes those that are gone.
func (p *poller) search(ctx context.Context) error {
	if !p.searched.IsZero() && time.Since(p.searched) < searchEvery {
		return nil
	}
	wanted, err := p.list(ctx)
	if err != nil {
		p.report("new DLQs are not found: " + redeliver.Redact(inFlags(err)))
		return err
	}
	p.unpolled = max(0, len(wanted)-p.max)
	wanted = wanted[:len(wanted)-p.unpolled]
	var problems []string
	for _, of := range wanted {
		if one := p.places[of]; one != nil && one.q != nil {
			continue
		}
		one, err := p.open(ctx, of)
		if err != nil {
			problems = append(problems, redeliver.Redact(inFlags(err)))
		}
		p.places[of] = one
	}
	for of, one := range p.places {
		if !slices.Contains(wanted, of) {
			one.close()
			delete(p.places, of)
		}
	}
	if p.unpolled > 0 {
		problems = append(problems, fmt.Sprintf("%d DLQs have no metrics: there are more than %d; see --max-dlqs", p.unpolled, p.max))
	}
	if p.report(strings.Join(problems, "; ")); len(problems) == 0 {
		p.searched = time.Now() // otherwise the next poll searches
	}
	return nil
}

// report reports a problem that lasts.
func (p *poller) report(problem string) {
	if problem == p.problem && problem != p.reported && time.Since(p.began) > p.every {
		if problem != "" {
			p.say("%s", visible(problem))
		}
		p.reported = problem
	}
	if problem != p.problem {
		p.problem, p.began = problem, time.Now()
	}
}

// list returns the DLQs to read, in a fixed order.
func (p *poller) list(ctx context.Context) ([]subject, error) {
	if p.only != nil {
		return p.only, nil
	}
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	all, err := p.b.queues(ctx)
	if err != nil {
		return nil, err
	}
	var found []subject
	for _, info := range all {
		if info.Origin != "" { // otherwise its name contains no topic and group
			found = append(found, subject{dlq: info.DLQ, topic: info.Origin, group: info.Group})
		}
	}
	slices.SortFunc(found, func(x, y subject) int {
		return strings.Compare(x.dlq, y.dlq)
	})
	return found, nil
}

// open opens a DLQ and its subscription. If the DLQ cannot be opened, its metrics say so.
func (p *poller) open(ctx context.Context, of subject) (*polled, error) {
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	one := &polled{}
	q, err := p.b.dlq(ctx, of)
	if err == nil {
		one.q = q
	} else {
		q = unopened{info: deadletter.Info{DLQ: cmp.Or(of.dlq, "DLQ of "+of.topic), Origin: of.topic, Group: cmp.Or(of.group, of.topic)}, err: err}
	}
	system, info := systems[p.b.kind], q.Info()
	dlqs, bad := prom.NewDLQs(prom.DLQConfig{System: system, Queues: []deadletter.Queue{q}, Timeout: p.timeout, ReadAges: p.ages})
	if bad != nil {
		return one, errors.Join(err, bad)
	}
	sub := prom.Waiting{
		Origin: info.Origin, Group: info.Group, Levels: p.levels(of),
	}
	if p.b.kind != brokerurl.KafkaShare { // its doctor would connect for each group at each poll
		sub.Doctor = func(ctx context.Context) (*doctor.Diagnosis, error) {
			return p.b.doctor(ctx, of.topic, doctor.Examination{AnyPolicy: true, Group: of.group})
		}
	}
	waiting, bad := prom.NewWaiting(prom.WaitingConfig{System: system, Subscriptions: []prom.Waiting{sub}, Timeout: p.timeout, Interval: p.every})
	if bad != nil {
		return one, errors.Join(err, bad)
	}
	one.collectors = []prometheus.Collector{dlqs, waiting}
	return one, err
}

// levels returns a function that counts the waiting messages of a subscription. It opens them for each count, because
// levels come and go. It is nil if the broker cannot list the levels.
func (p *poller) levels(of subject) func(context.Context) ([]deadletter.WaitingLevel, error) {
	if p.b.kind == brokerurl.RabbitMQ && p.b.queues == nil && !p.knowsPolicy {
		return nil
	}
	return func(ctx context.Context) (all []deadletter.WaitingLevel, err error) {
		w, err := p.b.waiting(ctx, of)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, w.end()) }()
		return w.levels(ctx)
	}
}

// close closes the DLQs. The broker stays open.
func (p *poller) close() {
	for _, one := range p.places {
		one.close()
	}
}

func (one *polled) close() {
	if one.q != nil {
		_ = one.q.Close() // nothing was written
	}
}

// unopened is a DLQ that could not be opened.
type unopened struct {
	deadletter.Queue

	info deadletter.Info
	err  error
}

// Info implements [deadletter.Queue].
func (u unopened) Info() deadletter.Info { return u.info }

// Count implements [deadletter.Queue].
func (u unopened) Count(context.Context) (n int64, exact bool, err error) { return 0, false, u.err }
