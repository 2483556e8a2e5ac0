package loss

import (
	"cmp"
	"context"
	"net/http"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver/adapters/sqs"
)

// sqsVisibility is when what a killed consumer had in hand comes back.
const sqsVisibility = 5 * time.Second

// connectSQS opens the adapter with a client whose requests the spy sees.
func connectSQS(ctx context.Context, cfg consumerConfig, s *spy) (message.Subscriber, func(context.Context) error, error) {
	policy := cfg.policy()
	policy.Levels = nil // SQS delays by the second, whatever they are
	// Kills at random may hit a suspect that runs alone, as on RabbitMQ; and SQS counts receives, those too whose answer was
	// lost before anybody ran the message.
	policy.MaxCrashes = 3
	ac := sqsAWS()
	ac.HTTPClient = &http.Client{Transport: newSQSTransport(s)}
	endpoint := cfg.Addrs[0]
	if cfg.Strain.Via != "" {
		endpoint = "http://" + cfg.Strain.Via
	}
	// A service that starts while SQS fails is started again by whoever started it.
	for {
		client, err := sqs.Open(ctx, sqs.Config{
			AWS: &ac, Endpoint: endpoint, Policy: policy, Sink: s, DrainTimeout: 2 * time.Second, SendTimeout: cfg.Strain.SendTimeout,
			MaxInFlight: cmp.Or(cfg.Strain.InFlight, 20), VisibilityTimeout: cmp.Or(cfg.Strain.Missed, sqsVisibility), WaitTime: time.Second, Pollers: 2,
		})
		if err == nil {
			return sqsSubscriber{client.Subscriber()}, client.Close, nil
		}
		if err := again(ctx, err); err != nil {
			return nil, nil, err
		}
	}
}

// sqsSubscriber tries again where SQS failed between Open and Subscribe.
type sqsSubscriber struct{ *sqs.Subscriber }

func (q sqsSubscriber) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	for {
		out, err := q.Subscriber.Subscribe(ctx, topic)
		if err == nil {
			return out, nil
		}
		if err := again(ctx, err); err != nil {
			return nil, err
		}
	}
}
