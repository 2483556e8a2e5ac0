package main

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/redeliver/redeliver"
)

// broker is a broker on which services run. Its client, which writes messages and reads dead letters, is used by no
// service.
type broker interface {
	version() string
	// prepare makes a topic or queue.
	prepare(ctx context.Context, topic string) error
	// write writes the messages with the numbers from first to end-1, and returns when they are confirmed. It must be
	// safe for concurrent use.
	write(ctx context.Context, topic string, first, end int) error
	// dead returns how often each message is in a DLQ, by number.
	dead(ctx context.Context, topic string) (map[int]int, error)
	// dlq returns the name of redeliver's DLQ of a topic.
	dlq(topic string) string
	ours(topic string, p redeliver.Policy, sink redeliver.Sink) (setup, error)
	peer(topic string) (setup, error)
	close()
}

// kind is a broker that this program knows.
type kind struct {
	name string
	rate int // messages a second of each service
	dial func(ctx context.Context) (broker, error)
}

var kinds = []kind{{"kafka", 200, dialKafka}, {"rabbitmq", 200, dialRabbitMQ}, {"sqs", 50, dialSQS}}

func brokerNames() (names []string) {
	for _, k := range kinds {
		names = append(names, k.name)
	}
	return names
}

// result is the result of a run on one broker.
type result struct {
	Broker   string // its name for files
	Version  string
	Time     timeline
	Services []outcome
}

// outcome is the result of one service.
type outcome struct {
	figures
	Name, Settings string
	peer           bool
	samples        []sample
}

// runBroker runs services on one broker.
func runBroker(ctx context.Context, name string, all []service, scale float64, progress io.Writer) (*result, error) {
	var k kind
	for _, k = range kinds {
		if k.name == name {
			break
		}
	}
	b, err := k.dial(ctx)
	if err != nil {
		return nil, err
	}
	defer b.close()
	t := newTimeline(k.rate, scale)
	r := &result{Broker: name, Version: b.version()}
	run := fmt.Sprintf("outage-%d", time.Now().UnixMilli())
	accounts := make([]*account, len(all))
	topics := make([]string, len(all))
	for i, s := range all {
		topics[i] = run + "-" + s.short
		if err := b.prepare(ctx, topics[i]); err != nil {
			return nil, err
		}
		accounts[i] = newAccount(t)
		stop, settings, err := s.start(b, topics[i], accounts[i])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.Name, err)
		}
		stop = sync.OnceFunc(stop)
		defer stop()
		r.Services = append(r.Services, outcome{Name: s.Name, Settings: settings, peer: s.peer})
	}
	fmt.Fprintf(progress, "%s: %s: %d messages for each of %d services in %s, down from %s to %s\n", name, r.Version, t.messages, len(all), t.load, t.down, t.up)

	t.began = time.Now()
	r.Time = t
	for _, a := range accounts {
		a.time.began, a.call.time.began = t.began, t.began
	}
	ctx, cancel := context.WithDeadline(ctx, t.began.Add(t.maxWait))
	defer cancel()
	errs := make(chan error, len(all))
	for i := range all {
		go func() { errs <- load(ctx, b, topics[i], accounts[i]) }()
	}
	if err := watch(ctx, t, accounts); err != nil {
		fmt.Fprintf(progress, "%s: %v\n", name, err)
	}
	for range all {
		if err := <-errs; err != nil {
			return nil, err
		}
	}
	reading := context.WithoutCancel(ctx)
	for i, s := range all {
		dead, err := b.dead(reading, s.deadOf(b, topics[i]))
		if err != nil {
			return nil, err
		}
		r.Services[i].figures, r.Services[i].samples = accounts[i].figures(dead), accounts[i].samples
		fmt.Fprintf(progress, "%s: %s: %+v\n", name, s.Name, r.Services[i].figures)
	}
	return r, nil
}

// load writes the messages of one service at the rate.
func load(ctx context.Context, b broker, topic string, a *account) error {
	t := a.time
	ticker := time.NewTicker(t.everyWrite)
	defer ticker.Stop()
	for first := 0; first < t.messages; {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return fmt.Errorf("writing to %s: %w", topic, context.Cause(ctx))
		}
		end := min(t.messages, int(time.Since(t.began).Seconds()*float64(t.rate)))
		if end == first {
			continue
		}
		a.write(first, end)
		if err := b.write(ctx, topic, first, end); err != nil {
			return fmt.Errorf("writing to %s: %w", topic, err)
		}
		first = end
	}
	return nil
}

// watch takes samples until all messages are settled, and for a second more, to see duplicates.
func watch(ctx context.Context, t timeline, accounts []*account) error {
	const after = time.Second
	ticker := time.NewTicker(t.step)
	defer ticker.Stop()
	var settled time.Time
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return fmt.Errorf("not all is settled: %w", context.Cause(ctx))
		}
		all := true
		for _, a := range accounts {
			all = a.sample(time.Since(t.began)) && all
		}
		switch {
		case !all:
		case settled.IsZero():
			settled = time.Now()
		case time.Since(settled) > after:
			return nil
		}
	}
}
