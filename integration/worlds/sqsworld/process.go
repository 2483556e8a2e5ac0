package sqsworld

import (
	"context"
	"errors"
	"sync"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/redeliver/redeliver/adapters/sqs"
	"github.com/redeliver/redeliver/internal/sqsfake"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/integration/worlds/live"
	"github.com/redeliver/redeliver/integration/worlds/plan"
)

// Process implements live.Driver.
func (d *Driver) Process(p *live.Process) (run func(context.Context) error, kill func()) {
	l := &line{Connection: d.server.Connect(p.Name)}
	d.mu.Lock()
	d.processes[p.Name] = l
	d.mu.Unlock()
	s := &service{Process: p, line: l}
	run = map[plan.Way]func(context.Context) error{
		plan.Consume: s.consume, plan.ConsumeBatch: s.consumeBatch, plan.Router: s.router,
	}[p.Service.Way]
	return run, l.kill
}

// line is the connection of a process.
type line struct {
	*sqsfake.Connection

	mu          sync.Mutex
	dead        bool
	interrupted int // how often
}

func (l *line) kill() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dead = true
	l.Cut()
}

// interrupt cuts the line until end is called. Requests that are under way get no answer.
func (l *line) interrupt() (end func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.interrupted++
	l.Cut()
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.interrupted--; l.interrupted == 0 && !l.dead {
			l.Restore()
		}
	}
}

// service is one process of a service.
type service struct {
	*live.Process
	line *line
}

func (s *service) config() sqs.Config {
	v := s.Version
	return sqs.Config{
		AWS: s.line.Config(), Endpoint: sqsfake.Endpoint, Policy: s.Policy(), MaxInFlight: v.MaxInFlight, MaxRetriesInFlight: v.MaxRetriesInFlight,
		MinInFlight: v.MinInFlight, DrainTimeout: s.Service.Drain, Sink: s.Sink,
	}
}

func (s *service) handleMessage(ctx context.Context, m *types.Message) error {
	return s.Handle(ctx, live.Record{
		Topic: s.Service.Topics[0], Body: []byte(aws.ToString(m.Body)), Key: m.Attributes["MessageGroupId"],
		Header: aws.ToString(m.MessageAttributes[live.UserHeader].StringValue),
	})
}

func (s *service) consume(ctx context.Context) error {
	return sqs.Consume(ctx, s.config(), s.Service.Topics, func(ctx context.Context, m types.Message) error { return s.handleMessage(ctx, &m) })
}

func (s *service) consumeBatch(ctx context.Context) error {
	batch := redeliver.BatchConfig{Size: s.Version.BatchSize, Timeout: s.Version.BatchTimeout}
	return sqs.ConsumeBatch(ctx, s.config(), s.Service.Topics, batch, func(_ context.Context, b *sqs.Batch) error {
		return live.HandleBatch(s.Process, b.Messages, func(m *sqs.BatchMessage) string { return m.Record.Attributes["MessageGroupId"] },
			func(ctx context.Context, m *sqs.BatchMessage) error { return s.handleMessage(ctx, &m.Record) })
	})
}

func (s *service) router(ctx context.Context) error {
	c, err := sqs.Open(ctx, s.config())
	if err != nil {
		return err
	}
	err = s.Route(ctx, c.Subscriber(), func(_ string, m *message.Message) error {
		return s.handleMessage(m.Context(), sqs.MessageFromContext(m.Context()))
	})
	return errors.Join(err, c.Close(context.WithoutCancel(ctx)))
}
