package cli

import (
	"cmp"
	"net"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/cmd/redeliver/internal/credentials"
	"github.com/redeliver/redeliver/cmd/redeliver/internal/sidecar"
	"github.com/redeliver/redeliver/internal/brokerurl"
)

// readRun returns the configuration of a subscription's flags, and all problems. dash is the number of arguments before
// --, or -1 if there is no --.
func (a *app) readRun(f *runFlags, given *pflag.FlagSet, dash int) (c sidecar.Config, errs []error) {
	c.MaxCancel = a.MaxClose
	bad := func(format string, args ...any) { errs = append(errs, usagef(format, args...)) }
	var err error
	if c.Broker, err = a.conn.url(a.Env); err != nil {
		errs = append(errs, err)
	}
	if c.Policy, err = f.policy.policy(given); err != nil {
		errs = append(errs, err)
	}
	c.Policy.MaxTimeout, c.Policy.Classify = f.maxTimeout, sidecar.Classify
	f.guards.setFields(&c.Policy)
	if err = c.Policy.Validate("Policy"); err != nil {
		errs = append(errs, err)
	}
	f.checkWhat(&c, a.conn.loaded.Group, bad)
	f.checkHandler(dash, bad)
	if f.url != "" {
		if f.authorization, err = sidecar.CheckAuthorization(a.Env(envAuthorization)); err != nil {
			bad(envAuthorization+" %w", err)
		}
	}
	f.webhook.check(a.Env, bad)
	c.Filter = f.skip.filter(c.Broker.Broker, bad)
	f.dedup.check(a.Env, bad)
	c.DedupTTL = f.dedup.ttl
	f.checkHow(&c, bad)
	return c, errs
}

// verify checks the flags of the process.
func (p *processFlags) verify(env func(string) string, bad func(string, ...any)) {
	p.verifyPublish(env, bad)
	if err := mustBeOneOf("log", p.log, logFormats); err != nil {
		bad("%w", err)
	}
	if p.metrics && p.health == "" {
		bad("--metrics needs --health, the address that serves /metrics")
	}
	if p.health != "" {
		if _, _, err := net.SplitHostPort(p.health); err != nil {
			bad("--health is %q: must be an address, as in :8081 or 127.0.0.1:8081", p.health)
		}
	}
}

// checkWhat checks the topics and their group.
func (f *runFlags) checkWhat(c *sidecar.Config, group string, bad func(string, ...any)) {
	c.Topics, c.Instance, c.KeyHeader, c.NoProvisioning = f.topics, f.instance, f.keyHeader, f.noProvisioning
	if c.DLQ.Retention = f.retention; f.retention < 0 {
		bad("--retention is %s: must be at least 1m, or 0 for the default", f.retention)
	}
	if len(f.topics) == 0 {
		bad("%w", missing("--topic", "the topic or queue"))
	}
	for i, t := range f.topics {
		switch {
		case t == "":
			bad("--topic is empty")
		case slices.Contains(f.topics[:i], t):
			bad("--topic %s is given twice: omit one", t)
		}
	}
	switch c.Broker.Broker {
	case "": // already reported
	case brokerurl.Kafka, brokerurl.KafkaShare:
		if c.Group = cmp.Or(f.group, group); c.Group == "" {
			bad("%w", missing("--group", "the consumer group or share group"))
		}
		c.SpringHeaders, c.SkipExisting = f.springHeaders, f.skipExisting
		if f.keyHeader != "" {
			bad("--key-header is %q: a Kafka record has a key; omit --key-header", f.keyHeader)
		}
		if c.Broker.Broker == brokerurl.KafkaShare {
			f.checkShare(c.Policy.Order, bad)
		}
	default:
		if f.group != "" {
			bad("--group is %q: only Kafka has consumer groups; omit --group", f.group)
		}
		if f.springHeaders {
			bad("--spring-headers: only Kafka supports it; omit --spring-headers")
		}
		if f.skipExisting {
			bad("--skip-existing: only Kafka supports it; omit --skip-existing")
		}
		if f.instance != "" {
			bad("--instance-id is %q: only Kafka supports it; omit --instance-id", f.instance)
		}
		switch {
		case f.keyHeader != "" && c.Broker.Broker == brokerurl.SQS:
			bad("--key-header is %q: SQS uses message groups; omit --key-header", f.keyHeader)
		case f.keyHeader == "" && c.Broker.Broker == brokerurl.RabbitMQ && c.Policy.Order == redeliver.OrderThroughRetries:
			bad("--order through-retries needs --key-header, because RabbitMQ messages have no key")
		}
	}
}

// checkShare refuses what a share group cannot do.
func (f *runFlags) checkShare(order redeliver.Order, bad func(string, ...any)) {
	if order == redeliver.OrderBlocking || order == redeliver.OrderThroughRetries {
		bad("--order is %s: a share group keeps no order; omit --order, or consume with kafka://", orderNames[order])
	}
	if f.instance != "" {
		bad("--instance-id is %q: a share group has no static members; omit --instance-id", f.instance)
	}
	if f.springHeaders {
		bad("--spring-headers: only consumer groups support it; omit --spring-headers")
	}
	if f.skipExisting {
		bad("--skip-existing: set share.auto.offset.reset=latest for the share group instead; omit --skip-existing")
	}
	if f.retention > 0 {
		bad("--retention is %s: set retention.ms of the DLQ's topic instead; omit --retention", f.retention)
	}
}

