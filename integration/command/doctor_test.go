package command_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/amqp"
	"github.com/redeliver/redeliver/adapters/sqs"
	"github.com/redeliver/redeliver/integration/brokers"
)

// found is the output of doctor.
type found struct {
	Findings []struct {
		Kind  string `json:"kind"`
		Place string `json:"place"`
	} `json:"findings"`
}

// kinds returns the findings as "kind place".
func (f *found) kinds() (all []string) {
	for _, s := range f.Findings {
		all = append(all, s.Kind+" "+s.Place)
	}
	slices.Sort(all)
	return all
}

// doctor asks until there are exactly these findings, because brokers update some counts seconds later.
func (s *shop) doctor(args []string, want ...string) {
	s.t.Helper()
	s.doctorSays("", args, want...)
}

// doctorSays is doctor that also requires a text in the output.
func (s *shop) doctorSays(text string, args []string, want ...string) {
	s.t.Helper()
	slices.Sort(want)
	code := 0
	if len(want) > 0 {
		code = 3
	}
	deadline := time.After(maxWait)
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for {
		got, out := s.try(append([]string{"doctor", "--topic", s.topic, "--output", "json"}, args...)...)
		var f found
		if err := json.Unmarshal([]byte(out), &f); err == nil && got == code && slices.Equal(f.kinds(), want) && strings.Contains(out, text) {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			s.t.Fatalf("exit code %d, want %d; findings %q, want %q, and that it says %q: %s", got, code, f.kinds(), want, text, out)
		}
	}
}

// try runs redeliver and returns its exit code and stdout.
func (s *shop) try(args ...string) (code int, stdout string) {
	s.t.Helper()
	cmd := exec.Command(filepath.Join(built, "redeliver"), args...)
	cmd.Env = append(os.Environ(), "REDELIVER_BROKER="+s.url)
	out, err := cmd.Output()
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
		s.t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), string(out)
}

// policy is the members' policy, as flags of the command.
var policy = []string{"--retries", "2", "--backoff", "steps:1s,2m", "--levels", "1s,2m"}

func policyOf(retries int) redeliver.Policy {
	return redeliver.Policy{MaxRetries: retries, Backoff: redeliver.Steps(time.Second, 2*time.Minute), Levels: []time.Duration{time.Second, 2 * time.Minute}}
}

// subscribe reads the queue until the returned function is called.
func (b *rabbitRights) subscribe(policy redeliver.Policy) (stop func()) {
	b.t.Helper()
	ctx, cancel := context.WithCancel(b.t.Context())
	ready, ended := make(chan struct{}, 1000), make(chan error, 1)
	go func() {
		ended <- amqp.Consume(ctx, amqp.Config{URLs: []string{b.r.URL()}, Policy: policy, Sink: redeliver.SinkFunc(func(e redeliver.Event) {
			if c, ok := e.(redeliver.Committed); ok && c.State.Attempts == 0 {
				ready <- struct{}{}
			}
		})}, []string{b.topic}, func(context.Context, amqp091.Delivery) error { return nil })
	}()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(maxWait)
	for reads := false; !reads; {
		select {
		case <-tick.C: // others read it, too
			b.send("are you there")
		case <-ready:
			reads = true
		case err := <-ended:
			b.t.Fatal(err)
		case <-deadline:
			b.t.Fatal("no consumer reads the queue")
		}
	}
	return func() {
		cancel()
		if err := <-ended; err != nil {
			b.t.Error(err)
		}
	}
}

