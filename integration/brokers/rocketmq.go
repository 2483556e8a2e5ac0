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

// The environment variables that determine the RocketMQ; see the package comment.
const (
	EnvRocketMQ        = "REDELIVER_TEST_ROCKETMQ"         // host:port of the name server of a running one
	EnvRocketMQRestart = "REDELIVER_TEST_ROCKETMQ_RESTART" // a shell command that restarts it
)

// rocketMQVersion is the version that Maven fetches.
const rocketMQVersion = "5.5.0"

// RocketMQOptions configures a RocketMQ. The zero value is one with the settings of rocketmq_settings.go.
type RocketMQOptions struct {
	// Own requests one that nobody else uses, even if the environment gives one. Default false.
	Own bool
	// Properties are additional lines of broker.conf, or replace its defaults. Default none. They are an error for a
	// RocketMQ from the environment.
	Properties map[string]string
	// Heap is the -Xmx of the broker's JVM, and also the maximum size of its buffers outside the heap. Default "1g".
	Heap string
	// StartTimeout bounds every wait for readiness. Default 8 min, because its JVM loads many classes, and a machine
	// that also runs a test suite is slow.
	StartTimeout time.Duration
	// Logf logs what is started and how. Default: the standard logger, which writes to stderr.
	Logf func(format string, args ...any)
}

// RocketMQ starts a name server and a broker of Apache RocketMQ, or uses those from the environment, and returns when
// both answer. When ctx ends they are killed. Stop ends them gracefully and removes their data. Addrs has one address,
// the name server's host:port. Kill, Start and Shutdown affect only the broker. RocketMQ does not run in docker here,
// because only the benchmarks use it. They also run RocketMQ's client, which needs Java and Maven in any case.
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

// rocketMQAnswers finds the broker through the name server and asks for its description. It uses no client of
// RocketMQ's.
func rocketMQAnswers(ctx context.Context, addrs []string) error {
	c, err := rocketmq.Dial(ctx, addrs[0])
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = c.Version(ctx)
	return err
}
