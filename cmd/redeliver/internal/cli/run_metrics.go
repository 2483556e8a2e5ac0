package cli

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/cmd/redeliver/internal/sidecar"
	"github.com/redeliver/redeliver/internal/brokerurl"
	"github.com/redeliver/redeliver/observe/prom"
)

// systems are OpenTelemetry's names of the brokers.
var systems = map[brokerurl.Broker]string{brokerurl.Kafka: "kafka", brokerurl.RabbitMQ: "rabbitmq", brokerurl.SQS: "aws_sqs"}

// measure counts the events, and returns a handler that serves the counts and pages.
func measure(c *sidecar.Config, pages http.Handler) (http.Handler, error) {
	all := prometheus.NewRegistry()
	metrics, err := prom.New(prom.Config{System: systems[c.Broker.Broker], Registerer: all})
	if err != nil {
		return nil, err
	}
	all.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	c.Sink = redeliver.Sinks(c.Sink, metrics)
	mux := http.NewServeMux()
	mux.Handle("/", pages)
	mux.Handle("GET /metrics", promhttp.HandlerFor(all, promhttp.HandlerOpts{}))
	return mux, nil
}
