package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"
)

// row is one row of the benchmarks' table.
type row struct {
	name, what, target string
	system             system
	run                func(context.Context, *experiment) error
}

// MaxInFlight of our side where a row is not about the default.
const (
	defaultInFlight = 100 // kafka.DefaultMaxInFlight
	manyInFlight    = 500 // for handlers that wait, and for failures, which are in flight until their next hop is confirmed
)

// noTarget is the target of a row that only shows something.
const noTarget = "none"

// rows are set in init, because find refers to them.
var rows []row

func init() { //nolint:gochecknoinits // The rows call what looks rows up.
	rows = []row{
		{"subscribe", "our Subscriber and Ack in a plain loop against watermill-kafka's, 500,000 preloaded", "1.2x, in no more CPU per message", onKafka, subscribeRow},
		{"router", "Router and our Retry, all succeed, against Router, Watermill's Retry and PoisonQueue, 500,000 preloaded", "2x", onKafka, routerRow},
		{"slow", "the same with a handler that waits 5 ms, 10,000 keys, 40,000 against 2,000 messages", "50x", onKafka, slowRow},
		{"observed", "Router and our Retry with Prometheus metrics and an OpenTelemetry tracer that samples nothing, against the same without, all succeed, 500,000 preloaded", "0.9x", onKafka, observedRow},
		{"fail-all", "100,000 preloaded always fail: 3 retries of 1 s, then the DLQ", "15,000 msg/s", onKafka, failAllRow},
		{"spring-fail-all", "the same with 60,000 against Spring Kafka's @RetryableTopic, tuned, with a thread and with four", "10x of the best", onKafka, springFailAllRow},
		{"spring-fail-all-defaults", "the same with 100 against Spring Kafka's @RetryableTopic with its defaults", "10x", onKafka, springDefaultsRow},
		{"spring-consume", "Router and our Retry, all succeed, against Spring Kafka's @RetryableTopic with a thread and with one for each partition, 100,000 preloaded", "1x of the better", onKafka, springConsumeRow},
		{"spring-lateness", "due to handler entry, level 1 s, steady 500 failing messages/s for 25 s, 3 retries each, the first 5 s not counted, against Spring Kafka's @RetryableTopic, tuned", "p99 10 ms", onKafka, springLatenessRow},
		{"rocketmq-consume", "Router and our Retry on Kafka, all succeed, against RocketMQ's push consumer, tuned and with its defaults, 100,000 preloaded", "1x of the better", onKafka, besideRocket(rocketConsume, 100_000)},
		{"rocketmq-fail-all", "60,000 preloaded always fail: 3 retries of 1 s, then the DLQ, ours on Kafka against RocketMQ, tuned and with its defaults", "3x of the better", onKafka, besideRocket(rocketFailAll, 60_000)},
		{"rocketmq-lateness", "due to handler entry, level 1 s, steady 2,000 failing messages/s for 25 s, 3 retries each, the first 5 s not counted, ours on Kafka against RocketMQ, tuned and with its defaults", "p99 10 ms", onKafka, besideRocket(rocketLateness, 0)},
		{"fail-some", "100,000 preloaded, 5 % fail once and are retried after 1 s, until all have succeeded", "50,000 msg/s", onKafka, failSomeRow},
		{"lateness", "due to handler entry, level 1 s, steady 2,000 and 5,000 failing messages/s for 20 s, 3 retries each", "p99 10 ms, never early", onKafka, latenessRow},
		{"lateness-jitter", "the same with 1 s plus a jitter of 0 to 1 s at 2,000/s", "p99 10 ms, never early", onKafka, jitterRow},
		{"waiting", "1,000,000 messages waiting on a level of 1 h, consumer watched for 30 s", "40 MiB resident", onKafka, waitingRow},
		{"replay", "1,000,000 dead letters replayed, no filter", "50,000 msg/s", onKafka, replayRow(false)},
		{"replay-filtered", "1,000,000 dead letters, of which a filter takes 1 %", "200,000 msg/s looked at", onKafka, replayRow(true)},
		{"console", "the console's home page, 10 DLQs of 100,000 messages, asked for ten times a second while it reads them, too", "first byte 200 ms, 100 MiB, 150 kB", onKafka, consoleRow},
		{"kill", "SIGKILL of a consumer at 2,000 failing/s, restarted at once, static membership", "0 lost, duplicates bounded, at work within 1 s", onKafka, killRow},
		{"per-key", "Router and our Retry, OrderThroughRetries against OrderFirstAttempts, 1,000,000 keys, 1 % fail once and are retried after 1 s, 500,000 preloaded", "0.7x", onKafka, perKeyRow},
		{"batch", "Router with Batch of 100 against the Router without Batch, our Retry in both, all succeed, 500,000 preloaded", "1.0x", onKafka, batchRow},
		{"batch-keys-1", "batches of 100 of one key, with Batch and our Retry, a handler that takes 50 ms a batch, OrderFirstAttempts against OrderNone, 10,000 preloaded", noTarget, onKafka, batchKeysRow(1, failing{}, 0)},
		{"batch-keys-5", "the same with 5 keys", "0.9x", onKafka, batchKeysRow(5, failing{}, 0.9)},
		{"batch-keys-50", "the same with 50 keys", noTarget, onKafka, batchKeysRow(50, failing{}, 0)},
		{"batch-keys-10000", "the same with 10,000 keys", noTarget, onKafka, batchKeysRow(keyCount, failing{}, 0)},
		{"batch-keys-fail-1", "the same with one key, 10 % fail once and are retried after 100 ms", noTarget, onKafka, batchKeysRow(1, tenth, 0)},
		{"batch-keys-fail-5", "the same with 5 keys", "0.7x", onKafka, batchKeysRow(5, tenth, 0.7)},
		{"batch-keys-fail-50", "the same with 50 keys", noTarget, onKafka, batchKeysRow(50, tenth, 0)},
		{"batch-keys-fail-10000", "the same with 10,000 keys", noTarget, onKafka, batchKeysRow(keyCount, tenth, 0)},
		{"batch-latency", "from a batch's tenth message to its function, batches of 10, steady 2,000 messages/s for 20 s", "p99 5 ms", onKafka, batchLatencyRow},
		{"consume", "kafka.Consume against a raw sarama consumer with a pool of workers, all succeed, 500,000 preloaded", "0.95x", onKafka, consumeRow(pooled, 0.95)},
		{"consume-called", "the same against one that calls its handler itself, one record of a partition at a time", "0.85x", onKafka, consumeRow(called, 0.85)},
		{"consume-franz", "the same against a raw franz-go consumer that calls its handler itself", "0.5x", onKafka, consumeFranzRow},
		{"consume-fail-all", "100,000 preloaded always fail through kafka.Consume: 3 retries of 1 s, then the DLQ", "20,000 msg/s", onKafka, consumeFailAllRow},
		{"floor-fail-all", "100,000 preloaded always fail: 3 retries of 1 s, then the DLQ, through kafka.Consume and through the Router, against the smallest program by hand on sarama that does the same writes", "drop-in 0.95x in 1.2x the CPU, Router 0.75x in 1.6x", onKafka, floorFailAllRow},
		{"floor-consume", "500,000 preloaded that all succeed, the same", "drop-in 0.95x", onKafka, floorConsumeRow},
		{"share-success-1", "share group against kafka, a process each, all succeed, 30,000", noTarget, onKafka, shareSuccessRow(1)},
		{"share-success-4", "the same in 4 processes each", noTarget, onKafka, shareSuccessRow(4)},
		{"share-success-16", "the same in 16 processes each", noTarget, onKafka, shareSuccessRow(16)},
		{"share-fail-all", "share group against kafka, 4 processes each, 20,000 always fail: 3 retries of 1 s, then the DLQ", noTarget, onKafka, shareFailAllRow},
		{"share-lateness", "share group against kafka, 4 processes each: due to handler entry, level 1 s, steady 500 failing messages/s for 10 s, 3 retries each", "never early", onKafka, shareLatenessRow},
		{"share-kill", "share group against kafka: SIGKILL of one of 4 processes at 1,000 messages/s, handlers take 20 ms", noTarget, onKafka, shareKillRow},
		{"run-http", "redeliver run --http, the command with its defaults, and a handler that answers at once, a process each, 100,000 preloaded", "10,000 msg/s", onKafka, runHTTPRow},
		{"grow-waiting", "1,000 to 1,000,000 messages that wait on a level of 1 m and all fall due at one time, until all have succeeded", noTarget, onKafka, growWaitingRow},
		{"grow-size", "4,000 to 50,000 preloaded always fail: 3 retries of 1 s, then the DLQ; values of 100 B to 100 KiB", noTarget, onKafka, growSizeRow},
		{"grow-partitions", "60,000 preloaded always fail: 3 retries of 1 s, then the DLQ; 1 to 64 partitions", noTarget, onKafka, growPartitionsRow},
		{"grow-groups", "1 to 64 groups, a process each, fail every message of one topic: 3 retries of 1 s, then the DLQ; 64,000 failures in all groups together", noTarget, onKafka, growGroupsRow},
		{"rabbit-grow-waiting", "RabbitMQ: 1,000 to 100,000 messages that wait on a level of 1 m and all fall due at one time, until all have succeeded", noTarget, onRabbit, rabbitGrowWaitingRow},
		{"rabbit-consume", "RabbitMQ: amqp.Consume against raw amqp091-go that acks with multiple, prefetch 1,000, 100,000 preloaded", "0.9x", onRabbit, rabbitConsumeRow},
		{"rabbit-subscribe", "RabbitMQ: our Subscriber and Ack in a plain loop against watermill-amqp's, prefetch 100, 100,000 preloaded", "1.5x, 40 MiB", onRabbit, rabbitSubscribeRow},
		{"rabbit-fail-all", "RabbitMQ: 20,000 preloaded always fail: 3 retries of 1 s, then the DLQ, against grmq, prefetch 100", "1.3x, 40 MiB", onRabbit, rabbitFailAllRow},
		{"rabbit-lateness", "RabbitMQ: due to handler entry, level 1 s, steady 500 failing messages/s for 20 s, 3 retries each", "p99 20 ms, never early, 40 MiB", onRabbit, rabbitLatenessRow},
		{"rabbit-backlog", "RabbitMQ: the same while 100,000 messages wait in the queue of a slow consumer, 1 % failing", "p99 30 ms, never early, 40 MiB", onRabbit, rabbitBacklogRow},
		{"rabbit-level", "RabbitMQ: the rate at which the broker hands on messages of one delay queue, of a level of 61 s; 40,000 messages due at once", "2,500 msg/s, which Plan says", onRabbit, rabbitLevelRow},
		{"sqs-subscribe", "SQS: our Subscriber and Ack in a plain loop against watermill-aws's, 50,000 against 2,000 preloaded", "10x", onSQS, sqsSubscribeRow(sideConfig{side: peer, name: "watermill-aws", messages: 2_000}, 50_000, 10)},
		{"sqs-subscribe-ten", "the same against watermill-aws with ten workers, 50,000 against 10,000", "3x", onSQS, sqsSubscribeRow(sideConfig{side: tenWorkers, name: "watermill-aws, ten workers", messages: 10_000}, 50_000, 3)},
		{"sqs-bare", "the same against the bare SDK, receive 10 and delete 10, with as many pollers as ours, 50,000 each", "0.9x", onSQS, sqsSubscribeRow(sideConfig{side: bare, name: "bare SDK", messages: 50_000}, 50_000, 0.9)},
		{"sqs-requests", "SQS: requests per message that succeeds, and per retry, 50,000 preloaded", "0.22 and 0.45", onSQS, sqsRequestsRow},
		{"sqs-lateness", "SQS: due to handler entry, delay 1 s, steady 500 failing messages/s for 20 s, 3 retries each", "p99 1.2 s, never early", onSQS, sqsLatenessRow},
	}
}

