//go:build prove

package brokers_test

import (
	"context"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redeliver/redeliver/integration/brokers"
)

type logf = func(format string, args ...any)

// kinds are the brokers that a test can start for itself, each with a setting with which it cannot start.
var kinds = []struct {
	name  string
	wrong map[string]string
	start func(context.Context, map[string]string, logf) (*brokers.Broker, error)
}{
	{"kafka", map[string]string{"metric.reporters": nonsense}, func(ctx context.Context, set map[string]string, logf logf) (*brokers.Broker, error) {
		return brokers.Kafka(ctx, brokers.KafkaOptions{Own: true, Brief: true, Heap: "512m", Properties: set, Logf: logf})
	}},
	{"rabbitmq 3.10", map[string]string{"consumer_timeout": nonsense}, func(ctx context.Context, set map[string]string, logf logf) (*brokers.Broker, error) {
		return startRabbitMQ(ctx, brokers.RabbitMQ3, set, logf)
	}},
	{"rabbitmq 4.0", map[string]string{"consumer_timeout": nonsense}, func(ctx context.Context, set map[string]string, logf logf) (*brokers.Broker, error) {
		return startRabbitMQ(ctx, brokers.RabbitMQ4, set, logf)
	}},
	{"elasticmq", map[string]string{"rest-sqs.sqs-limits": `"` + nonsense + `"`}, func(ctx context.Context, set map[string]string, logf logf) (*brokers.Broker, error) {
		s, err := brokers.SQS(ctx, brokers.SQSOptions{Own: true, Brief: true, Config: set, Logf: logf})
		if err != nil {
			return nil, err
		}
		return s.Broker, nil
	}},
	{"moto", nil, func(ctx context.Context, _ map[string]string, logf logf) (*brokers.Broker, error) {
		s, err := brokers.Moto(ctx, brokers.MotoOptions{Own: true, Logf: logf})
		if err != nil {
			return nil, err
		}
		return s.Broker, nil
	}},
	{"redis", nil, func(ctx context.Context, _ map[string]string, logf logf) (*brokers.Broker, error) {
		return brokers.Redis(ctx, brokers.RedisOptions{Own: true, Logf: logf})
	}},
}

const nonsense = "no-such-thing"

func startRabbitMQ(ctx context.Context, version brokers.RabbitMQVersion, set map[string]string, logf logf) (*brokers.Broker, error) {
	r, err := brokers.RabbitMQ(ctx, brokers.RabbitMQOptions{Version: version, Own: true, Config: set, Logf: logf})
	if err != nil {
		return nil, err
	}
	return r.Broker, nil
}

// The end of the context is the last way to stop a broker. Kafka, ElasticMQ, moto and Redis are the same kind of
// process. RabbitMQ is another kind, and 4.0 is also in a chroot.
func TestABrokerIsKilledWithItsContext(t *testing.T) {
	for _, k := range kinds {
		if !brokers.Soak() && !slices.Contains([]string{"rabbitmq 4.0", "redis"}, k.name) {
			continue
		}
		t.Run(k.name, func(t *testing.T) {
			dir := t.TempDir()
			t.Setenv("TMPDIR", dir) // to see what is left there
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			b, err := k.start(ctx, nil, t.Logf)
			if err != nil {
				t.Fatal(err)
			}
			if !listens(t, b) {
				t.Fatal("no process listens at the broker's own address")
			}
			cancel()
			for deadline := time.Now().Add(10 * time.Second); listens(t, b); {
				if time.Now().After(deadline) {
					t.Fatal("the broker still listens 10 s after its context ended")
				}
			}
			if err := b.Start(t.Context()); err == nil {
				t.Error("a broker whose context has ended was started again")
			}
			if err := b.Stop(); err != nil {
				t.Errorf("stop: %v", err)
			}
			if left, _ := filepath.Glob(filepath.Join(dir, "redeliver-*")); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

// The error of a broker that cannot start must contain the end of its log.
func TestABrokerThatCannotStartShowsItsLog(t *testing.T) {
	for _, k := range kinds {
		if k.wrong == nil || !brokers.Soak() && !slices.Contains([]string{"kafka", "rabbitmq 3.10"}, k.name) {
			continue
		}
		t.Run(k.name, func(t *testing.T) {
			t.Setenv("TMPDIR", t.TempDir()) // its log is kept there
			began := time.Now()
			b, err := k.start(t.Context(), k.wrong, t.Logf)
			if err == nil {
				_ = b.Stop()
				t.Fatalf("the broker started, with the error %v", k.wrong)
			}
			if !strings.Contains(err.Error(), nonsense) {
				t.Errorf("the error does not show the broker's log: %v", err)
			}
			if took := time.Since(began); took > 4*time.Minute { // one that never ends takes 8 min
				t.Errorf("the start of a broker that ends at once took %s", took)
			}
		})
	}
}

func listens(t *testing.T, b *brokers.Broker) bool {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", strings.TrimPrefix(b.Addrs()[0], "http://"))
	if err != nil {
		return false
	}
	_ = conn.Close()
	return true
}

// soakOnly skips a test except in make soak. The suites that kill and restart such a broker check the same in each make
// test.
func soakOnly(t *testing.T) {
	t.Helper()
	if !brokers.Soak() {
		t.Skip("other suites kill and restart this broker, and count the losses; make soak tests it alone")
	}
}
