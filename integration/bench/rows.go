package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"
)

// row is one line of the table.
type row struct {
	name, what, target string
	run                func(context.Context, *experiment) error
}

// MaxInFlight of our side where a row is not about the default.
const (
	defaultInFlight = 100 // kafka.DefaultMaxInFlight
	manyInFlight    = 500 // for handlers that wait, and for failures, which are in flight until their next hop is confirmed
)

// rows are set in init, because find refers to them.
var rows []row

func init() { //nolint:gochecknoinits // The rows call what looks rows up.
	rows = []row{
		{"subscribe", "our Subscriber and Ack in a plain loop against watermill-kafka's, 500,000 preloaded", "1.2x, in no more CPU per message", subscribeRow},
		{"router", "Router and our Retry, all succeed, against Router, Watermill's Retry and PoisonQueue, 500,000 preloaded", "1.25x", routerRow},
		{"slow", "the same with a handler that waits 5 ms, 10,000 keys, 40,000 against 2,000 messages", "50x", slowRow},
		{"retry-success", "our Retry alone on success, with Timeout, Classify and Invalid set", "150 ns and 1 allocation", microRow},
		{"fail-all", "100,000 preloaded always fail: 3 retries of 1 s, then the DLQ", "15,000 msg/s", failAllRow},
		{"fail-some", "100,000 preloaded, 5 % fail once and are retried after 1 s, until all have succeeded", "50,000 msg/s", failSomeRow},
		{"lateness", "due to handler entry, level 1 s, steady 2,000 and 5,000 failing messages/s for 20 s, 3 retries each", "p99 10 ms, never early", latenessRow},
		{"lateness-jitter", "the same with 1 s plus a jitter of 0 to 1 s at 2,000/s", "p99 10 ms, never early", jitterRow},
		{"waiting", "1,000,000 messages waiting on a level of 1 h, consumer watched for 30 s", "64 MiB resident", waitingRow},
		{"kill", "SIGKILL of a consumer at 2,000 failing/s, restarted at once, static membership", "0 lost, duplicates bounded, at work within 1 s", killRow},
	}
}

func find(name string) *row {
	i := slices.IndexFunc(rows, func(r row) bool { return r.name == name })
	if i < 0 {
		return nil
	}
	return &rows[i]
}