func find(name string) *row {
	i := slices.IndexFunc(rows, func(r row) bool { return r.name == name })
	if i < 0 {
		return nil
	}
	return &rows[i]
}

// beginning returns the rows whose names begin with a prefix that ends in a dash.
func beginning(prefix string) (names []string) {
	if !strings.HasSuffix(prefix, "-") {
		return nil
	}
	for _, r := range rows {
		if strings.HasPrefix(r.name, prefix) {
			names = append(names, r.name)
		}
	}
	return names
}

// experiment is a row that is being run.
type experiment struct {
	row      *row
	options  options
	system   system
	broker   broker   // nil for a row without one
	cluster  *cluster // the broker, where it is Kafka
	progress io.Writer
	result   *rowResult
}

func (e *experiment) problemf(format string, args ...any) {
	e.result.Problems = append(e.result.Problems, fmt.Sprintf(format, args...))
}

func (e *experiment) notef(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if !slices.Contains(e.result.Notes, text) {
		e.result.Notes = append(e.result.Notes, text)
	}
}

func (e *experiment) sayf(format string, args ...any) {
	fmt.Fprintf(e.progress, "%s %s: %s\n", time.Now().Format(time.TimeOnly), e.row.name, fmt.Sprintf(format, args...))
}

// scaled is a number of messages: a multiple of 20, so that 5 % of it is whole.
func (e *experiment) scaled(n int) int { return max(400, int(float64(n)*e.options.scale)/20*20) }

