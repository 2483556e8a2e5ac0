//go:build prove

package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/integration/chaos/history"
	"github.com/redeliver/redeliver/integration/consumer"
	"github.com/redeliver/redeliver/observe"
)

// envConsumer makes this test binary a consumer. Its value is a consumerConfig.
const envConsumer = "REDELIVER_CHAOS_CONSUMER"

func TestMain(m *testing.M) {
	consumer.Main(envConsumer, consume)
	if os.Getenv(envClock) != "" {
		if err := tryClock(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// consumerConfig is the configuration of a consumer process.
type consumerConfig struct {
	Name    string       `json:"name"` // of the process
	History string       `json:"history"`
	Broker  string       `json:"broker"` // key of the connector
	Addrs   []string     `json:"addrs"`
	Load    history.Load `json:"load"`
	Topic   string       `json:"topic"`
	Group   string       `json:"group"`
	// MaxWait is how long the client waits for an answer. Default: the client's own.
	MaxWait time.Duration `json:"maxWait"`
}

func (c consumerConfig) policy() redeliver.Policy {
	p := redeliver.Policy{
		Outage: redeliver.Outage{Off: true}, MaxRetries: len(c.Load.Steps), Backoff: redeliver.Steps(c.Load.Steps...),
		// A process that is killed at random charges the message that was alone in it, because it cannot know the
		// cause.
		MaxCrashes: 50,
	}
	if c.Load.Order == history.OrderThroughRetries {
		p.Order = redeliver.OrderThroughRetries
	}
	return p
}

// connector opens a broker's adapter.
type connector func(ctx context.Context, cfg consumerConfig, sink redeliver.Sink) (consumer.Client, error)

var connectors = map[string]connector{"kafka": connectKafka, "rabbitmq": connectRabbitMQ, "sqs": connectSQS}

// consume runs a consumer. It ends gracefully on SIGTERM and when its parent has ended.
func consume(ctx context.Context, cfg consumerConfig) error {
	replaceClock()
	log, err := history.Open(cfg.History, cfg.Name)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	h := &handler{log: log, load: cfg.Load}
	go consumer.ReadCommands(h.execute, cancel)
	sink := observe.Sinks(redeliver.NewSlogSink(consumer.Logger()), redeliver.SinkFunc(h.event))
	client, err := consumer.Open(ctx, func() (consumer.Client, error) { return connectors[cfg.Broker](ctx, cfg, sink) })
	if err != nil {
		return err
	}
	if err := consumer.Route(ctx, cfg.Topic, client, h.handle); err != nil {
		return err
	}
	end, cancelEnd := context.WithTimeout(context.Background(), 15*time.Second)
	defer cancelEnd()
	if err := client.End(end); err != nil {
		consumer.Logf("closing: %v", err) // its broker may be down
	}
	return nil
}

// handler runs the messages and records the runs.
type handler struct {
	log  *history.Log
	load history.Load
}

// body is the body of a message. Pad makes it a few hundred bytes long, so that a torn answer tears it.
type body struct {
	ID   string       `json:"id"`
	Rule history.Rule `json:"rule"`
	Key  string       `json:"key"`
	Pad  string       `json:"pad"`
}

var errRule = errors.New("the message's rule says so")

func (h *handler) handle(msg *message.Message) error {
	now, local := realNow(), time.Now()
	line := history.Line{At: now.UnixNano(), Local: local.UnixNano(), Kind: history.Begin, Load: h.load.Name, Sum: crc32.ChecksumIEEE(msg.Payload)}
	st, ok := redeliver.FromContext(msg.Context())
	var b body
	if err := json.Unmarshal(msg.Payload, &b); err != nil || !ok {
		line.ID, line.What = msg.UUID, fmt.Sprintf("body %q, state %+v: %v", msg.Payload, st, err)
		h.log.Add(line) // the writer did not write it
		return redeliver.Permanent(fmt.Errorf("an unreadable message: %w", err))
	}
	line.ID, line.Name, line.Attempt = b.ID, st.ID, st.Attempt()
	if !st.Due.IsZero() {
		line.Due = st.Due.UnixNano()
	}
	h.log.Add(line)
	err := h.work(msg.Context(), b, st.Attempt())
	line = history.Line{At: realNow().UnixNano(), Kind: history.End, ID: b.ID, Load: h.load.Name, Attempt: st.Attempt(), Outcome: history.OK}
	switch {
	case errors.Is(err, errRule):
		line.Outcome = history.Failed
	case err != nil:
		line.Outcome = history.Cut
	}
	h.log.Add(line)
	return err
}

// work takes 1 to 20 ms, and a second for one message of fifty.
func (h *handler) work(ctx context.Context, b body, attempt int) error {
	n := crc32.ChecksumIEEE([]byte(b.ID + strconv.Itoa(attempt)))
	takes := time.Duration(1+n%20) * time.Millisecond
	if n%50 == 0 {
		takes = time.Second
	}
	if !consumer.Pause(ctx, takes) {
		return context.Cause(ctx)
	}
	if b.Rule == history.Always || b.Rule == history.Once && attempt == 1 {
		return errRule
	}
	return nil
}

// event records events that must not happen, and those that explain a second run. The others are in the consumer's log.
func (h *handler) event(e redeliver.Event) {
	switch e := e.(type) {
	case redeliver.HeadersIgnored:
		reason := history.DueTime
		for _, f := range e.Findings {
			if f.Header != redeliver.HeaderDue {
				reason = "headers"
			}
		}
		h.odd(e.ID, reason, fmt.Sprintf("headers of a message on %s are not trusted: %v", e.Topic, e.Findings))
	case redeliver.PublishFailed:
		h.log.Add(history.Line{At: realNow().UnixNano(), Kind: history.Tried, Name: e.State.ID, Attempt: e.State.Attempts, Load: h.load.Name, What: fmt.Sprint(e.Err)})
	case redeliver.HandlerStuck:
		h.odd(e.State.ID, "stuck", "its handler outlives its timeout")
	case redeliver.SubscriptionChanged:
		line := history.Line{At: realNow().UnixNano(), Kind: history.Said, Load: h.load.Name, What: fmt.Sprintf("%s: %s %v", e.Change, e.Detail, e.Err)}
		if e.Change == redeliver.ChangeAssigned || e.Change == "revoked" || e.Change == redeliver.ChangeDisconnected {
			line.Kind = history.Moved
		}
		h.log.Add(line)
	}
}

func (h *handler) odd(id, reason, what string) {
	h.log.Add(history.Line{At: realNow().UnixNano(), Kind: history.Odd, ID: id, Load: h.load.Name, Reason: reason, What: what})
}

// execute executes a command, "clock SECONDS".
func (h *handler) execute(order string) error {
	text, ok := strings.CutPrefix(order, "clock ")
	step, err := strconv.ParseInt(text, 10, 64)
	if err != nil || !ok {
		return fmt.Errorf("not an order: %q", order)
	}
	line := history.Line{At: realNow().UnixNano(), Kind: history.Clock, Offset: step * int64(time.Second)}
	if step < clockStep.Load() {
		// Messages until now ran by the clock that was ahead.
		clockStep.Store(step)
		line.At = realNow().UnixNano()
	}
	h.log.Add(line)
	clockStep.Store(step)
	return nil
}
