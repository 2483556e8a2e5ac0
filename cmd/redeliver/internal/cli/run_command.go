package cli

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/cmd/redeliver/internal/sidecar"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/delayqueue"
)

// envAuthorization is the value of the header Authorization of every post.
const envAuthorization = "REDELIVER_HTTP_AUTHORIZATION"

// Defaults of run.
const (
	defaultPosts     = 100
	defaultDrain     = 30 * time.Second
	defaultBytes     = 8 << 20 // of a batch
	mostBatch        = 10_000
	mostBytes        = 1 << 30
	defaultEventType = "redeliver.message"
)

// handlingRow is what run prints when it begins.
type handlingRow struct {
	Broker  string   `json:"broker"`
	Topics  []string `json:"topics"`
	Group   string   `json:"group,omitempty"`  // of Kafka
	Handler string   `json:"handler"`          // the URL, or the command and how many arguments it has
	Health  string   `json:"health,omitempty"` // the URL of /healthz and /readyz
	// OnDeadLetter is who is told of dead letters, without the path.
	OnDeadLetter string `json:"on_dead_letter,omitempty"`
}

// runFlags say what is read, and who handles it.
type runFlags struct {
	policy                       policyFlags
	guards                       guardFlags
	topics                       []string
	group, instance, keyHeader   string
	deadHeaders                  string
	url, eventType               string
	exec, events, noProvisioning bool
	supersede                    bool
	argv                         []string
	batch, batchBytes            int
	batchWait                    time.Duration
	concurrency, retries         int
	drain                        time.Duration
	health, log                  string

	to            *url.URL // of url
	authorization string

	webhook webhookFlags
	metrics bool
}