// lasting is a duration, at least a few seconds.
func (e *experiment) lasting(d time.Duration) time.Duration {
	return max(4*time.Second, time.Duration(float64(d)*e.options.scale))
}

// spec returns a side's spec for a run, with what all rows have in common.
func (e *experiment) spec(s side, n names, run, inFlight int) spec {
	if e.options.inFlight > 0 {
		inFlight = e.options.inFlight
	}
	return spec{
		Job: consume, Side: s, System: e.system, Brokers: e.broker.addresses(), Topic: n.topic, Group: n.group(s), InFlight: inFlight,
		Profile: e.options.profileName(e.row.name, s, run),
	}
}

// record keeps what a run measured.
func (e *experiment) record(s side, run int, out *outcome) {
	e.result.Outcomes = append(e.result.Outcomes, measured{s, run, out})
	if out.Settings != "" {
		e.result.setting(s, out.Settings)
	}
}

// perMillion is the CPU seconds of a million messages.
func perMillion(out *outcome, messages int) float64 { return out.CPU / float64(messages) * 1e6 }

func mib(bytes int64) float64 { return float64(bytes) / (1 << 20) }

// sideConfig says what a side of a comparison is called, how much it does, and what it must reach.
type sideConfig struct {
	side     side
	name     string
	label    string // distinguishes its ratio from those of our other sides
	messages int
	ratio    float64 // the target, against the peer; 0 for none
	cpu      *target // of the ratio of the CPU, where it is not the comparison's
}

