package brokers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"
)

// Rabbit is a RabbitMQ node. Kill, Start, Shutdown, Restart and Stop are those of [Broker]; see Settle before Kill.
type Rabbit struct {
	*Broker
	env        rabbitEnv
	url        string
	management string
	vhost      string
	// ctl runs rabbitmqctl on the node. It is nil for a node from the environment.
	ctl func(ctx context.Context, args ...string) (string, error)
}

// newRabbit opens a node that listens on these loopback ports.
func newRabbit(
	ctx context.Context, o RabbitMQOptions, name string, sys system, port, managementPort int,
	ctl func(ctx context.Context, args ...string) (string, error),
) (*Rabbit, error) {
	env, err := o.Version.env()
	if err != nil {
		return nil, err
	}
	r := &Rabbit{
		env:        env,
		url:        fmt.Sprintf("amqp://guest:guest@127.0.0.1:%d/", port),
		management: fmt.Sprintf("http://guest:guest@127.0.0.1:%d", managementPort),
		vhost:      "/",
		ctl:        ctl,
	}
	r.Broker, err = open(ctx, &Broker{
		name:    name,
		addrs:   []string{fmt.Sprintf("127.0.0.1:%d", port)},
		sys:     sys,
		ready:   func(ctx context.Context, _ []string) error { return rabbitIsWhole(ctx, r.url, r.management, ctl) },
		maxWait: o.StartTimeout,
		logf:    o.Logf,
	})
	if err != nil {
		return nil, err
	}
	return r, nil
}

func givenRabbitMQ(ctx context.Context, o RabbitMQOptions, env rabbitEnv, rawURL string) (*Rabbit, error) {
	u, err := url.Parse(rawURL)
	if err != nil || u.Host == "" || !strings.HasPrefix(u.Scheme, "amqp") {
		return nil, fmt.Errorf("%s must be like amqp://guest:guest@127.0.0.1:5672/", env.url) // without the password
	}
	if len(o.Config) > 0 {
		return nil, fmt.Errorf("rabbitmq at %s comes from %s and its settings cannot be changed; "+
			"set RabbitMQOptions.Own for a broker with settings of its own", u.Host, env.url)
	}
	r := &Rabbit{env: env, url: rawURL, management: os.Getenv(env.management), vhost: cmp.Or(strings.TrimPrefix(u.Path, "/"), "/")}
	r.Broker, err = open(ctx, &Broker{
		name:    "rabbitmq given by " + env.url,
		addrs:   []string{u.Host},
		sys:     &given{name: "rabbitmq", addrsEnv: env.url, restartEnv: env.restart, own: "RabbitMQOptions.Own"},
		ready:   func(ctx context.Context, _ []string) error { return rabbitAnswers(ctx, r.url, r.management) },
		maxWait: min(o.StartTimeout, maxGivenWait),
		logf:    o.Logf,
	})
	if err != nil {
		return nil, err
	}
	return r, nil
}

// URL returns the URL for a client: amqp://user:password@host:port/vhost.
func (r *Rabbit) URL() string { return r.url }

// Management returns the address of the management plugin's HTTP API, http://user:password@host:port without the /api.
// It is "" if a node from the environment has none.
func (r *Rabbit) Management() string { return r.management }

// Ctl runs rabbitmqctl on the node, returns its output, and fails the test if the command fails. Only the test's own
// goroutine may call it; any goroutine may call RunCtl.
func (r *Rabbit) Ctl(tb testing.TB, args ...string) string {
	tb.Helper()
	out, err := r.RunCtl(context.Background(), args...)
	if err != nil {
		tb.Fatal(err)
	}
	return out
}

// RunCtl runs rabbitmqctl on the node and returns its output. One call takes a second or two.
func (r *Rabbit) RunCtl(ctx context.Context, args ...string) (string, error) {
	if r.ctl == nil {
		return "", fmt.Errorf("%s is not ours to run rabbitmqctl on; use brokers.OwnRabbitMQ", r)
	}
	if len(args) == 0 {
		return "", errors.New("rabbitmqctl wants a command")
	}
	ctx, cancel := context.WithTimeout(ctx, 90*time.Second)
	defer cancel()
	out, err := r.ctl(ctx, args...)
	if err != nil {
		return out, fmt.Errorf("rabbitmqctl %s on %s: %w; it said:\n%s", strings.Join(args, " "), r, err, lastLines(out, 30))
	}
	return out, nil
}

// Eval makes the node evaluate an Erlang expression, and returns its value as Erlang prints it.
func (r *Rabbit) Eval(ctx context.Context, expr string) (string, error) {
	return r.RunCtl(ctx, "eval", expr)
}

// StopApp stops RabbitMQ but not the Erlang node. It closes all connections, and refuses new ones.
func (r *Rabbit) StopApp(ctx context.Context) error {
	_, err := r.Eval(ctx, "ok = rabbit:stop().")
	return err
}

// StartApp starts RabbitMQ in the node again after StopApp, and waits until it answers.
func (r *Rabbit) StartApp(ctx context.Context) error {
	if _, err := r.Eval(ctx, "ok = rabbit:start()."); err != nil {
		return err
	}
	return r.WaitReady(ctx)
}

// CloseAllConnections closes the connections of all clients of the virtual host. They get CONNECTION_FORCED with the
// reason.
func (r *Rabbit) CloseAllConnections(ctx context.Context, reason string) error {
	_, err := r.Eval(ctx, fmt.Sprintf("rabbit_connection_tracking:close_connections(rabbit_connection_tracking:list(<<%q>>), %q, 0).", r.vhost, reason))
	return err
}

// HoldLeader suspends the leader of a quorum queue, as on an overloaded node, until release is called.
func (r *Rabbit) HoldLeader(ctx context.Context, queue string) (release func() error, err error) {
	leader := fmt.Sprintf("{ok, Q} = rabbit_amqqueue:lookup(rabbit_misc:r(<<%q>>, queue, <<%q>>)), {Name, _} = amqqueue:get_pid(Q), ", r.vhost, queue)
	if _, err := r.Eval(ctx, leader+"ok = sys:suspend(Name)."); err != nil {
		return nil, err
	}
	return func() error {
		_, err := r.Eval(context.Background(), leader+"ok = sys:resume(Name).")
		return err
	}, nil
}

// StallLog stops all writes of the node's quorum queues for d, as on an overloaded disk. They accept commands
// meanwhile, and apply them afterwards.
func (r *Rabbit) StallLog(ctx context.Context, d time.Duration) error {
	_, err := r.Eval(ctx, fmt.Sprintf("ok = sys:suspend(ra_log_wal), {ok, _} = timer:apply_after(%d, sys, resume, [ra_log_wal]).", d.Milliseconds()))
	return err
}

// Settle ensures that the quorum queues which were declared so far survive Kill. RabbitMQ writes their list only every
// half second. After a SIGKILL, a queue that is not in the list begins empty and without a leader, even if it had
// confirmed messages. In a cluster the other members keep it; a single node has none.
func (r *Rabbit) Settle(ctx context.Context) error {
	_, err := r.Eval(ctx, "[ok = dets:sync(T) || T <- dets:all()].")
	return err
}

// Environ returns the environment variables that give this node to other processes, as name=value.
func (r *Rabbit) Environ() []string {
	return []string{r.env.url + "=" + r.url, r.env.management + "=" + r.management}
}
