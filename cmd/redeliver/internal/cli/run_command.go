package cli

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/cmd/redeliver/internal/credentials"
	"github.com/redeliver/redeliver/cmd/redeliver/internal/sidecar"
)

// envAuthorization names the variable with the Authorization header.
const envAuthorization = "REDELIVER_HTTP_AUTHORIZATION"

// Flag defaults and limits.
const (
	defaultPosts     = 100
	defaultDrain     = 30 * time.Second
	defaultBytes     = 8 << 20 // per batch
	maxBatch         = 10_000
	maxBatchBytes    = 1 << 30
	defaultEventType = "redeliver.message"
)

// handlingRow is what run prints when it starts.
type handlingRow struct {
	Broker  string   `json:"broker"`
	Topics  []string `json:"topics"`
	Group   string   `json:"group,omitempty"`  // Kafka only
	Handler string   `json:"handler"`          // the URL, or the command and the number of its arguments
	Health  string   `json:"health,omitempty"` // the URL of /healthz and /readyz
	// Publish is the URL to which programs post messages, without the topic.
	Publish string `json:"publish,omitempty"`
	// Skips are the messages that are acked without the handler, in words.
	Skips []string `json:"skips,omitempty"`
	// OnDeadLetter is the URL to which dead letters are reported, without the path.
	OnDeadLetter string `json:"on_dead_letter,omitempty"`
}

// runFlags configure the topics to consume and their handler.
type runFlags struct {
	policy                       policyFlags
	guards                       guardFlags
	topics                       []string
	group, instance, keyHeader   string
	springHeaders, skipExisting  bool
	retention                    time.Duration // of the DLQ
	url, eventType               string
	exec, events, noProvisioning bool
	argv                         []string
	batch, batchBytes            int
	batchWait                    time.Duration
	concurrency, retries, fewest int
	drain                        time.Duration

	bearerFile, certFile, keyFile, caFile string

	to            *url.URL // parsed url
	bearer        *credentials.Bearer
	tls           *tls.Config
	authorization string
	status        []string
	statuses      sidecar.Statuses // parsed status

	webhook webhookFlags
	skip    skipFlags
	dedup   dedupFlags
	// maxTimeout is the maximum extended timeout.
	maxTimeout time.Duration
}

// processFlags are the flags of run that concern the whole process.
type processFlags struct {
	file, health, log, publish string
	check, metrics             bool

	token string // that publishing needs
}

func runCommand(a *app) *cobra.Command {
	f, p := &runFlags{}, &processFlags{}
	cmd := &cobra.Command{
		Use:   "run --topic TOPIC [--group GROUP] --http URL | --exec -- COMMAND [ARG]... | --file FILE",
		Short: "Consume messages with any program as the handler", DisableFlagsInUseLine: true,
		Long: `Consume topics or queues with retries, delays and a DLQ. Any program can be the handler: one
that receives each message as a POST to a URL, or a command that runs for each message.

With --http, 2xx means that the message is done. 429 and 503 with Retry-After say when to
retry. 408, 409, 425, 429, 431, 5xx and no answer are retried by the policy. 3xx, 401, 403,
404, 405, 407 and 502 to 504 mean that the handler is not there: while no other message is
handled, they count for nothing; otherwise they are retried, too. All other 4xx go to the
DLQ. With --batch many messages are one JSON document, and each has its own answer.

With --exec the body is the standard input of the command, which runs without a shell. Exit
status 0 means that the message is done, 65 sends it to the DLQ, 126 and 127 mean that the
command is not there, and all others are retried. --status changes the meaning of a status.

--file reads many subscriptions, each with its broker, policy and handler, from a YAML file. Its
keys are the names of these flags. --check reports all problems and starts nothing.

run ends on SIGTERM or Ctrl-C. Messages that are running then have --drain to finish; those
that do not finish are delivered again. See docs/reference/sidecar.md.`,
		Example: `  redeliver run --broker kafka://localhost:9092 --topic orders --group billing --http http://localhost:8080/orders
  redeliver run --broker amqp://localhost/ --topic orders --retries 5 --backoff steps:10s,1m,1h --exec -- ./charge --fast
  redeliver run --broker sqs://eu-central-1 --topic orders --http http://localhost:8080/ --batch 100 --health :8081
  redeliver run --file subscriptions.yaml --check`,
		RunE: func(cmd *cobra.Command, args []string) error {
			f.argv = args
			return a.serveMessages(cmd, f, p)
		},
	}
	f.define(cmd.Flags())
	grouped(cmd.Flags(), groupSubscription, func(flags *pflag.FlagSet) {
		flags.StringVar(&p.file, "file", "", "Read subscriptions from this YAML `file` instead of the flags, see docs/reference/subscriptions.md")
		flags.BoolVar(&p.check, "check", false, "Report all problems of the flags or the file, connect to no broker, and end")
	})
	p.define(cmd.Flags())
	completePolicy(cmd)
	oneOf(cmd, "log", logFormats...)
	return cmd
}

