package kafkaworld

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver/adapters/kafka"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/integration/worlds/live"
	"github.com/redeliver/redeliver/integration/worlds/plan"
)

// sessionTimeout is redeliver's and sarama's default. The driver removes members that are silent for longer. kfake must not do so
// itself: it also removes members that wait for the answer to their JoinGroup, and never answers them.
const sessionTimeout = 10 * time.Second

func saramaConfig(name string, m *machine) *sarama.Config {
	sc := sarama.NewConfig()
	sc.ClientID = name
	sc.Consumer.Offsets.Initial = sarama.OffsetOldest
	sc.Consumer.Group.Session.Timeout = 2 * time.Minute // see sessionTimeout
	sc.Metadata.RefreshFrequency = time.Minute          // sarama notices new partitions within two of them
	sc.Consumer.MaxWaitTime = 400 * time.Millisecond    // with the default of 50 ms most of a world's real time would be empty fetches
	sc.Net.Proxy.Enable, sc.Net.Proxy.Dialer = true, m
	return sc
}

// Process implements live.Driver.
func (d *Driver) Process(p *live.Process) (run func(context.Context) error, kill func()) {
	m := newMachine(&d.network, p.Name)
	d.mu.Lock()
	d.processes[p.Name] = m
	d.mu.Unlock()
	s := &service{Process: p, driver: d, machine: m}
	run = map[plan.Way]func(context.Context) error{
		plan.Consume: s.consume, plan.ConsumeBatch: s.consumeBatch, plan.Router: s.router, plan.Wrap: s.wrap,
	}[p.Service.Way]
	return run, func() { m.cut(true) }
}

// service is one process of a service.
type service struct {
	*live.Process
	driver  *Driver
	machine *machine
}

func (s *service) sarama() *sarama.Config {
	sc := saramaConfig(s.Name, s.machine)
	if s.Service.SkipExisting && s.Service.Way != plan.Wrap {
		sc.Consumer.Offsets.Initial = sarama.OffsetNewest
	}
	if s.Version.Order != plan.OrderThroughRetries { // it needs a strategy of its own
		switch s.Service.Balance {
		case "sticky":
			sc.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{sarama.NewBalanceStrategySticky()}
		case "cooperative":
			sc.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{sarama.NewBalanceStrategyCooperativeSticky()}
		}
	}
	return sc
}

func (s *service) config() kafka.Config {
	v := s.Version
	c := kafka.Config{
		Group: s.Service.Group, Policy: s.Policy(), MaxInFlight: v.MaxInFlight, MaxRetriesInFlight: v.MaxRetriesInFlight, MinInFlight: v.MinInFlight,
		MaxWaiting: v.MaxWaiting, DrainTimeout: s.Service.Drain, SkipExisting: s.Service.SkipExisting, Sink: s.Sink,
	}
	if s.Service.Static {
		c.InstanceID = fmt.Sprintf("%s-%d", s.Service.Group, s.Slot)
	}
	return c
}

func (s *service) handleRecord(ctx context.Context, r *sarama.ConsumerMessage) error {
	rec := live.Record{Topic: r.Topic, Body: r.Value, Key: string(r.Key)}
	for _, h := range r.Headers {
		if string(h.Key) == live.UserHeader {
			rec.Header = string(h.Value)
		}
	}
	return s.Handle(ctx, rec)
}

// withClient calls run with a client, as a service that has one does.
func (s *service) withClient(run func(sarama.Client) error) error {
	c, err := sarama.NewClient(s.driver.addrs, s.sarama())
	if err != nil {
		return err
	}
	return errors.Join(run(c), c.Close())
}

func (s *service) consume(ctx context.Context) error {
	return s.withClient(func(c sarama.Client) error {
		return kafka.Consume(ctx, c, s.config(), s.Service.Topics, s.handleRecord)
	})
}

func (s *service) consumeBatch(ctx context.Context) error {
	batch := redeliver.BatchConfig{Size: s.Version.BatchSize, Timeout: s.Version.BatchTimeout}
	return s.withClient(func(c sarama.Client) error {
		return kafka.ConsumeBatch(ctx, c, s.config(), s.Service.Topics, batch, func(_ context.Context, b *kafka.Batch) error {
			return live.HandleBatch(s.Process, b.Messages, func(m *kafka.BatchMessage) string { return string(m.Record.Key) },
				func(ctx context.Context, m *kafka.BatchMessage) error { return s.handleRecord(ctx, m.Record) })
		})
	})
}

func (s *service) wrap(ctx context.Context) error {
	return s.withClient(func(c sarama.Client) error {
		group, err := sarama.NewConsumerGroupFromClient(s.Service.Group, c)
		if err != nil {
			return err
		}
		defer group.Close()
		w, err := kafka.Wrap(ctx, c, group, s.config(), s.Service.Topics, s.handleRecord)
		if err != nil {
			return err
		}
		for ctx.Err() == nil && err == nil {
			err = group.Consume(ctx, w.Topics(), w)
		}
		return errors.Join(err, w.Close(ctx))
	})
}

func (s *service) router(ctx context.Context) error {
	config := s.config()
	config.Brokers, config.Sarama = s.driver.addrs, s.sarama()
	c, err := kafka.Open(ctx, config)
	if err != nil {
		return err
	}
	err = s.Route(ctx, c.Subscriber(), func(topic string, m *message.Message) error {
		r := kafka.RecordFromContext(m.Context())
		return s.Handle(m.Context(), live.Record{Topic: topic, Body: m.Payload, Key: string(r.Key), Header: m.Metadata.Get(live.UserHeader)})
	})
	return errors.Join(err, c.Close(context.WithoutCancel(ctx)))
}