// comparison is a row that runs our side, or several of ours, and a peer in turn.
type comparison struct {
	ours     []sideConfig
	peer     sideConfig
	cpu      *target // of the ratio of the CPU
	memory   *target // of our side
	within   time.Duration
	spec     func(*spec)
	inFlight int
}

// compare runs each side once per run, beginning with another side each time, and records the figures.
func (e *experiment) compare(ctx context.Context, c comparison) error {
	all := append(slices.Clone(c.ours), c.peer)
	for run := range e.options.runs + 1 {
		first := run % len(all)
		outs, err := e.round(ctx, c, slices.Concat(all[first:], all[:first]), run)
		if err != nil {
			return err
		}
		if run == 0 || len(outs) < len(all) {
			continue // the warm-up, or a side that was not verified
		}
		e.addFigures(c, all, outs)
	}
	return nil
}

// addFigures records the figures of one round.
func (e *experiment) addFigures(c comparison, all []sideConfig, outs map[side]*outcome) {
	rate := make(map[side]float64)
	cpu := make(map[side]float64)
	for _, k := range all {
		rate[k.side] = float64(k.messages) / outs[k.side].Seconds
		cpu[k.side] = perMillion(outs[k.side], k.messages)
		e.add(k.name, "msg/s", nil, rate[k.side])
	}
	for _, k := range c.ours {
		var least *target
		if k.ratio > 0 {
			least = atLeast(k.ratio)
		}
		e.add("ratio"+k.label, "x", least, rate[k.side]/rate[c.peer.side])
	}
	for _, k := range all {
		e.add("CPU per million, "+k.name, "s", nil, cpu[k.side])
	}
	for _, k := range c.ours {
		e.add("ratio of CPU"+k.label, "x", cmp.Or(k.cpu, c.cpu), cpu[k.side]/cpu[c.peer.side])
	}
	for _, k := range all {
		memory := c.memory
		if k.side == c.peer.side {
			memory = nil
		}
		e.add("peak memory, "+k.name, "MiB", memory, mib(outs[k.side].PeakRSS))
	}
	for _, k := range all {
		e.add("Subscribe to first message, "+k.name, "s", nil, outs[k.side].Joined)
	}
}

func (e *experiment) add(name, unit string, t *target, v float64) {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		e.problemf("%s: %g is not a number", name, v)
		return
	}
	f := e.result.figure(name, unit, t)
	f.Runs = append(f.Runs, v)
}