func (a *app) sidecar() *cobra.Command {
	f := &runFlags{}
	cmd := &cobra.Command{
		Use:   "run --topic T [--group G] [flags] --http URL | --exec -- COMMAND [ARG]...",
		Short: "Give the messages of a topic or queue to any program", DisableFlagsInUseLine: true,
		Long: `run consumes topics or queues, with retries, delays and a DLQ, and any program is the
handler: one that listens at a URL and is posted each message, or a command that is run
for each.

--http: 2xx is done. 429 and 503 with Retry-After say when to try again; 408, 409, 425,
429, 431, 5xx, 3xx and no answer are tried again when the policy says, and all other 4xx
go to the DLQ at once: 401, 403, 404 and 405 only after the first 2xx, before it the URL
may be wrong. With --batch many messages are one post, a JSON document, and each has an
answer of its own.

--exec: the body is the command's standard input, and no shell is between. Exit status 0
is done, 65 goes to the DLQ at once, and all others are tried again.

It goes on until it is told to end (SIGTERM, Ctrl-C). Then what is in hand has --drain to
finish, and what does not comes back. What a handler is told of a message, and how
batches are answered: docs/reference/sidecar.md.`,
		Example: `  redeliver run --broker kafka://localhost:9092 --topic orders --group billing --http http://localhost:8080/orders
  redeliver run --broker amqp://localhost/ --topic orders --retries 5 --backoff steps:10s,1m,1h --exec -- ./charge --fast
  redeliver run --broker sqs://eu-central-1 --topic orders --http http://localhost:8080/ --batch 100 --health :8081`,
		RunE: func(cmd *cobra.Command, args []string) error {
			f.argv = args
			return a.serveMessages(cmd.Context(), cmd, f)
		},
	}
	flags := cmd.Flags()
	flags.StringArrayVar(&f.topics, "topic", nil, "a `topic` that is consumed; on RabbitMQ and SQS a queue (required, may be repeated)")
	flags.StringVar(&f.group, "group", "", "the consumer `group`; on Kafka required, elsewhere there is none (default the profile's)")
	flags.StringVar(&f.instance, "instance-id", "", "static membership: an `id` that no other process of the group has (Kafka only)")
	flags.StringVar(&f.keyHeader, "key-header", "", "the `header` that is a message's key, for --order PerKey (RabbitMQ only)")
	flags.StringVar(&f.deadHeaders, "dead-letter-headers", "", "whose `headers` a dead letter carries, too: spring, or watermill (Kafka only; default none)")
	flags.StringVar(&f.url, "http", "", "`URL` that each message is posted to")
	flags.BoolVar(&f.events, "cloudevents", false, "post each message as an event, in the binary mode of CloudEvents")
	flags.StringVar(&f.eventType, "event-type", defaultEventType, "the `type` of events that do not say their own")
	flags.BoolVar(&f.exec, "exec", false, "run the command behind -- for each message")
	flags.IntVar(&f.batch, "batch", 0, "the most messages of one post; 0 for no batches")
	flags.DurationVar(&f.batchWait, "batch-wait", delayqueue.DefaultBatchTimeout, "how long the first message of a batch waits for others, 0 for not at all")
	flags.IntVar(&f.batchBytes, "batch-bytes", defaultBytes, "bounds the bodies of a batch, in all, in bytes; one message may have more")
	flags.IntVar(&f.concurrency, "concurrency", 0, "how many first deliveries of each topic are handled at once, or batches (default 100 posts, 1 batch, or a command for each processor)")
	flags.IntVar(&f.retries, "retry-concurrency", 0, "how many retries are handled at once beside them (default --concurrency); not of batches")
	flags.DurationVar(&f.drain, "drain", defaultDrain, "how long what is in hand may take at the end")
	flags.StringVar(&f.health, "health", "", "`address` of /healthz and /readyz, :8081 for instance (default none)")
	flags.StringVar(&f.log, "log", "text", "what is told on stderr: text, or json")
	flags.BoolVar(&f.noProvisioning, "no-provisioning", false, "refuse to start when a topic or queue is missing, instead of creating it")
	flags.BoolVar(&f.metrics, "metrics", false, "serve /metrics at --health, too, for Prometheus")
	f.webhook.flags(flags)
	f.policy.flags(flags)
	flags.BoolVar(&f.supersede, "supersede", false, "decide by this policy about messages that failed under another one, too (default each finishes by its own)")
	f.guards.flags(flags)
	complete(cmd, "dead-letter-headers", cobra.FixedCompletions([]string{string(deadletter.SpringHeaders), string(deadletter.WatermillHeaders)}, cobra.ShellCompDirectiveNoFileComp))
	complete(cmd, "log", cobra.FixedCompletions([]string{"text", "json"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// serveMessages has messages handled until ctx ends.
func (a *app) serveMessages(ctx context.Context, cmd *cobra.Command, f *runFlags) (err error) {
	c, err := a.readRun(cmd, f)
	if err != nil {
		return err
	}
	c.Log = a.logger(f.log)
	if c.Handler, err = a.handler(f, &c); err != nil {
		return usagef("--exec: %w", err)
	}
	c.Sink = redeliver.NewSlogSink(c.Log)
	if f.webhook.to != nil {
		w := f.webhook.open(&c)
		defer w.End() // behind Run: what is dead-lettered at the end is told, too
		c.Sink = redeliver.Sinks(c.Sink, w)
	}
	c.Health = sidecar.NewHealth(c.Broker.Broker, c.Topics)
	row := handlingRow{Broker: string(c.Broker.Broker), Topics: c.Topics, Group: c.Group, Handler: f.name(), OnDeadLetter: f.webhook.name()}
	if f.health != "" {
		pages := c.Health.Handler()
		if f.metrics {
			if pages, err = measure(&c, pages); err != nil {
				return err
			}
		}
		at, end, err := listen(ctx, f.health, pages)
		if err != nil {
			return err
		}
		defer end()
		row.Health = "http://" + at
	}
	if err := a.one(row, func(t *card) {
		t.line("topics", strings.Join(row.Topics, ", "))
		t.line("group", row.Group)
		t.line("handler", row.Handler)
		t.line("health", row.Health)
		t.line("on dead letter", row.OnDeadLetter)
	}); err != nil {
		return err
	}
	if err := sidecar.Run(ctx, c); err != nil {
		return failed(codeOf(err), "%w", err) // the call was not wrong, so it is what the broker has, or cannot hold
	}
	return nil
}

// name is the handler as it is printed. Its arguments may be secrets.
func (f *runFlags) name() string {
	if f.to != nil {
		return redeliver.Redact(f.to.String())
	}
	name := redeliver.Redact(f.argv[0])
	if n := len(f.argv) - 1; n > 0 {
		name += fmt.Sprintf(" and %d arguments", n)
	}
	return name
}

// handler is who handles the messages.
func (a *app) handler(f *runFlags, c *sidecar.Config) (sidecar.Handler, error) {
	if f.exec {
		say := func(id, line string) { a.sayf("%s: %s", visible(id), line) }
		if f.log == "json" {
			say = func(id, line string) { c.Log.Info("command says", "id", visible(id), "line", visible(line)) }
		}
		return sidecar.NewExec(f.argv, os.Environ(), say)
	}
	policy := c.Policy.WithDefaults()
	return sidecar.NewHTTP(sidecar.HTTPConfig{
		URL: f.to, Authorization: f.authorization, CloudEvents: f.events, EventType: f.eventType,
		Requests: len(c.Topics) * (c.InFlight + c.RetriesInFlight), Timeout: policy.Timeout, Retries: policy.MaxRetries,
	}), nil
}

func (a *app) logger(format string) *slog.Logger {
	if format == "json" {
		return slog.New(slog.NewJSONHandler(&harmlessLines{w: a.Err}, nil))
	}
	return slog.New(slog.NewTextHandler(a.Err, nil))
}

// listen serves until end is called, and tells where.
func listen(ctx context.Context, address string, h http.Handler) (at string, end func(), err error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return "", nil, failed(codeFailed, "--health: %w", err)
	}
	const quick = 5 * time.Second // for both sides: nothing that is asked or said is long
	server := &http.Server{Handler: h, ReadHeaderTimeout: quick, ReadTimeout: quick, WriteTimeout: quick, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(l) // it ends by Close
	}()
	return l.Addr().String(), func() {
		_ = server.Close()
		<-done
	}, nil
}
