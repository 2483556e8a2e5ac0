package brokers

import (
	"cmp"
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/redeliver/redeliver/integration/rocketmq"
)

// The environment that decides where the RocketMQ comes from; see the package comment.
const (
	EnvRocketMQ        = "REDELIVER_TEST_ROCKETMQ"         // host:port of the name server of one that runs already
	EnvRocketMQRestart = "REDELIVER_TEST_ROCKETMQ_RESTART" // a shell command that restarts it
)

// rocketMQVersion is what Maven fetches.
const rocketMQVersion = "5.5.0"

// RocketMQOptions says what kind of RocketMQ is wanted. The zero value is one with the settings of rocketmq_settings.go.
type RocketMQOptions struct {
	// Own asks for one that nobody else uses, even when the environment gives one. Default false.
	Own bool
	// Properties are lines of broker.conf on top of the defaults, or in place of them. Default none. A RocketMQ that the
	// environment gives cannot take them: that is an error.
	Properties map[string]string
	// Heap is the -Xmx of the broker's JVM, and what it may have in buffers outside its heap. Default "1g".
	Heap string
	// StartTimeout bounds every wait for readiness. Default 8 min: its JVM has much to load, and a machine that runs a test
	// suite beside it is slow.
	StartTimeout time.Duration
	// Logf tells what is started and how. Default: the standard logger, which writes to stderr.
	Logf func(format string, args ...any)
}

// RocketMQ starts a name server and a broker of Apache RocketMQ, or takes those that the environment gives, and returns
// when both answer. When ctx ends they are killed; Stop ends them in order and removes their data. The only one of Addrs
// is the name server's, host:port; Kill, Start and Shutdown are about the broker alone, and the name server lives on.
// There is no docker way: only the benchmarks want it, and RocketMQ's client, which they run too, needs Java and Maven in
// any case.
func RocketMQ(ctx context.Context, o RocketMQOptions) (*Broker, error) {
	o.Heap = cmp.Or(o.Heap, defaultHeap)
	complete(&o.StartTimeout, &o.Logf, log.Printf)
	if addr := os.Getenv(EnvRocketMQ); addr != "" && !o.Own {
		if len(o.Properties) > 0 {
			return nil, fmt.Errorf("the rocketmq at %s comes from %s and its settings cannot be changed; "+
				"set RocketMQOptions.Own for one with settings of its own", addr, EnvRocketMQ)
		}
		return open(ctx, &Broker{
			name:    "rocketmq given by " + EnvRocketMQ,
			addrs:   []string{addr},
			sys:     &given{name: "rocketmq", addrsEnv: EnvRocketMQ, restartEnv: EnvRocketMQRestart, own: "RocketMQOptions.Own"},
			ready:   rocketMQAnswers,
			maxWait: min(o.StartTimeout, maxGivenWait),
			logf:    o.Logf,
		})
	}
	began := time.Now()
	b, err := onFreePorts("rocketmq", inUse, o.Logf, func() (*Broker, error) { return nativeRocketMQ(ctx, o) })
	if err != nil {
		return nil, fmt.Errorf("starting a rocketmq for the tests: %w", err)
	}
	o.Logf("%s, up in %.1fs", b, time.Since(began).Seconds())
	return b, nil
}

// rocketMQAnswers finds the broker by the name server and asks it what it is. It uses no client of RocketMQ's.
func rocketMQAnswers(ctx context.Context, addrs []string) error {
	c, err := rocketmq.Dial(ctx, addrs[0])
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = c.Version(ctx)
	return err
}
