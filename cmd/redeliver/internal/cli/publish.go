package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/redeliver/redeliver/adapters/amqp"
	"github.com/redeliver/redeliver/adapters/kafkashare"
	"github.com/redeliver/redeliver/adapters/sqs"
	"github.com/redeliver/redeliver/cmd/redeliver/internal/publish"
	"github.com/redeliver/redeliver/cmd/redeliver/internal/sidecar"
	"github.com/redeliver/redeliver/internal/brokerurl"
	"github.com/redeliver/redeliver/mq"
)

// envPublishToken names the variable with the token that publishing needs.
const envPublishToken = "REDELIVER_PUBLISH_TOKEN" //nolint:gosec // a name

// maxPublish is how long a request to publish may take: a body of the maximum size, and the broker's confirmation.
const maxPublish = time.Minute

// publishedRow is what publish prints.
type publishedRow struct {
	ID    string `json:"id"`
	Topic string `json:"topic"`
}

// openPublisher opens a client that publishes.
func openPublisher(ctx context.Context, u brokerurl.URL, s setup) (*mq.Client, error) {
	switch u.Broker {
	case brokerurl.RabbitMQ:
		return amqp.Open(ctx, amqp.Config{
			URLs: u.AMQP(), Policy: s.policy, Sink: discardEvents, StateKeys: u.StateKeys, Topology: amqp.ExistingQueue(), Marshaler: publish.RabbitMQ{},
		})
	case brokerurl.SQS:
		own, err := u.AWS(ctx)
		if err != nil {
			return nil, err
		}
		return sqs.Open(ctx, sqs.Config{AWS: own, Endpoint: u.Endpoint(), Policy: s.policy, StateKeys: u.StateKeys, Sink: discardEvents, GroupID: publish.MessageGroup})
	case brokerurl.KafkaShare:
		return kafkashare.Open(ctx, kafkashare.Config{
			Brokers: u.Hosts, Group: cmp.Or(s.group, unusedGroup), Policy: s.policy, Sink: discardEvents, Options: u.Franz("redeliver-command"),
		})
	default:
		return newKafkaClient(ctx, u, s)
	}
}

// verifyPublish checks the address and the token for publishing.
func (p *processFlags) verifyPublish(env func(string) string, bad func(string, ...any)) {
	if p.publish == "" {
		return
	}
	var err error
	if p.token, err = sidecar.CheckAuthorization(env(envPublishToken)); err != nil {
		bad(envPublishToken+" %w", err)
	}
	if _, _, err := net.SplitHostPort(p.publish); err != nil {
		bad("--publish is %q: must be an address, as in 127.0.0.1:8082", p.publish)
	} else if p.token == "" && !brokerurl.Loopback(p.publish) {
		bad("--publish is %s, which others can reach: set a token in %s, or listen at 127.0.0.1", p.publish, envPublishToken)
	}
}

// plainToken warns of a token for publishing that other machines send unencrypted.
func (p *processFlags) plainToken() (warnings []string) {
	if p.publish != "" && p.token != "" && !brokerurl.Loopback(p.publish) {
		warnings = append(warnings, envPublishToken+" is sent without TLS to --publish, which is "+p.publish+": listen at 127.0.0.1, behind a proxy with TLS")
	}
	return warnings
}

// publishers are the clients of a process that publish. They are opened when they are needed.
type publishers struct {
	ctx context.Context
	all []*consumed

	mu   sync.Mutex
	open map[*consumed]*mq.Client
}

// find returns where a message for a topic goes: to the broker of the subscription that consumes the topic, or to the only broker.
func (p *publishers) find(topic string) (publish.Target, error) {
	i := slices.IndexFunc(p.all, func(s *consumed) bool { return slices.Contains(s.c.Topics, topic) })
	consumes := i >= 0
	if !consumes {
		i = 0
		for _, s := range p.all {
			if s.c.Broker.String() != p.all[0].c.Broker.String() {
				return publish.Target{}, fmt.Errorf("no subscription consumes %s, and they have more than one broker", topic)
			}
		}
	}
	s := p.all[i]
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open[s] == nil {
		c, err := openPublisher(p.ctx, s.c.Broker, setup{group: s.c.Group, policy: s.c.Policy})
		if err != nil {
			return publish.Target{}, fmt.Errorf("connecting to the broker: %s", inFlags(err))
		}
		p.open[s] = c
	}
	return publish.Target{Broker: s.c.Broker.Broker, Publisher: p.open[s].Publisher(), Delays: consumes}, nil
}

// servePublish lets programs publish until end is called.
func (a *app) servePublish(ctx context.Context, all []*consumed, p *processFlags) (at string, end func(), err error) {
	open := &publishers{ctx: context.WithoutCancel(ctx), all: all, open: make(map[*consumed]*mq.Client)}
	pages := http.NewServeMux()
	pages.Handle(publish.Path, &publish.Server{Find: open.find, Token: p.token})
	at, stop, err := listenFor(ctx, "--publish", p.publish, maxPublish, pages)
	if err != nil {
		return "", nil, err
	}
	return at, func() {
		stop()
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.maxClose())
		defer cancel()
		for _, c := range open.open {
			_ = c.Close(closing) // what was published is confirmed
		}
	}, nil
}

