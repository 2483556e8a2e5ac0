package brokers

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/redeliver/redeliver/integration/compose"
)

// The environment that decides where the Redis comes from; see the package comment.
const (
	EnvRedis        = "REDELIVER_TEST_REDIS"         // host:port of one that runs already
	EnvRedisRestart = "REDELIVER_TEST_REDIS_RESTART" // a shell command that restarts it
)

const (
	redisImageVersion = "7.0.15" // what the compose file names, and Debian 12 has
	redisImagePort    = 6379
)

// RedisOptions says what kind of Redis is wanted. The zero value is one that appends to its file and syncs it every
// second. A native one keeps its file in memory, where there is room for it: it outlives Kill there as well.
type RedisOptions struct {
	// Own asks for a Redis that nobody else uses, even when the environment gives one. It syncs every write before it
	// confirms it, so that Kill and Start lose nothing. Default false.
	Own bool
	// StartTimeout bounds every wait for readiness. Default 8 min: a machine that runs test suites beside it is slow.
	StartTimeout time.Duration
	// Logf tells what is started and how. Default: the standard logger, which writes to stderr.
	Logf func(format string, args ...any)
}

// flags are the settings of every Redis of ours. A snapshot would cost a fork, and the file has everything.
func (o RedisOptions) flags(bind string, port int) []string {
	sync := "everysec"
	if o.Own {
		sync = "always"
	}
	return []string{
		"--bind", bind, "--port", strconv.Itoa(port), "--appendonly", "yes", "--appendfsync", sync, "--save", "",
		"--daemonize", "no", "--protected-mode", "no",
	}
}

// Redis starts a Redis, or takes the one that the environment gives, and returns when it answers. When ctx ends the
// server is killed; Stop ends it in order and removes its data. Its address is the only one of Addrs, host:port.
func Redis(ctx context.Context, o RedisOptions) (*Broker, error) {
	complete(&o.StartTimeout, &o.Logf, log.Printf)
	if addr := os.Getenv(EnvRedis); addr != "" && !o.Own {
		return open(ctx, &Broker{
			name:    "redis given by " + EnvRedis,
			addrs:   []string{addr},
			sys:     &given{name: "redis", addrsEnv: EnvRedis, restartEnv: EnvRedisRestart, own: "RedisOptions.Own"},
			ready:   redisAnswers,
			maxWait: min(o.StartTimeout, maxGivenWait),
			logf:    o.Logf,
		})
	}
	began := time.Now()
	b, err := byWay(ctx, "redis", o.Logf,
		func(command []string) (*Broker, error) { return composeRedis(ctx, o, command) },
		func() (*Broker, error) { return nativeRedis(ctx, o) })
	if err != nil {
		return nil, fmt.Errorf("starting a redis for the tests: %w", err)
	}
	o.Logf("%s, up in %.1fs", b, time.Since(began).Seconds())
	return b, nil
}

func nativeRedis(ctx context.Context, o RedisOptions) (*Broker, error) {
	return onFreePorts("redis", inUse, o.Logf, func() (*Broker, error) { return nativeRedisOnce(ctx, o) })
}

func nativeRedisOnce(ctx context.Context, o RedisOptions) (*Broker, error) {
	server, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, errors.New("redis-server is not installed: run integration/setup.sh redis, or name a running redis in " + EnvRedis)
	}
	ports, err := freePorts(ctx, 1)
	if err != nil {
		return nil, err
	}
	// A disk that takes seconds for a sync holds up all that Redis does, and its tests take silence for the end.
	work, err := newWorkDirIn(cmp.Or(inMemory(), os.TempDir()), "redis")
	if err != nil {
		return nil, err
	}
	c := &child{work: work, command: func() *exec.Cmd {
		return exec.Command(server, o.flags("127.0.0.1", ports[0])...) //nolint:noctx // It outlives this call; open ties it to a context.
	}}
	return newRedis(ctx, "Redis (native)", c, ports[0], o)
}

func composeRedis(ctx context.Context, o RedisOptions, command []string) (*Broker, error) {
	ports, err := freePorts(ctx, 1)
	if err != nil {
		return nil, err
	}
	over := map[string]any{"command": append([]string{"redis-server"}, o.flags("0.0.0.0", redisImagePort)...)}
	c, err := newComposed(command, "redis", compose.Redis, over, nil, fmt.Sprintf("REDELIVER_REDIS_PORT=%d", ports[0]))
	if err != nil {
		return nil, err
	}
	return newRedis(ctx, "Redis "+redisImageVersion+" (docker)", c, ports[0], o)
}

// newRedis opens a Redis of ours, which listens on this loopback port.
func newRedis(ctx context.Context, name string, sys system, port int, o RedisOptions) (*Broker, error) {
	return open(ctx, &Broker{
		name: name, addrs: []string{net.JoinHostPort("127.0.0.1", strconv.Itoa(port))}, sys: sys,
		ready: redisAnswers, maxWait: o.StartTimeout, logf: o.Logf,
	})
}

// redisAnswers asks for a PONG, which a Redis that still reads its file does not give. It uses no client.
func redisAnswers(ctx context.Context, addrs []string) error {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", addrs[0])
	if err != nil {
		return fmt.Errorf("asking %s for a PONG: %w", addrs[0], err)
	}
	defer conn.Close()
	if deadline, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(deadline)
	}
	if _, err := conn.Write([]byte("PING\r\n")); err != nil {
		return fmt.Errorf("asking %s for a PONG: %w", addrs[0], err)
	}
	answer, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		return fmt.Errorf("asking %s for a PONG: %w", addrs[0], err)
	}
	if answer = strings.TrimSpace(answer); answer != "+PONG" {
		return fmt.Errorf("asking %s for a PONG: it says %q", addrs[0], answer)
	}
	return nil
}
