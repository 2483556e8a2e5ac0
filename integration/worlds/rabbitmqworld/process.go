package rabbitmqworld

import (
	"context"
	"errors"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver/adapters/amqp"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/integration/methodproxy"
	"github.com/redeliver/redeliver/integration/worlds/live"
	"github.com/redeliver/redeliver/integration/worlds/plan"
)

// Process implements live.Driver. Each process has a proxy of its own. A kill closes it, without a word of AMQP to the broker.
func (d *Driver) Process(p *live.Process) (run func(context.Context) error, kill func()) {
	proxy, err := methodproxy.New(d.serviceURL)
	if err != nil {
		return func(context.Context) error { return err }, func() {}
	}
	proxy.Inject(d.fault)
	d.mu.Lock()
	d.processes[p.Name] = proxy
	d.mu.Unlock()
	s := &service{Process: p, url: proxy.URL()}
	run = map[plan.Way]func(context.Context) error{
		plan.Consume: s.consume, plan.ConsumeBatch: s.consumeBatch, plan.Router: s.router,
	}[p.Service.Way]
	return run, proxy.Close
}

// service is one process of a service.
type service struct {
	*live.Process
	url string
}

// heartbeat is the time after which a silent connection is given up, three of them.
const heartbeat = 2 * time.Second

func (s *service) config() amqp.Config {
	v, policy := s.Version, s.Policy()
	if v.Outage { // a tenth, as all times
		policy.Outage.Probe, policy.Outage.MaxPause = 100*time.Millisecond, 3*time.Second
	}
	return amqp.Config{
		URLs: []string{s.url}, Policy: policy, MaxInFlight: v.MaxInFlight, MaxRetriesInFlight: v.MaxRetriesInFlight, MinInFlight: v.MinInFlight,
		DrainTimeout: s.Service.Drain, Sink: s.Sink, Key: amqp.KeyHeader(keyHeader), Topology: amqp.ExistingQueue(),
		SendTimeout: 5 * time.Second, DialTimeout: 3 * time.Second, AMQP: amqp091.Config{Heartbeat: heartbeat},
	}
}

func (s *service) handleDelivery(ctx context.Context, d *amqp091.Delivery) error {
	return s.Handle(ctx, live.Record{Topic: s.Service.Topics[0], Body: d.Body, Key: text(d.Headers, keyHeader), Header: text(d.Headers, live.UserHeader)})
}

func (s *service) consume(ctx context.Context) error {
	return amqp.Consume(ctx, s.config(), s.Service.Topics, func(ctx context.Context, d amqp091.Delivery) error { return s.handleDelivery(ctx, &d) })
}

func (s *service) consumeBatch(ctx context.Context) error {
	batch := redeliver.BatchConfig{Size: s.Version.BatchSize, Timeout: s.Version.BatchTimeout}
	return amqp.ConsumeBatch(ctx, s.config(), s.Service.Topics, batch, func(_ context.Context, b *amqp.Batch) error {
		return live.HandleBatch(s.Process, b.Messages, func(m *amqp.BatchMessage) string { return text(m.Record.Headers, keyHeader) },
			func(ctx context.Context, m *amqp.BatchMessage) error { return s.handleDelivery(ctx, &m.Record) })
	})
}

func (s *service) router(ctx context.Context) error {
	c, err := amqp.Open(ctx, s.config())
	if err != nil {
		return err
	}
	err = s.Route(ctx, c.Subscriber(), func(_ string, m *message.Message) error {
		return s.handleDelivery(m.Context(), amqp.DeliveryFromContext(m.Context()))
	})
	return errors.Join(err, c.Close(context.WithoutCancel(ctx)))
}