// round runs each side once. On Kafka, sides that handle the same number of messages read the same topic. Messages read
// from a queue are gone, so elsewhere each has its own. An unverified side is missing from the result.
func (e *experiment) round(ctx context.Context, c comparison, order []sideConfig, run int) (map[side]*outcome, error) {
	type source struct {
		side     side
		messages int
	}
	from := func(k sideConfig) source {
		if e.system != onKafka {
			return source{k.side, k.messages}
		}
		return source{messages: k.messages}
	}
	outs := make(map[side]*outcome)
	topics := make(map[source]names)
	loaded := make(map[source]written)
	defer func() {
		for _, n := range topics {
			if err := e.broker.drop(context.WithoutCancel(ctx), n); err != nil {
				e.problemf("dropping %s: %v", n.topic, err)
			}
		}
	}()
	for _, k := range order {
		there, ok := topics[from(k)]
		if !ok {
			fresh, err := e.broker.fresh(ctx, e.row.name)
			if err != nil {
				return nil, err
			}
			there, topics[from(k)] = fresh, fresh
		}
		sp := e.spec(k.side, there, run, c.inFlight)
		sp.Messages = k.messages
		if c.spec != nil {
			c.spec(&sp)
		}
		if !ok {
			if err := e.prepare(ctx, sp); err != nil {
				return nil, err
			}
			w, err := e.broker.preload(ctx, there.topic, k.messages)
			if err != nil {
				return nil, err
			}
			loaded[from(k)] = w
		}
		p, err := spawn(sp)
		if err != nil {
			return nil, err
		}
		out, err := p.await(ctx, c.within)
		if err != nil {
			return nil, err
		}
		e.record(k.side, run, out)
		e.sayf("run %d, %s: %.0f msg/s, %.2f CPU s per million, peak %.0f MiB", run, k.name, float64(k.messages)/out.Seconds, perMillion(out, k.messages), mib(out.PeakRSS))
		if err := e.verify(ctx, sp, out, loaded[from(k)]); err != nil {
			e.problemf("run %d, %s: %v", run, k.name, err)
			continue
		}
		outs[k.side] = out
	}
	return outs, nil
}

// verify compares what the handlers saw, and what an independent reader finds in the DLQ, with what was written, and
// asks the broker whether all of it is settled.
func (e *experiment) verify(ctx context.Context, s spec, out *outcome, w written) error {
	var errs []error
	entries, want, sum, deadSum := s.Failing.expected(w)
	if out.Count != int64(w.count) {
		errs = append(errs, fmt.Errorf("%d messages were settled, %d were written", out.Count, w.count))
	}
	if out.Entries != int64(entries) {
		errs = append(errs, fmt.Errorf("the handler ran %d times, not %d: messages were lost or came twice", out.Entries, entries))
	}
	if out.Sum != sum {
		errs = append(errs, errors.New("the checksum of the handled messages differs from that of the written ones"))
	}
	if out.Swapped > 0 {
		errs = append(errs, fmt.Errorf("%d messages ran for the first time after a later one of their key", out.Swapped))
	}
	left, err := e.broker.unsettled(ctx, s)
	if err != nil {
		return err
	}
	if left != 0 {
		errs = append(errs, fmt.Errorf("the broker has %d messages that are not committed or acked although all were settled", left))
	}
	if out.Late != nil && out.Late.Early > 0 {
		errs = append(errs, fmt.Errorf("%d retries came early, the first by %.2f ms", out.Late.Early, -out.Late.Min))
	}
	if s.Failing.Every == 0 {
		return errors.Join(errs...)
	}
	dead, err := e.broker.dead(ctx, s)
	if err != nil {
		return err
	}
	if dead.records != want || len(dead.distinct) != want || dead.sum != deadSum {
		errs = append(errs, fmt.Errorf("an independent reader finds %d records of %d different messages in the DLQ, not %d, or their checksum differs", dead.records, len(dead.distinct), want))
	}
	if dead.last.After(out.Finished.Add(50 * time.Millisecond)) {
		errs = append(errs, fmt.Errorf("the last record of the DLQ was written %s after the last was reported", dead.last.Sub(out.Finished)))
	}
	return errors.Join(errs...)
}

// versus compares our side with watermill-kafka's.
func versus(mine, theirs int, ratio float64) comparison {
	return comparison{
		ours: []sideConfig{{side: ours, name: "redeliver", messages: mine, ratio: ratio}}, peer: sideConfig{side: peer, name: "watermill-kafka", messages: theirs},
		within: 3 * time.Minute, inFlight: defaultInFlight,
	}
}

func subscribeRow(ctx context.Context, e *experiment) error {
	n := e.scaled(500_000)
	c := versus(n, n, 1.2)
	c.cpu = atMost(1)
	return e.compare(ctx, c)
}

func routerRow(ctx context.Context, e *experiment) error {
	n := e.scaled(500_000)
	c := versus(n, n, 2)
	c.spec = func(s *spec) { s.Router = true }
	return e.compare(ctx, c)
}

func slowRow(ctx context.Context, e *experiment) error {
	e.notef("%d messages in flight of 5 ms each allow %s msg/s; theirs has one in flight per partition", manyInFlight, count(manyInFlight*200))
	c := versus(e.scaled(40_000), e.scaled(2_000), 50)
	c.inFlight, c.spec = manyInFlight, func(s *spec) { s.Router, s.Wait = true, 5*time.Millisecond }
	return e.compare(ctx, c)
}