// experiment is a row that is being run.
type experiment struct {
	row      *row
	options  options
	cluster  *cluster
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

// spec is our side's work in a run, with what all rows have in common.
func (e *experiment) spec(s side, n names, run, inFlight int) spec {
	if e.options.inFlight > 0 {
		inFlight = e.options.inFlight
	}
	group := n.ours
	if s == peer {
		group = n.peer
	}
	return spec{
		Job: consume, Side: s, Brokers: e.cluster.addrs, Topic: n.topic, Group: group, InFlight: inFlight,
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

// sideNames are how the sides are called in the table.
var sideNames = map[side]string{ours: "redeliver", peer: "watermill-kafka"}

// comparison is a row that runs both sides in pairs.
type comparison struct {
	messages map[side]int
	ratio    float64 // the target
	cpu      bool    // whether the ratio of the CPU has a target too
	within   time.Duration
	spec     func(*spec)
	inFlight int
}

func (e *experiment) compare(ctx context.Context, c comparison) error {
	for run := range e.options.runs + 1 {
		order := []side{ours, peer}
		if run%2 == 1 {
			slices.Reverse(order)
		}
		var outs map[side]*outcome
		outs, err := e.pair(ctx, c, order, run)
		if err != nil {
			return err
		}
		if run == 0 || len(outs) < 2 {
			continue // the warm-up, or a side that was not verified
		}
		rate := make(map[side]float64)
		for _, s := range []side{ours, peer} {
			rate[s] = float64(c.messages[s]) / outs[s].Seconds
			e.add(sideNames[s], "msg/s", nil, rate[s])
		}
		e.add("ratio", "x", atLeast(c.ratio), rate[ours]/rate[peer])
		cpu := make(map[side]float64)
		for _, s := range []side{ours, peer} {
			cpu[s] = perMillion(outs[s], c.messages[s])
			e.add("CPU per million, "+sideNames[s], "s", nil, cpu[s])
		}
		var bound *target
		if c.cpu {
			bound = atMost(1)
		}
		e.add("ratio of CPU", "x", bound, cpu[ours]/cpu[peer])
		for _, s := range []side{ours, peer} {
			e.add("peak memory, "+sideNames[s], "MiB", nil, mib(outs[s].PeakRSS))
		}
		for _, s := range []side{ours, peer} {
			e.add("Subscribe to first message, "+sideNames[s], "s", nil, outs[s].Joined)
		}
	}
	return nil
}

func (e *experiment) add(name, unit string, t *target, v float64) {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		e.problemf("%s: %g is no figure", name, v)
		return
	}
	f := e.result.figure(name, unit, t)
	f.Runs = append(f.Runs, v)
}

// pair runs both sides once. Where they handle the same number of messages they read the same topic. A side that is
// not verified is missing in the result.
func (e *experiment) pair(ctx context.Context, c comparison, order []side, run int) (map[side]*outcome, error) {
	outs := make(map[side]*outcome)
	topics := make(map[int]names)
	loaded := make(map[int]written)
	defer func() {
		for _, n := range topics {
			if err := e.cluster.drop(context.WithoutCancel(ctx), n); err != nil {
				e.problemf("dropping %s: %v", n.topic, err)
			}
		}
	}()
	for _, s := range order {
		n := c.messages[s]
		if _, ok := topics[n]; ok {
			continue
		}
		fresh, err := e.cluster.fresh(ctx, e.row.name)
		if err != nil {
			return nil, err
		}
		topics[n] = fresh
		if loaded[n], err = e.cluster.preload(ctx, fresh.topic, n); err != nil {
			return nil, err
		}
	}
	for _, s := range order {
		n := c.messages[s]
		sp := e.spec(s, topics[n], run, c.inFlight)
		sp.Messages = n
		if c.spec != nil {
			c.spec(&sp)
		}
		p, err := spawn(sp)
		if err != nil {
			return nil, err
		}
		out, err := p.await(ctx, c.within)
		if err != nil {
			return nil, err
		}
		e.record(s, run, out)
		e.sayf("run %d, %s: %.0f msg/s, %.2f CPU s per million, peak %.0f MiB", run, sideNames[s], float64(n)/out.Seconds, perMillion(out, n), mib(out.PeakRSS))
		if err := e.verify(ctx, sp, out, loaded[n], n, 1); err != nil {
			e.problemf("run %d, %s: %v", run, sideNames[s], err)
			continue
		}
		outs[s] = out
	}
	return outs, nil
}

// verify compares what the handlers saw with what was written, and asks the broker whether all of it is committed.
// times is how often each message is handled; 0 for a number that differs.
func (e *experiment) verify(ctx context.Context, s spec, out *outcome, w written, entries, times int) error {
	var errs []error
	if out.Count != int64(w.count) {
		errs = append(errs, fmt.Errorf("%d messages were settled, %d were written", out.Count, w.count))
	}
	if out.Entries != int64(entries) {
		errs = append(errs, fmt.Errorf("the handler ran %d times, not %d: messages were lost or came twice", out.Entries, entries))
	}
	if times > 0 && out.Sum != w.sum*uint64(times) {
		errs = append(errs, errors.New("the checksum of what the handler saw is not that of what was written"))
	}
	topics := []string{s.Topic}
	if s.Side == ours {
		all, err := e.cluster.topicsOf(ctx, names{topic: s.Topic})
		if err != nil {
			return err
		}
		// The DLQ is read by nobody, and other groups' topics are not ours.
		topics = slices.DeleteFunc(all, func(t string) bool {
			return strings.HasSuffix(t, ".dlq") || strings.HasSuffix(t, ".poison")
		})
	}
	behind, err := e.cluster.lag(ctx, s.Group, topics...)
	if err != nil {
		return err
	}
	if behind != 0 {
		errs = append(errs, fmt.Errorf("%d records of %v are not committed although all were settled", behind, topics))
	}
	return errors.Join(errs...)
}

func subscribeRow(ctx context.Context, e *experiment) error {
	n := e.scaled(500_000)
	return e.compare(ctx, comparison{
		messages: map[side]int{ours: n, peer: n}, ratio: 1.2, cpu: true, within: 3 * time.Minute, inFlight: defaultInFlight,
	})
}

func routerRow(ctx context.Context, e *experiment) error {
	n := e.scaled(500_000)
	return e.compare(ctx, comparison{
		messages: map[side]int{ours: n, peer: n}, ratio: 1.25, within: 3 * time.Minute, inFlight: defaultInFlight,
		spec: func(s *spec) { s.Router = true },
	})
}

func slowRow(ctx context.Context, e *experiment) error {
	e.notef("%d messages in flight of 5 ms each allow %s msg/s; theirs has one in flight per partition", manyInFlight, count(manyInFlight*200))
	return e.compare(ctx, comparison{
		messages: map[side]int{ours: e.scaled(40_000), peer: e.scaled(2_000)}, ratio: 50, within: 3 * time.Minute, inFlight: manyInFlight,
		spec: func(s *spec) { s.Router, s.Wait = true, 5*time.Millisecond },
	})
}

func microRow(ctx context.Context, e *experiment) error {
	for run := range e.options.runs + 1 {
		outs := make(map[side]*outcome)
		for _, s := range []side{ours, peer} {
			p, err := spawn(spec{Job: micro, Side: s, Profile: e.options.profileName(e.row.name, s, run)})
			if err != nil {
				return err
			}
			out, err := p.await(ctx, time.Minute)
			if err != nil {
				return err
			}
			e.record(s, run, out)
			outs[s] = out
			e.sayf("run %d, %s: %.0f ns, %d allocations", run, sideNames[s], out.Ns, out.Allocs)
		}
		if run == 0 {
			continue
		}
		o, p := outs[ours], outs[peer]
		e.add("redeliver, no sink", "ns", atMost(150), o.Ns)
		e.add("allocations", "", atMost(1), float64(o.Allocs))
		e.add("redeliver, default sink", "ns", nil, o.NsSink)
		e.add("allocations with default sink", "", nil, float64(o.AllocSink))
		e.add("Watermill's Retry", "ns", nil, p.Ns)
		e.add("Watermill's allocations", "", nil, float64(p.Allocs))
		e.add("ratio", "x", nil, p.Ns/o.Ns)
	}
	return nil
}
