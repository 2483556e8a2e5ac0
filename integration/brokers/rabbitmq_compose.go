package brokers

import (
	"context"
	"fmt"
	"time"

	"github.com/redeliver/redeliver/integration/compose"
)

// rabbitImages are the tags of the official image, before "-management".
var rabbitImages = map[RabbitMQVersion]string{RabbitMQ3: "3.10", RabbitMQ4: "4", RabbitMQ43: "4.3"}

func composeRabbitMQ(ctx context.Context, o RabbitMQOptions, command []string) (*Rabbit, error) {
	ports, err := freePorts(ctx, 2)
	if err != nil {
		return nil, err
	}
	over := map[string]any{"volumes": []string{"./redeliver.conf:/etc/rabbitmq/conf.d/90-redeliver.conf:ro"}}
	files := map[string]string{"redeliver.conf": rabbitConf(rabbitSettings(o))}
	image := rabbitImages[o.Version]
	c, err := newComposed(command, "rabbitmq", compose.RabbitMQ, over, files,
		"REDELIVER_RABBITMQ_VERSION="+image,
		fmt.Sprintf("REDELIVER_RABBITMQ_PORT=%d", ports[0]),
		fmt.Sprintf("REDELIVER_RABBITMQ_MANAGEMENT_PORT=%d", ports[1]))
	if err != nil {
		return nil, err
	}
	ctl := func(ctx context.Context, args ...string) (string, error) {
		c.mu.Lock() // one compose command at a time
		defer c.mu.Unlock()
		return c.run(ctx, time.Minute, append([]string{"exec", "-T", c.service, "rabbitmqctl", "-q"}, args...)...)
	}
	return newRabbit(ctx, o, "RabbitMQ "+image+" (docker)", c, ports[0], ports[1], ctl)
}
