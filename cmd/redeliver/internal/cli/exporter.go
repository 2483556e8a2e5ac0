package cli

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/cobra"
)

// exporterRow is what exporter prints once it listens.
type exporterRow struct {
	Broker  string `json:"broker"`
	Metrics string `json:"metrics"` // the URL
}

// Defaults of exporter, which are also those of run --metrics.
const (
	exporterAddress = "127.0.0.1:8082"
	pollEvery       = 30 * time.Second
	pollTimeout     = 15 * time.Second
	maxPolled       = 100
)

type exporterFlags struct {
	pollFlags

	listen string
	dlqs   []string
}

func exporterCommand(a *app) *cobra.Command {
	f := &exporterFlags{}
	cmd := &cobra.Command{
		Use: "exporter", Short: "Export Prometheus metrics of DLQs and waiting messages", Args: exactly(),
		Long: `Serve /metrics for Prometheus, until SIGTERM or Ctrl-C: how many messages are in each DLQ
and how old they are, how many wait for a retry and are overdue, what doctor finds, and how
many messages of the origin are not handled yet. These are the metrics that a Go service
exports with observe/prom. The metrics of attempts are those of the service or of "run".

The exporter finds DLQs by their names; on RabbitMQ it needs --management-url for that. Use
--dlq for a DLQ that it cannot find. It consumes and changes nothing. SQS does not report the
age of the oldest dead letter, so the exporter reads up to 100 of them once a minute, which
hides them from others for a moment.`,
		Example: `  redeliver exporter --broker kafka://localhost:9092
  redeliver exporter --broker sqs://eu-central-1 --listen :8082 --max-dlqs 500`,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.serveExporter(cmd.Context(), f) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.listen, "listen", exporterAddress, "Listen on this `address`")
	flags.StringArrayVar(&f.dlqs, "dlq", nil, "Look at this DLQ, `DLQ[,topic=T[,group=G]]`, and only at the named ones (default all DLQs that the broker lists). Repeatable")
	flags.IntVar(&f.max, "max-dlqs", maxPolled, "Look at this `number` of DLQs at most")
	flags.DurationVar(&f.every, "every", pollEvery, "Ask the broker again after this `duration`")
	flags.DurationVar(&f.timeout, "timeout", pollTimeout, "Wait for an answer about one DLQ for this `duration`")
	flags.BoolVar(&f.ages, "read-ages", true, "Read messages where the broker does not report their age")
	return cmd
}

// check returns the error of a wrong flag.
func (f *exporterFlags) check() error {
	switch _, _, err := net.SplitHostPort(f.listen); {
	case err != nil:
		return usagef("--listen is %q: must be an address, as in :8082 or 127.0.0.1:8082", f.listen)
	case f.every < time.Second:
		return usagef("--every is %s: must be at least 1s", f.every)
	case f.timeout <= 0:
		return usagef("--timeout is %s: must be more than 0", f.timeout)
	case f.max < 1:
		return usagef("--max-dlqs is %d: must be at least 1", f.max)
	}
	return nil
}

func (a *app) serveExporter(ctx context.Context, f *exporterFlags) error {
	if err := f.check(); err != nil {
		return err
	}
	return a.withBroker(ctx, setup{}, func(b *broker) error {
		only, err := b.named(ctx, f.dlqs)
		if err != nil {
			return err
		}
		p := newPoller(b, f.pollFlags, only, a.sayf)
		if _, err := p.list(ctx); err != nil { // report a wrong broker now, and not at each poll
			return err
		}
		all := prometheus.NewRegistry()
		all.MustRegister(p)
		pages := http.NewServeMux()
		pages.Handle(metricsPath, metricsPage(all))
		at, end, err := listen(ctx, "--listen", f.listen, pages)
		if err != nil {
			return err
		}
		defer end()
		row := exporterRow{Broker: string(b.kind), Metrics: "http://" + at + "/metrics"}
		if err := a.printOne(row, func(t *details) { t.line("metrics", row.Metrics) }); err != nil {
			return err
		}
		p.run(ctx)
		return nil
	})
}

// named returns the DLQs that are given with --dlq. It returns nil if none are given and the broker can list them.
func (b *broker) named(ctx context.Context, texts []string) ([]subject, error) {
	s := &sources{brokers: []*source{{name: string(b.kind), b: b}}}
	for _, text := range texts {
		if err := s.addDLQ(text); err != nil {
			return nil, err
		}
	}
	only := s.brokers[0].dlqs
	if only == nil && b.queues == nil {
		return nil, errUnlisted
	}
	return only, b.addOwners(ctx, only)
}

// metricsPath is a ServeMux pattern.
const metricsPath = "GET /metrics"

// metricsPage serves the metrics of a registry, and of the process.
func metricsPage(all *prometheus.Registry) http.Handler {
	all.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	// A group whose name is not UTF-8 must not hide the others.
	return promhttp.HandlerFor(all, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError})
}

// pollTopics polls what the broker reports about the topics of a sidecar, until end is called.
func (a *app) pollTopics(ctx context.Context, c *setup, topics []string, log *slog.Logger) (p *poller, end func(), err error) {
	quiet := *a
	quiet.Err = io.Discard // run has logged the warnings
	b, err := quiet.open(ctx, *c)
	if err != nil {
		return nil, nil, err
	}
	only := make([]subject, len(topics))
	for i, topic := range topics {
		only[i] = subject{topic: topic, group: c.group}
	}
	// Several sidecars share the queues, so none reads messages.
	p = newPoller(b, pollFlags{every: pollEvery, timeout: pollTimeout, max: max(maxPolled, len(topics))}, only, func(format string, args ...any) {
		log.Warn("metrics are missing", "error", fmt.Sprintf(format, args...))
	})
	p.knowsPolicy = true
	ctx, cancel := context.WithCancel(ctx)
	var run sync.WaitGroup
	run.Go(func() { p.run(ctx) })
	return p, func() {
		cancel()
		run.Wait()
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.maxClose())
		defer cancel()
		_ = b.close(closing) // nothing was written
	}, nil
}
