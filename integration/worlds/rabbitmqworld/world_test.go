//go:build worlds

package rabbitmqworld

import (
	"context"
	"errors"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redeliver/redeliver/integration/brokers"
	"github.com/redeliver/redeliver/integration/worlds/live"
	"github.com/redeliver/redeliver/integration/worlds/plan"
)

// TestWorld runs one world. The command worlds starts this program once for each, many at once.
func TestWorld(t *testing.T) {
	live.TestWorld(t, Vocabulary, func(w plan.World, _ func(string)) (live.Driver, func(), error) {
		r, err := broker(w.Seed)
		if err != nil {
			return nil, nil, err
		}
		d, err := Start(w, r)
		if err != nil {
			return nil, nil, err
		}
		return d, func() {
			if err := d.Close(); err != nil {
				t.Error(err)
			}
			if left := leftBehind(); left != "" {
				t.Errorf("goroutines are left behind:\n%s", left)
			}
		}, nil
	}, func(t *testing.T, world func(*testing.T)) { world(t) })
}

// leftBehind returns a goroutine of redeliver that does not end, or "". Killed processes need a while.
func leftBehind() string {
	limit := time.Now().Add(time.Minute)
	for {
		buf := make([]byte, 16<<20)
		all := strings.Split(string(buf[:runtime.Stack(buf, true)]), "\n\n")
		i := slices.IndexFunc(all, func(g string) bool {
			return strings.Contains(g, "redeliver/adapters/amqp") || strings.Contains(g, "redeliver/internal/engine")
		})
		switch {
		case i < 0:
			return ""
		case time.Now().After(limit):
			return all[i]
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// broker returns one of the brokers that the environment gives, which withbrokers has started.
func broker(seed uint64) (*brokers.Rabbit, error) {
	var given []brokers.RabbitMQVersion
	for version, env := range map[brokers.RabbitMQVersion]string{
		brokers.RabbitMQ3: brokers.EnvRabbitMQ, brokers.RabbitMQ4: brokers.EnvRabbitMQ4, brokers.RabbitMQ43: brokers.EnvRabbitMQ43,
	} {
		if os.Getenv(env) != "" {
			given = append(given, version)
		}
	}
	if given == nil {
		return nil, errors.New("worlds of RabbitMQ need brokers: use make worlds BROKER=rabbitmq")
	}
	slices.Sort(given)
	return brokers.RabbitMQ(context.Background(), brokers.RabbitMQOptions{Version: given[seed%uint64(len(given))], Logf: func(string, ...any) {}})
}
