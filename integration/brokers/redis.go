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

// The environment variables that determine the Redis; see the package comment.
const (
	EnvRedis        = "REDELIVER_TEST_REDIS"         // host:port of a running one
	EnvRedisRestart = "REDELIVER_TEST_REDIS_RESTART" // a shell command that restarts it
)

const (
	redisImageVersion = "7.0.15" // the version in the compose file and in Debian 12
	redisImagePort    = 6379
)

// RedisOptions configures a Redis. The zero value is one that appends to its file and syncs it every second. A native
// Redis keeps its file in memory if there is enough room. The file survives Kill there as well.
type RedisOptions struct {
	// Own requests a Redis that nobody else uses, even if the environment gives one. It syncs every write before it
	// confirms it, so that Kill and Start lose nothing. Default false.
	Own bool
	// StartTimeout bounds every wait for readiness. Default 8 min, because a machine that also runs test suites is
	// slow.
	StartTimeout time.Duration
	// Logf logs what is started and how. Default: the standard logger, which writes to stderr.
	Logf func(format string, args ...any)
}

// flags returns the settings of every Redis that the tests start. Snapshots are off: they cost a fork, and the file has
// everything.
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

// Redis starts a Redis, or uses the one from the environment, and returns when it answers. When ctx ends the server is
// killed. Stop ends it gracefully and removes its data. Addrs has one address, host:port.
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
	// A disk that takes seconds for a sync delays everything in Redis, and its tests take silence for the end.
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

// newRedis opens a Redis that listens on this loopback port.
func newRedis(ctx context.Context, name string, sys system, port int, o RedisOptions) (*Broker, error) {
	return open(ctx, &Broker{
		name: name, addrs: []string{net.JoinHostPort("127.0.0.1", strconv.Itoa(port))}, sys: sys,
		ready: redisAnswers, maxWait: o.StartTimeout, logf: o.Logf,
	})
}

// redisAnswers sends PING. A Redis that still reads its file does not answer with PONG. It uses no client.
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
