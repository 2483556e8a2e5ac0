package brokers

import (
	"cmp"
	"context"
	"fmt"
	"log"
	"os"
	"time"
)

// RabbitMQVersion is a version of RabbitMQ. Several may run side by side.
type RabbitMQVersion string

const (
	RabbitMQ3  RabbitMQVersion = "3.10" // Debian 12's
	RabbitMQ4  RabbitMQVersion = "4.0"  // Debian 13's
	RabbitMQ43 RabbitMQVersion = "4.3"  // Debian 14's
)

// The environment variables that give a running RabbitMQ 3, and the same for 4.0 and 4.3; see the package comment.
const (
	EnvRabbitMQ           = "REDELIVER_TEST_RABBITMQ"            // amqp://user:password@host:port/vhost
	EnvRabbitMQManagement = "REDELIVER_TEST_RABBITMQ_MANAGEMENT" // http://user:password@host:port; optional
	EnvRabbitMQRestart    = "REDELIVER_TEST_RABBITMQ_RESTART"    // a shell command that restarts it

	EnvRabbitMQ4           = "REDELIVER_TEST_RABBITMQ4"
	EnvRabbitMQ4Management = "REDELIVER_TEST_RABBITMQ4_MANAGEMENT"
	EnvRabbitMQ4Restart    = "REDELIVER_TEST_RABBITMQ4_RESTART"

	EnvRabbitMQ43           = "REDELIVER_TEST_RABBITMQ43"
	EnvRabbitMQ43Management = "REDELIVER_TEST_RABBITMQ43_MANAGEMENT"
	EnvRabbitMQ43Restart    = "REDELIVER_TEST_RABBITMQ43_RESTART"
)

// RabbitMQOptions configures a RabbitMQ. The zero value is one 3.10 node with the management plugin and the settings of
// rabbitmq_settings.go. User and password are guest, which is RabbitMQ's default.
type RabbitMQOptions struct {
	// Version is RabbitMQ3, RabbitMQ4 or RabbitMQ43. Default RabbitMQ3.
	Version RabbitMQVersion
	// Own requests a broker that nobody else uses, even if the environment gives one. Default false.
	Own bool
	// Config are additional settings of rabbitmq.conf, such as consumer_timeout, or replace its defaults. Default none.
	// They are an error for a RabbitMQ from the environment.
	Config map[string]string
	// Brief makes a native node keep its data in memory, if there is enough room. Declaring a queue then takes a third
	// less CPU. It is for a node that runs for minutes, not for a benchmark, nor for one that is killed. Default false.
	Brief bool
	// StartTimeout bounds every wait for readiness. Default 8 min, because a machine that also runs test suites is
	// slow.
	StartTimeout time.Duration
	// Logf logs what is started and how. Default: the standard logger, which writes to stderr.
	Logf func(format string, args ...any)
}

// rabbitEnv has the names of the variables for a RabbitMQ of one version.
type rabbitEnv struct{ url, management, restart string }

func (v RabbitMQVersion) env() (rabbitEnv, error) {
	switch v {
	case RabbitMQ3:
		return rabbitEnv{EnvRabbitMQ, EnvRabbitMQManagement, EnvRabbitMQRestart}, nil
	case RabbitMQ4:
		return rabbitEnv{EnvRabbitMQ4, EnvRabbitMQ4Management, EnvRabbitMQ4Restart}, nil
	case RabbitMQ43:
		return rabbitEnv{EnvRabbitMQ43, EnvRabbitMQ43Management, EnvRabbitMQ43Restart}, nil
	default:
		return rabbitEnv{}, fmt.Errorf("there is no rabbitmq %q for the tests; there are %s, %s and %s", v, RabbitMQ3, RabbitMQ4, RabbitMQ43)
	}
}

// RabbitMQ starts a RabbitMQ, or uses the one from the environment, and returns when it answers. When ctx ends the
// broker is killed. Stop ends it gracefully and removes its data.
func RabbitMQ(ctx context.Context, o RabbitMQOptions) (*Rabbit, error) {
	o.Version = cmp.Or(o.Version, RabbitMQ3)
	complete(&o.StartTimeout, &o.Logf, log.Printf)
	env, err := o.Version.env()
	if err != nil {
		return nil, err
	}
	if url := os.Getenv(env.url); url != "" && !o.Own {
		return givenRabbitMQ(ctx, o, env, url)
	}
	began := time.Now()
	r, err := byWay(ctx, "rabbitmq", o.Logf,
		func(command []string) (*Rabbit, error) { return composeRabbitMQ(ctx, o, command) },
		func() (*Rabbit, error) { return nativeRabbitMQ(ctx, o) })
	if err != nil {
		return nil, fmt.Errorf("starting a rabbitmq %s for the tests: %w", o.Version, err)
	}
	o.Logf("%s, up in %.1fs", r, time.Since(began).Seconds())
	return r, nil
}