func TestDoctorOnRabbitMQ(t *testing.T) {
	t.Parallel()
	for version, r := range brokers.RequireRabbitMQs(t) {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			b := newRabbitRights(t, r)
			api := []string{"--management-url", b.r.Management()}
			all := append(slices.Clone(policy), api...)
			missing := []string{"missing " + b.topic, "missing " + b.dlq, "missing " + b.topic + ".retry", "missing " + b.topic + ".retry.suspects"}
			b.doctor(api, missing...)
			b.doctor(all, append([]string{"missing " + b.topic + ".retry.1s", "missing " + b.topic + ".retry.2m"}, missing...)...)
			b.provision(redeliver.Policy{MaxRetries: 1, Backoff: redeliver.Fixed(5 * time.Minute), Levels: []time.Duration{time.Second, 5 * time.Minute}})
			b.sends()
			stop := b.subscribe(policyOf(2))
			old := "orphan " + b.topic + ".retry.5m"
			b.doctorSays("no message waits on it. When", all, old)
			b.doctor(api)
			b.manage(http.MethodDelete, "", "queues", "/", b.topic+".retry.5m")
			b.doctorSays("levels that the policy does not use", all)
			// Only AMQP reports that.
			b.doctor([]string{"--backoff", "fixed:10s", "--levels", "1s,10s"}, "missing "+b.topic+".retry.10s")
			stop()
			b.send("is anybody there")
			b.doctorSays("what is late (ManagementURL is not set)", policy, "consumer "+b.topic)
			b.manage(http.MethodPut, map[string]any{
				"pattern": "^" + strings.ReplaceAll(strings.ReplaceAll(b.topic, ".", `\.`), "+", `\+`) + `\.retry$`, "apply-to": "queues", "definition": map[string]any{"message-ttl": 60_000},
			}, "policies", "/", b.topic)
			b.doctor(all, "consumer "+b.topic, "retention "+b.topic+".retry")
			b.manage(http.MethodDelete, "", "policies", "/", b.topic)
		})
	}
}

// A due message that its target queue refuses is stuck on its level.
func TestDoctorOnRabbitMQFindsStuckMessages(t *testing.T) {
	t.Parallel()
	r := brokers.RequireRabbitMQ(t)
	b := newRabbitRights(t, r)
	b.provision(policyOf(2))
	b.manage(http.MethodDelete, "", "queues", "/", b.topic+".retry")
	level := &rabbitRights{&shop{t: t, url: b.url, topic: b.topic + ".retry.1s"}, r}
	level.sends()
	level.send("stuck")
	b.doctorSays("1 messages have waited for their level and are stuck", append(slices.Clone(policy), "--management-url", r.Management()),
		"missing "+b.topic+".retry", "late "+b.topic+".retry.1s")
}

// provision creates the queues of a policy, without a reader.
func (b *rabbitRights) provision(policy redeliver.Policy) {
	b.t.Helper()
	c, err := amqp.Open(b.t.Context(), amqp.Config{URLs: []string{b.r.URL()}, Policy: policy, Sink: redeliver.SinkFunc(func(redeliver.Event) {})})
	if err != nil {
		b.t.Fatal(err)
	}
	defer c.Close(b.t.Context())
	if err := c.Subscriber().SubscribeInitialize(b.topic); err != nil {
		b.t.Fatal(err)
	}
}

func TestDoctorOnSQS(t *testing.T) {
	t.Parallel()
	for server, endpoint := range brokers.RequireSQSServers(t) {
		t.Run(server, func(t *testing.T) {
			t.Parallel()
			c := newCounter(t, endpoint, "")
			c.doctor(policy, "missing "+c.topic, "missing "+c.dlq, "missing "+c.topic+"-suspects")
			config := c.config(endpoint, func(redeliver.Event) {})
			config.NoProvisioning = false
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() {
				ended <- sqs.Consume(ctx, config, []string{c.topic}, func(context.Context, types.Message) error { return nil })
			}()
			c.doctorSays("what is late (SQS does not report it", policy)
			c.send("are you there")
			c.doctor(policy)
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
			c.send("is anybody there")
			c.doctor(policy, "consumer "+c.topic)
			if server == "ElasticMQ" { // which has no retention
				c.doctorSays("the retention of "+c.topic+" (the server does not report it)", policy, "consumer "+c.topic)
				return
			}
			c.set(c.dlq, "MessageRetentionPeriod", "3600")
			c.set(c.topic, "MessageRetentionPeriod", "60")
			c.doctor(policy, "consumer "+c.topic, "retention "+c.dlq, "retention "+c.topic)
			c.doctorSays("the policy is not given", nil, "consumer "+c.topic, "retention "+c.dlq)
		})
	}
}
