package cli

import (
	"context"
	"fmt"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/redeliver/redeliver/cmd/redeliver/internal/sidecar"
	"github.com/redeliver/redeliver/internal/brokerurl"
	"github.com/redeliver/redeliver/observe"
	"github.com/redeliver/redeliver/observe/prom"
)

// systems are OpenTelemetry's names of the brokers.
var systems = map[brokerurl.Broker]string{brokerurl.Kafka: "kafka", brokerurl.KafkaShare: "kafka", brokerurl.RabbitMQ: "rabbitmq", brokerurl.SQS: "aws_sqs"}

// addMetrics counts events, asks the broker about DLQs and waiting messages, and adds /metrics to pages. Call end after
// the sidecar has ended.
func (a *app) addMetrics(ctx context.Context, c *sidecar.Config, pages *http.ServeMux) (end func(), err error) {
	all := prometheus.NewRegistry()
	metrics, err := prom.New(prom.Config{System: systems[c.Broker.Broker], Registerer: all})
	if err != nil {
		return nil, err
	}
	end, err = a.pollTopics(ctx, &setup{group: c.Group, policy: c.Policy}, c.Topics, c.Log, all)
	if err != nil {
		return nil, brokerError(fmt.Errorf("--metrics cannot ask the broker: %w", err))
	}
	c.Sink = observe.Sinks(c.Sink, metrics)
	pages.Handle(metricsPath, metricsPage(all))
	return end, nil
}