// logFormats are the values of --log.
var logFormats = []string{"text", "json"}

// define adds the flags that a file has for the whole process.
func (p *processFlags) define(flags *pflag.FlagSet) {
	grouped(flags, groupHandler, func(flags *pflag.FlagSet) {
		flags.StringVar(&p.publish, "publish", "", "Let programs publish with POST /v1/topics/TOPIC at this `address`, for example 127.0.0.1:8082. Any other host than this one needs a token in $"+envPublishToken+" (default off)")
	})
	grouped(flags, groupMonitoring, func(flags *pflag.FlagSet) {
		flags.StringVar(&p.health, "health", "", "Serve /healthz and /readyz at this `address`, for example :8081 (default off)")
		flags.BoolVar(&p.metrics, "metrics", false, "Serve Prometheus metrics as /metrics at the address of --health")
		flags.StringVar(&p.log, "log", "text", "Log to stderr in this `format`: text or json")
	})
}

// define adds the flags of a subscription.
func (f *runFlags) define(flags *pflag.FlagSet) {
	grouped(flags, groupSubscription, func(flags *pflag.FlagSet) {
		flags.StringArrayVar(&f.topics, "topic", nil, "Consume this `topic`; on RabbitMQ and SQS this queue (required). Repeatable")
		flags.StringVar(&f.group, "group", "", "Kafka: consume as this consumer or share `group` (required, unless the profile has one)")
		flags.BoolVar(&f.noProvisioning, "no-provisioning", false, "Refuse to start when a topic or queue is missing, instead of creating it")
		flags.DurationVar(&f.retention, "retention", 0, "Keep dead letters for this `duration`, at least 1m, on SQS at most 336h. A DLQ that exists must have the same retention (default forever, on SQS 336h, or as the DLQ that exists)")
		flags.StringVar(&f.instance, "instance-id", "", "Kafka: join the group as a static member with this `id`, which no other process of the group may use")
		flags.BoolVar(&f.skipExisting, "skip-existing", false, "Kafka: let a new group skip the records that the topic has when it starts")
		flags.BoolVar(&f.springHeaders, "spring-headers", false, "Kafka: add Spring Kafka's headers to dead letters")
		flags.StringVar(&f.keyHeader, "key-header", "", "RabbitMQ: take the key of a message from this `header`, for --order through-retries")
	})
	grouped(flags, groupHandler, func(flags *pflag.FlagSet) {
		flags.StringVar(&f.url, "http", "", "Send each message as a POST to this `URL`")
		flags.StringVar(&f.bearerFile, "bearer-file", "", "With --http: send the token in this `file` as the bearer in Authorization. The file is read again")
		flags.StringVar(&f.certFile, "client-cert", "", "With --http: present the certificate in this PEM `file`. It is read again for each connection, and so is --client-key")
		flags.StringVar(&f.keyFile, "client-key", "", "The `file` with the key of --client-cert")
		flags.StringVar(&f.caFile, "ca-file", "", "With --http: trust a server whose certificate an authority in this PEM `file` has signed, and no other")
		flags.BoolVar(&f.exec, "exec", false, "Run the command after -- for each message")
		flags.BoolVar(&f.events, "cloudevents", false, "Send each message as a CloudEvent in binary mode")
		flags.StringVar(&f.eventType, "event-type", defaultEventType, "Use this `type` for CloudEvents of messages that have no type")
		flags.StringArrayVar(&f.status, "status", nil, "Treat this HTTP or exit status as ack, retry, reject or unreachable, `CODE=MEANING`, as in 404=reject. Repeatable")
		flags.IntVar(&f.batch, "batch", 0, "Send at most this `number` of messages in one POST (default no batches)")
		flags.DurationVar(&f.batchWait, "batch-wait", redeliver.DefaultBatchTimeout, "Let the first message of a batch wait for others for this `duration`, 0 for not at all")
		flags.IntVar(&f.batchBytes, "batch-bytes", defaultBytes, "Put messages of at most this `number` of bytes in all into a batch, with keys and headers; a single message may have more")
		flags.IntVar(&f.concurrency, "concurrency", 0, "Handle at most this `number` of first deliveries of a topic at once, or of batches (default 100 with --http, 1 with --batch, one per processor with --exec)")
		flags.IntVar(&f.retries, "retry-concurrency", 0, "Handle at most this `number` of retries of a topic at once, in addition to --concurrency. Not with --batch (default the same as --concurrency)")
		flags.IntVar(&f.fewest, "min-concurrency", 0, "While messages fail, handle fewer at once, down to this `number`, first deliveries and retries together; with --batch a number of batches (default the numbers do not shrink)")
		flags.DurationVar(&f.maxTimeout, "max-timeout", 0, "Let a handler extend an attempt to this `duration` in all, see --health (default four times --timeout)")
		f.skip.flags(flags)
		f.dedup.flags(flags)
		flags.DurationVar(&f.drain, "drain", defaultDrain, "Let running messages finish for this `duration` when run ends")
	})
	grouped(flags, groupPolicy, f.policy.define)
	grouped(flags, groupPolicy, f.guards.flags)
	grouped(flags, groupMonitoring, f.webhook.flags)
}

