package cli

import (
	"cmp"
	"errors"
	"net"
	"net/url"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/cmd/redeliver/internal/sidecar"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/delayqueue"
	"github.com/redeliver/redeliver/internal/brokerurl"
)

// readRun reads the flags. All that is wrong with them is in one error.
func (a *app) readRun(cmd *cobra.Command, f *runFlags) (c sidecar.Config, _ error) {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, usagef(format, args...)) }
	var err error
	if c.Broker, err = a.conn.url(a.Env); err != nil {
		errs = append(errs, err)
	}
	c.Policy, err = f.policy.policy(cmd.Flags())
	if f.guards.read(&c.Policy); err != nil {
		errs = append(errs, err)
	} else if err = c.Policy.Validate("Policy"); err != nil {
		errs = append(errs, err)
	}
	c.Policy.Supersede = f.supersede
	f.checkWhat(&c, a.conn.read.Group, bad)
	f.checkHandler(cmd.ArgsLenAtDash(), bad)
	if f.url != "" {
		if f.authorization, err = sidecar.CheckAuthorization(a.Env(envAuthorization)); err != nil {
			bad(envAuthorization+" %w", err)
		}
	}
	f.webhook.check(a.Env, bad)
	f.checkHow(&c, bad)
	if len(errs) > 0 {
		return c, usagef("%w", errors.Join(errs...))
	}
	return c, nil
}

// checkWhat reads what is consumed.
func (f *runFlags) checkWhat(c *sidecar.Config, group string, bad func(string, ...any)) {
	c.Topics, c.Instance, c.KeyHeader, c.NoProvisioning = f.topics, f.instance, f.keyHeader, f.noProvisioning
	if len(f.topics) == 0 {
		bad("which topic, or queue? give --topic")
	}
	for i, t := range f.topics {
		if t == "" {
			bad("--topic is empty")
		}
		for _, other := range f.topics[:i] {
			if t == other {
				bad("--topic %s stands twice", t)
			}
		}
	}
	switch c.Broker.Broker {
	case "": // it is refused anyway
	case brokerurl.Kafka:
		if c.Group = cmp.Or(f.group, group); c.Group == "" {
			bad("which group? give --group")
		}
		if c.DeadLetterHeaders = deadletter.Dialect(f.deadHeaders); !c.DeadLetterHeaders.Known() {
			bad("--dead-letter-headers is %q: it must be one of %q", f.deadHeaders, deadletter.Dialects())
		}
		if f.keyHeader != "" {
			bad("--key-header is %q: a record of Kafka has its key; leave it out", f.keyHeader)
		}
	default:
		if f.group != "" {
			bad("--group is %q: only Kafka has consumer groups, elsewhere the queue is the group; leave it out", f.group)
		}
		if f.deadHeaders != "" {
			bad("--dead-letter-headers is %q: they are written on Kafka alone; leave it out", f.deadHeaders)
		}
		if f.instance != "" {
			bad("--instance-id is %q: only Kafka has members; leave it out", f.instance)
		}
		switch {
		case f.keyHeader != "" && c.Broker.Broker == brokerurl.SQS:
			bad("--key-header is %q: SQS has message groups; leave it out", f.keyHeader)
		case f.keyHeader == "" && c.Broker.Broker == brokerurl.RabbitMQ && c.Policy.Order == redeliver.PerKey:
			bad("--order PerKey wants --key-header: RabbitMQ's messages have no key of their own")
		}
	}
}

// checkHandler reads who handles it. dash is how many arguments stand before --, or -1
// where there is none.
func (f *runFlags) checkHandler(dash int, bad func(string, ...any)) {
	switch {
	case f.exec && f.url != "":
		bad("--http and --exec are two handlers: leave one out")
	case !f.exec && f.url == "":
		bad("who handles the messages? give --http URL, or --exec and a command behind --")
	case !f.exec && len(f.argv) > 0:
		bad("%q is too much: a command stands behind --exec --", redeliver.Redact(f.argv[0]))
	case f.exec && (len(f.argv) == 0 || dash != 0):
		bad("--exec wants a command behind --: --exec -- ./charge --fast")
	}
	if f.exec && (f.events || f.batch > 0) {
		bad("--cloudevents and --batch are for --http: a command gets one message, as it is")
	}
	if f.events && f.batch > 0 {
		bad("--cloudevents and --batch are two forms of a post: leave one out")
	}
	if f.eventType == "" {
		bad("--event-type is empty: every event has a type")
	}
	if f.url != "" {
		u, err := url.Parse(f.url)
		if err == nil {
			err = sidecar.CheckURL(u)
		} else {
			err = errors.New("must be http://host:port/path, or https") // not what url.Parse repeats
		}
		if err != nil {
			bad("--http is %s: %w", redeliver.RedactAddress(f.url), err)
		}
		f.to = u
	}
}

// checkHow reads how many at once, and for how long.
func (f *runFlags) checkHow(c *sidecar.Config, bad func(string, ...any)) {
	least := func(name string, n int) {
		if n < 0 {
			bad("--%s is %d: must be 1 or more, or 0 for the default", name, n)
		}
	}
	least("concurrency", f.concurrency)
	least("retry-concurrency", f.retries)
	if f.batch < 0 || f.batchBytes < 0 || f.batchWait < 0 {
		bad("--batch, --batch-wait and --batch-bytes must not be negative")
	}
	if f.batch > mostBatch {
		bad("--batch is %d: must be %d or less, a post is made in memory", f.batch, mostBatch)
	}
	if f.batchBytes > mostBytes {
		bad("--batch-bytes is %d: must be %d or less, a post is made in memory", f.batchBytes, mostBytes)
	}
	if f.batch == 0 && (f.batchBytes != defaultBytes || f.batchWait != delayqueue.DefaultBatchTimeout) {
		bad("--batch-wait and --batch-bytes are of batches: give --batch, too")
	}
	if f.batch > 0 && f.retries != 0 {
		bad("--retry-concurrency is not of batches: a batch has first deliveries and retries; leave it out")
	}
	if c.Drain = f.drain; f.drain <= 0 {
		bad("--drain is %s: must be longer than nothing", f.drain)
	}
	if f.log != "text" && f.log != "json" {
		bad("--log is %q: it must be text or json", f.log)
	}
	if f.metrics && f.health == "" {
		bad("--metrics is served at --health: give that, too")
	}
	if f.health != "" {
		if _, _, err := net.SplitHostPort(f.health); err != nil {
			bad("--health is %q: it must be an address, :8081 or 127.0.0.1:8081", f.health)
		}
	}
	if f.batch > 0 {
		c.Batch = delayqueue.BatchConfig{Size: f.batch, Bytes: cmp.Or(f.batchBytes, defaultBytes), Timeout: f.batchWait, Concurrency: cmp.Or(f.concurrency, 1)}
		if f.batchWait == 0 {
			c.Batch.Timeout = delayqueue.NoWait
		}
		// One batch gathers while the others run.
		c.InFlight = (c.Batch.Concurrency + 1) * c.Batch.Size
		c.RetriesInFlight = c.InFlight
		return
	}
	at := defaultPosts
	if f.exec {
		at = runtime.GOMAXPROCS(0)
	}
	c.InFlight = cmp.Or(f.concurrency, at)
	c.RetriesInFlight = cmp.Or(f.retries, c.InFlight)
}
