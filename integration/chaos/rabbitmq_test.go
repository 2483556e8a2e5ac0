//go:build prove

package chaos

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/amqp"
	"github.com/redeliver/redeliver/integration/brokers"
	"github.com/redeliver/redeliver/integration/brokerstate"
	"github.com/redeliver/redeliver/integration/chaos/history"
	"github.com/redeliver/redeliver/integration/consumer"
)

// rabbitSystem is the suite's view of a node of RabbitMQ, through amqp091-go alone.
type rabbitSystem struct {
	broker *brokers.Rabbit
	gate   *gate

	mu      sync.Mutex
	conn    *amqp091.Connection // the writer's
	ch      *amqp091.Channel
	waiting sync.WaitGroup // for confirms
}

// rabbitHeartbeat is the time after which a silent connection is given up.
const rabbitHeartbeat = 2 * time.Second

func newRabbitSystem(t *testing.T, version brokers.RabbitMQVersion, loads []history.Load) *rabbitSystem {
	t.Helper()
	r := &rabbitSystem{broker: brokers.OwnRabbitMQ(t, brokers.RabbitMQOptions{Version: version, StartTimeout: startTimeout})}
	r.gate = newGate(t, "rabbitmq", r.broker.Addrs()[0])
	t.Cleanup(r.disconnect)
	ch, err := r.channel()
	if err != nil {
		t.Fatal(err)
	}
	for _, load := range loads {
		if _, err := ch.QueueDeclare(load.Name, true, false, false, false, amqp091.Table{amqp091.QueueTypeArg: amqp091.QueueTypeQuorum}); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

func (r *rabbitSystem) url() string { return "amqp://guest:guest@" + r.gate.address() + "/" }

func (r *rabbitSystem) consumer(load history.Load) consumerConfig {
	return consumerConfig{Broker: "rabbitmq", Addrs: []string{r.url()}, Topic: load.Name}
}

// rabbitConfig returns a configuration with which a dead broker is noticed soon.
func rabbitConfig(maxWait time.Duration) amqp091.Config {
	return amqp091.Config{Heartbeat: rabbitHeartbeat, Dial: func(network, addr string) (net.Conn, error) {
		c, err := net.DialTimeout(network, addr, maxWait)
		if err != nil {
			return nil, err
		}
		return c, c.SetDeadline(time.Now().Add(maxWait)) // the client removes it
	}}
}

// channel returns the writer's open channel, or a new one.
func (r *rabbitSystem) channel() (*amqp091.Channel, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ch != nil && !r.ch.IsClosed() {
		return r.ch, nil
	}
	if r.conn != nil {
		_ = r.conn.CloseDeadline(time.Now().Add(time.Second)) // it may be closed already
		r.conn = nil
	}
	conn, err := amqp091.DialConfig(r.url(), rabbitConfig(3*time.Second))
	if err != nil {
		return nil, err
	}
	r.conn = conn
	ch, err := conn.Channel()
	if err != nil {
		return nil, err
	}
	r.ch = ch
	return ch, ch.Confirm(false)
}

func (r *rabbitSystem) disconnect() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.conn != nil {
		_ = r.conn.CloseDeadline(time.Now().Add(time.Second))
	}
}

func (r *rabbitSystem) write(ctx context.Context, load history.Load, b body, value []byte, confirmed func(partition int32, offset int64)) {
	ch, err := r.channel()
	if err != nil {
		return
	}
	confirm, err := ch.PublishWithDeferredConfirm("", load.Name, true, false, amqp091.Publishing{
		Body: value, MessageId: b.ID, DeliveryMode: amqp091.Persistent,
	})
	if err != nil {
		return
	}
	r.waiting.Go(func() {
		if acked, err := confirm.WaitContext(ctx); err == nil && acked {
			confirmed(0, 0)
		}
	})
}

// flush waits for the last confirms. Those of a broken connection never come.
func (r *rabbitSystem) flush(context.Context) error {
	r.waiting.Wait()
	return nil
}

func (r *rabbitSystem) dead(ctx context.Context, load history.Load) ([]history.Line, error) {
	ch, err := r.channel()
	if err != nil {
		return nil, err
	}
	var lines []history.Line
	for ctx.Err() == nil {
		d, ok, err := ch.Get(load.Name+".dlq", false)
		if err != nil {
			return nil, fmt.Errorf("reading %s.dlq: %w", load.Name, err)
		}
		if !ok {
			// Unacked messages come back for the next reader.
			r.mu.Lock()
			defer r.mu.Unlock()
			r.ch = nil
			return lines, ch.Close()
		}
		lines = append(lines, deadLetterLine(load, d.Body, func(name string) string {
			if v, ok := d.Headers["redeliver-"+name]; ok {
				return fmt.Sprint(v)
			}
			return ""
		}))
	}
	return nil, ctx.Err()
}

func (r *rabbitSystem) unsettled(ctx context.Context, load history.Load) (int64, string, error) {
	return brokerstate.RabbitMQ(ctx, r.broker, load.Name)
}

func (r *rabbitSystem) lanes() []lane {
	network := lane{name: "way to the node", rest: singleRest}
	for _, x := range toxics {
		network.kinds = append(network.kinds, x.fault(1, func(int) []*gate { return []*gate{r.gate} }))
	}
	ctl := func(args ...string) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := r.broker.RunCtl(ctx, args...)
			return err
		}
	}
	// The request that heals a fault bypasses the gate, so it succeeds unless the node itself fails.
	return []lane{network, {"node", []kind{
		{"node killed", 1, func(ctx context.Context, _ step) (func(context.Context) error, error) {
			if err := r.broker.Settle(context.WithoutCancel(ctx)); err != nil {
				return nil, err
			}
			return r.broker.Start, r.broker.Kill()
		}},
		{"node frozen", 1, func(context.Context, step) (func(context.Context) error, error) {
			return func(context.Context) error { return r.broker.Resume() }, r.broker.Suspend()
		}},
		{"connections closed", 1, func(ctx context.Context, _ step) (func(context.Context) error, error) {
			return nil, r.broker.CloseAllConnections(context.WithoutCancel(ctx), "for a test")
		}},
		{"disk full", 1, func(ctx context.Context, _ step) (func(context.Context) error, error) {
			return ctl("set_disk_free_limit", "50MB"), ctl("set_disk_free_limit", "900000000000000")(context.WithoutCancel(ctx))
		}},
	}, nodeRest + singleRest}}
}

// connectRabbitMQ opens the adapter.
func connectRabbitMQ(ctx context.Context, cfg consumerConfig, sink redeliver.Sink) (consumer.Client, error) {
	client, err := amqp.Open(ctx, amqp.Config{
		URLs: cfg.Addrs, Policy: cfg.policy(), Sink: sink, DrainTimeout: 2 * time.Second, MaxInFlight: 20, Prefetch: 20, RetryPrefetch: 40,
		SendTimeout: cfg.MaxWait, AMQP: rabbitConfig(5 * time.Second),
	})
	if err != nil {
		return consumer.Client{}, err
	}
	return consumer.Client{Subscriber: client.Subscriber(), End: client.Close}, nil
}