// handlerName returns the handler as run prints it. The arguments are omitted, because they may be secrets.
func (f *runFlags) handlerName() string {
	if f.to != nil {
		return redeliver.Redact(f.to.String())
	}
	name := redeliver.Redact(f.argv[0])
	if n := len(f.argv) - 1; n > 0 {
		name += fmt.Sprintf(" and %d arguments", n)
	}
	return name
}

func (a *app) newHandler(f *runFlags, p *processFlags, c *sidecar.Config) (sidecar.Handler, error) {
	if f.exec {
		say := func(id, line string) { a.sayf("%s: %s", visible(id), line) }
		if p.log == "json" {
			say = func(id, line string) { c.Log.Info("output of the command", "id", visible(id), "line", visible(line)) }
		}
		return sidecar.NewExec(f.argv, os.Environ(), f.statuses, say)
	}
	policy := c.Policy.WithDefaults()
	config := sidecar.HTTPConfig{
		URL: f.to, TLS: f.tls, Authorization: f.authorization, CloudEvents: f.events, EventType: f.eventType, Statuses: f.statuses,
		Requests: len(c.Topics) * (c.InFlight + c.RetriesInFlight), Timeout: policy.Timeout, Retries: policy.MaxRetries,
	}
	if f.bearer != nil {
		config.Bearer = f.bearer.Authorization
	}
	return sidecar.NewHTTP(config), nil
}

func (a *app) logger(format string) *slog.Logger {
	if format == "json" {
		return slog.New(slog.NewJSONHandler(&escapedLines{w: a.Err}, nil))
	}
	return slog.New(slog.NewTextHandler(a.Err, nil))
}

// listen serves until end is called.
func listen(ctx context.Context, flag, address string, h http.Handler) (at string, end func(), err error) {
	const quick = 5 * time.Second // for both directions: requests and responses are short
	return listenFor(ctx, flag, address, quick, h)
}

// listenFor is listen for requests that may take this long. Those that run when end is called have at most 5 s to end.
func listenFor(ctx context.Context, flag, address string, longest time.Duration, h http.Handler) (at string, end func(), err error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return "", nil, failed(codeFailed, "%s is %s, where nothing can listen: %w; give another address", flag, address, err)
	}
	server := &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: longest, WriteTimeout: longest, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(l) // it ends when server is closed
	}()
	return l.Addr().String(), func() {
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), min(longest, 5*time.Second))
		defer cancel()
		_ = server.Shutdown(ending)
		_ = server.Close()
		<-done
	}, nil
}
