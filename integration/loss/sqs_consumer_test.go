package loss

import (
	"cmp"
	"context"
	"net/http"
	"time"

	"github.com/redeliver/redeliver/adapters/sqs"
	"github.com/redeliver/redeliver/integration/brokerstate"
	"github.com/redeliver/redeliver/integration/consumer"
)

// sqsVisibility is when the messages of a killed consumer come back.
const sqsVisibility = 5 * time.Second

// connectSQS opens the adapter with a client whose requests the watcher sees.
func connectSQS(ctx context.Context, cfg consumerConfig, s *watcher) (consumer.Client, error) {
	policy := cfg.policy()
	policy.Levels = nil // SQS delays by whole seconds, whatever the levels are
	// A random kill may hit a suspect that runs alone, as on RabbitMQ. SQS also counts receives whose answer was lost
	// before anybody ran the message.
	policy.MaxCrashes = 3
	ac := brokerstate.AWS()
	ac.HTTPClient = &http.Client{Transport: newSQSTransport(s)}
	endpoint := cfg.Addrs[0]
	if cfg.Load.Via != "" {
		endpoint = "http://" + cfg.Load.Via
	}
	return consumer.Open(ctx, func() (consumer.Client, error) {
		client, err := sqs.Open(ctx, sqs.Config{
			AWS: &ac, Endpoint: endpoint, Policy: policy, Sink: s, DrainTimeout: 2 * time.Second, SendTimeout: cfg.Load.SendTimeout,
			MaxInFlight: cmp.Or(cfg.Load.InFlight, 20), VisibilityTimeout: cmp.Or(cfg.Load.Missed, sqsVisibility), WaitTime: time.Second, Pollers: 2,
		})
		if err != nil {
			return consumer.Client{}, err
		}
		return consumer.Client{Subscriber: client.Subscriber(), End: client.Close}, nil
	})
}
