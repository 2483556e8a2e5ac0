package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/brokerurl"
	"github.com/redeliver/redeliver/observe"
	"github.com/redeliver/redeliver/observe/prom"
)

// systems are OpenTelemetry's names of the brokers.
var systems = map[brokerurl.Broker]string{brokerurl.Kafka: "kafka", brokerurl.KafkaShare: "kafka", brokerurl.RabbitMQ: "rabbitmq", brokerurl.SQS: "aws_sqs"}

// addMetrics counts events, asks the brokers about DLQs and waiting messages, and adds /metrics to pages. Call end after
// all subscriptions have ended.
func addMetrics(ctx context.Context, subscriptions []*consumed, log *slog.Logger, pages *http.ServeMux) (end func(), err error) {
	var ends []func()
	end = func() {
		for _, end := range ends {
			end()
		}
	}
	all := prometheus.NewRegistry()
	counted := make(map[string]redeliver.Sink)
	var polled pollers
	for _, s := range subscriptions {
		system := systems[s.c.Broker.Broker]
		if counted[system] == nil {
			if counted[system], err = prom.New(prom.Config{System: system, Registerer: all}); err != nil {
				end()
				return nil, err
			}
		}
		p, endPolls, err := s.pollTopics(ctx, &setup{group: s.c.Group, policy: s.c.Policy}, s.c.Topics, log)
		if err != nil {
			end()
			return nil, brokerError(fmt.Errorf("--metrics cannot ask the broker: %w", err))
		}
		ends, polled = append(ends, endPolls), append(polled, p)
		s.c.Sink = observe.Sinks(s.c.Sink, counted[system])
	}
	if err := errors.Join(all.Register(polled), addSkipped(subscriptions, all)); err != nil {
		end()
		return nil, err
	}
	pages.Handle(metricsPath, metricsPage(all))
	return end, nil
}

// pollers are the pollers of one page of metrics. Of those with one system the page has one redeliver_exporter_up: that
// of the worst.
type pollers []*poller

// Describe implements [prometheus.Collector].
func (all pollers) Describe(chan<- *prometheus.Desc) {}

// Collect implements [prometheus.Collector].
func (all pollers) Collect(to chan<- prometheus.Metric) {
	up := make(map[string]prometheus.Metric)
	low := make(map[string]float64)
	for _, p := range all {
		found := make(chan prometheus.Metric)
		go func() {
			defer close(found)
			p.Collect(found)
		}()
		for m := range found {
			if m.Desc() != p.up && m.Desc() != p.omitted {
				to <- m
				continue
			}
			key := m.Desc().String()
			var value dto.Metric
			if err := m.Write(&value); err == nil && (up[key] == nil || value.GetGauge().GetValue() < low[key]) {
				up[key], low[key] = m, value.GetGauge().GetValue()
			}
		}
	}
	for _, m := range up {
		to <- m
	}
}