// publishFlags are the flags of publish.
type publishFlags struct {
	policy                                           policyFlags
	group, key, id, expires, file, contentType, kind string
	source                                           string
	headers                                          []string
	delay                                            time.Duration
}

func publishCommand(a *app) *cobra.Command {
	f := &publishFlags{}
	cmd := &cobra.Command{
		Use: "publish TOPIC", Short: "Publish a message, now or with a delay", Args: exactly("the name of a topic or queue"),
		Long: `Publish one message, whose body is the standard input or a file. The exit code is 0 when the
broker has confirmed it. After exit code 1 the broker may have it all the same: publish it again
with the id that the error names.

A message with --delay waits on the levels of its consumer: give that one's --group and policy.`,
		Example: `  redeliver publish orders --key customer-7 --body-file order.json --broker kafka://localhost:9092
  redeliver publish orders --group billing --delay 1h --body-file order.json --broker kafka://localhost:9092`,
		RunE: func(cmd *cobra.Command, args []string) error { return a.publishOne(cmd, args[0], f) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.file, "body-file", "-", "Read the body from this `file`, - for stdin")
	flags.StringVar(&f.key, "key", "", "Publish with this `key`; on SQS the message group. A RabbitMQ message has none")
	flags.StringArrayVar(&f.headers, "header", nil, "Publish with this header, `name=value`. Repeatable")
	flags.StringVar(&f.contentType, "content-type", "", "Publish with this content `type`, such as application/json")
	flags.StringVar(&f.id, "id", "", "Publish with this `id` (default a new one)")
	flags.DurationVar(&f.delay, "delay", 0, "Deliver the message after this `duration`")
	flags.StringVar(&f.expires, "expires", "", "Dead-letter the message instead of running it after this `time`: 2026-01-31T12:00:00Z, or 1h from now")
	flags.StringVar(&f.kind, "event-type", "", "Publish a CloudEvent of this `type`")
	flags.StringVar(&f.source, "event-source", "", "With --event-type: the event's `source` (default /TOPIC)")
	grouped(flags, groupSubscription, func(flags *pflag.FlagSet) {
		flags.StringVar(&f.group, "group", "", "Kafka, with --delay: the consumer `group` on whose levels the message waits")
	})
	f.policy.flags(cmd)
	return cmd
}

// publishOne publishes a message.
func (a *app) publishOne(cmd *cobra.Command, topic string, f *publishFlags) error {
	u, err := a.conn.url(a.Env)
	if err != nil {
		return err
	}
	m := &publish.Message{Topic: topic, ID: f.id, ContentType: f.contentType, Headers: make(map[string]string), Delay: f.delay}
	if cmd.Flags().Changed("key") {
		m.Key = []byte(f.key)
	}
	for _, h := range f.headers {
		name, value, ok := strings.Cut(h, "=")
		if !ok || name == "" {
			return usagef("--header is %q: must be name=value", h)
		}
		m.Headers[name] = value
	}
	if f.expires != "" {
		if m.Expires, err = publish.ParseExpires(f.expires, time.Now()); err != nil {
			return usagef("--expires: %w", err)
		}
	}
	if f.kind != "" {
		m.Event(f.kind, cmp.Or(f.source, "/"+topic))
	}
	to := setup{group: cmp.Or(f.group, a.conn.loaded.Group)}
	if u.Broker.HasGroups() && f.delay > 0 && to.group == "" {
		return missing("--group", "the consumer group on whose levels the message waits")
	}
	if to.policy, err = f.policy.policy(cmd.Flags()); err != nil {
		return err
	}
	in := a.In
	if f.file != "-" {
		file, err := os.Open(f.file)
		if err != nil {
			return usagef("--body-file: %w", err)
		}
		defer file.Close()
		in = file
	}
	if m.Body, err = io.ReadAll(in); err != nil {
		return failed(codeFailed, "reading the body: %w", err)
	}
	c, err := openPublisher(cmd.Context(), u, to)
	if err != nil {
		return brokerError(a.conn.withAddress(err))
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(cmd.Context()), a.maxClose())
		defer cancel()
		_ = c.Close(closing) // what was published is confirmed
	}()
	id, err := publish.Target{Broker: u.Broker, Publisher: c.Publisher(), Delays: true}.Publish(m)
	if invalid, ok := errors.AsType[*publish.InvalidError](err); ok {
		return usagef("%w", invalid)
	}
	if err != nil {
		return failed(codeFailed, "the broker has not confirmed message %s, and may have it all the same; publish it again with this --id: %w", m.ID, err)
	}
	row := publishedRow{ID: id, Topic: topic}
	return a.printOne(row, func(t *details) {
		t.line("id", row.ID)
		t.line("topic", row.Topic)
	})
}