// checkHandler checks the handler's flags. dash is the number of arguments before --, or -1 if there is no --.
func (f *runFlags) checkHandler(dash int, bad func(string, ...any)) {
	switch {
	case f.exec && f.url != "":
		bad("--http and --exec exclude each other: omit one")
	case !f.exec && f.url == "":
		bad("no handler given: give --http URL, or --exec -- COMMAND")
	case !f.exec && len(f.argv) > 0:
		bad("unexpected argument %q: a command is written as --exec -- COMMAND", redeliver.Redact(f.argv[0]))
	case f.exec && (len(f.argv) == 0 || dash != 0):
		bad("--exec needs a command after --, as in --exec -- ./charge --fast")
	}
	var err error
	if f.statuses, err = sidecar.ParseStatuses(f.status, f.exec); err != nil {
		bad("--status %w", err)
	}
	if f.exec && (f.events || f.batch > 0) {
		bad("--cloudevents and --batch need --http: a command gets one unchanged message")
	}
	if f.events && f.batch > 0 {
		bad("--cloudevents and --batch exclude each other: omit one")
	}
	if f.eventType == "" {
		bad("--event-type is empty: every CloudEvent has a type")
	}
	f.checkCredentials(bad)
	if f.url != "" {
		if f.to, err = sidecar.ParseURL(f.url, envAuthorization); err != nil {
			bad("--http is %s: %w", redeliver.RedactAddress(f.url), err)
		}
	}
}

// checkCredentials reads the files with which the handler is asked.
func (f *runFlags) checkCredentials(bad func(string, ...any)) {
	var err error
	if f.bearerFile != "" {
		if f.bearer, err = credentials.NewBearer(f.bearerFile); err != nil {
			bad("--bearer-file: %w", err)
		}
	}
	if f.certFile+f.keyFile+f.caFile != "" {
		if f.tls, err = credentials.TLS(f.certFile, f.keyFile, f.caFile); err != nil {
			bad("--client-cert, --client-key and --ca-file: %w", err)
		}
	}
	if f.exec && (f.bearerFile != "" || f.tls != nil) {
		bad("--bearer-file, --client-cert and --ca-file need --http: a command gets no request")
	}
	if f.tls != nil && strings.HasPrefix(f.url, "http:") {
		bad("--http is not https://: --client-cert and --ca-file need TLS")
	}
}

// checkHow checks how many messages are handled at once, and for how long.
func (f *runFlags) checkHow(c *sidecar.Config, bad func(string, ...any)) {
	notNegative := func(name string, n int) {
		if n < 0 {
			bad("--%s is %d: must be 1 or more, or 0 for the default", name, n)
		}
	}
	notNegative("concurrency", f.concurrency)
	notNegative("retry-concurrency", f.retries)
	notNegative("min-concurrency", f.fewest)
	if f.batch < 0 || f.batchBytes < 0 || f.batchWait < 0 {
		bad("--batch, --batch-wait and --batch-bytes must be 0 or more")
	}
	if f.batch > maxBatch {
		bad("--batch is %d: must be at most %d, because a batch is built in memory", f.batch, maxBatch)
	}
	if f.batchBytes > maxBatchBytes {
		bad("--batch-bytes is %d: must be at most %d, because a batch is built in memory", f.batchBytes, maxBatchBytes)
	}
	if f.batch == 0 && (f.batchBytes != defaultBytes || f.batchWait != redeliver.DefaultBatchTimeout) {
		bad("--batch-wait and --batch-bytes need --batch")
	}
	if f.batch > 0 && f.retries != 0 {
		bad("--retry-concurrency and --batch exclude each other, because a batch contains first deliveries and retries: omit one")
	}
	if c.Drain = f.drain; f.drain <= 0 {
		bad("--drain is %s: must be more than 0", f.drain)
	}
	if f.batch > 0 {
		c.Batch = redeliver.BatchConfig{Size: f.batch, Bytes: cmp.Or(f.batchBytes, defaultBytes), Timeout: f.batchWait, Concurrency: cmp.Or(f.concurrency, 1)}
		if f.batchWait == 0 {
			c.Batch.Timeout = redeliver.NoWait
		}
		// One batch fills while the others run.
		c.InFlight = (c.Batch.Concurrency + 1) * c.Batch.Size
		c.RetriesInFlight, c.MinInFlight = c.InFlight, f.fewest*c.Batch.Size
		f.checkFewest(c.Batch.Concurrency, bad)
		return
	}
	at := defaultPosts
	if f.exec {
		at = runtime.GOMAXPROCS(0)
	}
	c.InFlight = cmp.Or(f.concurrency, at)
	c.RetriesInFlight, c.MinInFlight = cmp.Or(f.retries, c.InFlight), f.fewest
	f.checkFewest(c.InFlight, bad)
}

// checkFewest checks --min-concurrency.
func (f *runFlags) checkFewest(most int, bad func(string, ...any)) {
	if f.fewest > most {
		bad("--min-concurrency is %d: must be at most --concurrency, %d", f.fewest, most)
	}
}
