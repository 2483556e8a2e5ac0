package brokers

import (
	"context"
	"fmt"

	"github.com/redeliver/redeliver/integration/compose"
)

// sqsImagePort is the port on which ElasticMQ listens in its container.
const sqsImagePort = 9324

func composeSQS(ctx context.Context, o SQSOptions, command []string) (*SQSServer, error) {
	ports, err := freePorts(ctx, 1)
	if err != nil {
		return nil, err
	}
	// The image's user may only write to /tmp. The container keeps it when it is stopped and started.
	conf := sqsConf(sqsSettings(o, "0.0.0.0", sqsImagePort, ports[0], "/tmp/elasticmq/messages"))
	c, err := newComposed(command, "elasticmq", compose.SQS,
		map[string]any{"volumes": []string{"./elasticmq.conf:/opt/elasticmq.conf:ro"}},
		map[string]string{"elasticmq.conf": conf},
		fmt.Sprintf("REDELIVER_SQS_PORT=%d", ports[0]),
		"REDELIVER_SQS_HEAP="+o.Heap)
	if err != nil {
		return nil, err
	}
	return newSQS(ctx, "ElasticMQ "+elasticMQVersion+" (docker)", c, ports[0], o.StartTimeout, o.Logf)
}
