package cli

import (
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/console"
)

// consoleRow is what console prints once it listens.
type consoleRow struct {
	URL    string `json:"url"`
	Queues int    `json:"queues"` // number of DLQs that it shows
}

// discoverEvery is the number of refreshes between two searches for new DLQs.
const discoverEvery = 3

// consoleFlags configure what the console shows, where, and to which users.
type consoleFlags struct {
	sources  sourceFlags
	access   accessFlags
	listen   string
	cert     string
	key      string
	audit    string
	title    string
	traceURL string
	registry string
	hosts    []string
	readOnly bool
	refresh  time.Duration
}

func (a *app) console() *cobra.Command {
	var f consoleFlags
	cmd := &cobra.Command{
		Use: "console", Short: "Serve the web console of one or several brokers", Args: exactly(),
		Long: `Serve the dead-letter queues of brokers to browsers, until SIGTERM or Ctrl-C.

Without authentication the console serves this machine only, and everybody on it is an
operator. To serve other machines, give --basic-auth with TLS, or --behind-proxy with
--grant.

The console finds DLQs by their names; on RabbitMQ it needs --management-url for that. Use
--dlq for a DLQ that it cannot find, or that another program fills; then it shows only the
named DLQs of that broker. If it cannot open a DLQ, it reports that and shows the others. New
DLQs appear while it runs.`,
		Example: `  redeliver console --broker kafka://localhost:9092
  redeliver console --broker eu=kafka://kafka-eu:9092 --broker amqp://rabbit:5672 --dlq rabbitmq/orders.dlq
  redeliver console --listen :8443 --tls-cert cert.pem --tls-key key.pem --basic-auth users --audit audit.jsonl`,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.serveConsole(cmd.Context(), &f) },
	}
	f.sources.flags(cmd.Flags())
	f.access.flags(cmd.Flags())
	flags := cmd.Flags()
	flags.StringVar(&f.listen, "listen", console.DefaultAddress, "Listen on this `address`")
	flags.StringVar(&f.cert, "tls-cert", "", "Read the TLS certificate from this `file`, PEM (default no TLS)")
	flags.StringVar(&f.key, "tls-key", "", "Read the key of the TLS certificate from this `file`, PEM")
	flags.StringSliceVar(&f.hosts, "host", nil, "Accept only requests for one of the host names in `NAME,...` (default any; without authentication localhost)")
	flags.StringVar(&f.audit, "audit", "", "Append the audit log to this `file`, one JSON object per line (default stderr)")
	flags.BoolVar(&f.readOnly, "read-only", false, "Refuse all changes, also those of operators")
	flags.StringVar(&f.traceURL, "trace-url", "", "Link the trace ids of messages to this `URL`, which has {trace} in the place of the id (default no links)")
	flags.StringVar(&f.registry, "schema-registry", "", "Decode Avro and Protobuf bodies with the schemas of the Confluent schema registry at this `URL` (default $"+envRegistry+", or no decoding)")
	flags.StringVar(&f.title, "title", "", "Show this `title` on each page (default Dead letters)")
	flags.DurationVar(&f.refresh, "refresh", 0, "Count the messages of the DLQs again after this `duration` (default "+console.DefaultRefresh.String()+")")
	return cmd
}

func (a *app) serveConsole(ctx context.Context, f *consoleFlags) (err error) {
	if (f.cert == "") != (f.key == "") {
		return usagef("--tls-cert and --tls-key belong together")
	}
	auth, err := f.access.auth(a.Env)
	if err != nil {
		return err
	}
	decode, warnings, err := openRegistry(cmp.Or(f.registry, a.Env(envRegistry)))
	if err != nil {
		return err
	}
	audit, closeAudit, err := a.openAudit(f.audit)
	if err != nil {
		return err
	}
	defer func() { err = cmp.Or(err, failedAtEnd(closeAudit())) }()
	s, err := a.openSources(ctx, &f.sources)
	defer func() { err = cmp.Or(err, failedAtEnd(s.close(ctx, a.maxClose()))) }()
	if err != nil {
		return err
	}
	if f.access.isOpen(a.Env) {
		may := "is an operator"
		if f.readOnly {
			may = "may read all messages"
		}
		a.sayf("no authentication: everybody on this machine %s. Set --basic-auth, or --behind-proxy with --grant", may)
	}
	for _, warning := range slices.Concat(f.access.warnings(), warnings) {
		a.sayf("warning: %s", warning)
	}
	notes := s.notes()
	for _, note := range notes {
		a.sayf("%s", note)
	}
	for _, why := range s.notCounted {
		a.sayf("waiting messages are not known for %s", redeliver.Redact(why))
	}
	c, err := console.New(console.Config{
		Queues: s.queues, Notes: notes, Hosts: f.hosts, Auth: auth, ReadOnly: f.readOnly, Audit: audit, Refresh: f.refresh, Title: f.title, TraceURL: f.traceURL, Decode: decode,
	})
	if err != nil {
		return err
	}
	defer c.Close()
	watching, end := context.WithCancel(ctx)
	var watch sync.WaitGroup
	watch.Go(func() { s.watch(watching, c, discoverEvery*cmp.Or(f.refresh, console.DefaultRefresh)) })
	defer watch.Wait()
	defer end()
	var wrong error
	err = c.ListenAndServe(ctx, console.ServeConfig{Address: f.listen, CertFile: f.cert, KeyFile: f.key, Ready: func(url string) {
		wrong = a.printOne(consoleRow{URL: url, Queues: len(s.queues)}, func(t *details) {
			t.line("console", url)
			t.line("queues", len(s.queues))
		})
	}})
	if errors.Is(err, console.ErrPublic) {
		return usagef("%w; here that is --behind-proxy with --grant, or --basic-auth with --tls-cert and --tls-key", err)
	}
	return cmp.Or(err, wrong)
}

// openAudit opens the audit log: an append-only file, or stderr.
func (a *app) openAudit(path string) (w io.Writer, end func() error, err error) {
	if path == "" {
		return &escapedLines{w: a.Err}, func() error { return nil }, nil
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, nil, usagef("--audit: %w", err)
	}
	return &escapedLines{w: f}, f.Close, nil
}
