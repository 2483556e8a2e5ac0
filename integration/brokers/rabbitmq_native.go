package brokers

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// rabbitProcess runs one RabbitMQ node, and the epmd by which rabbitmqctl finds it, as two child processes.
type rabbitProcess struct {
	place    debian // where the programs are
	work     *workDir
	epmdPort int
	distPort int

	mu   sync.Mutex // start and kill may be concurrent when a context ends
	epmd *process
	node *process
	down bool          // we stopped or killed it while it ran
	cpus time.Duration // of earlier nodes
}

func nativeRabbitMQ(ctx context.Context, o RabbitMQOptions) (*Rabbit, error) {
	return onFreePorts("rabbitmq", "eaddrinuse", o.Logf, func() (*Rabbit, error) { return nativeRabbitMQOnce(ctx, o) })
}

func nativeRabbitMQOnce(ctx context.Context, o RabbitMQOptions) (*Rabbit, error) {
	place, err := findRabbitMQ(o)
	if err != nil {
		return nil, err
	}
	ports, err := freePorts(ctx, 4)
	if err != nil {
		return nil, err
	}
	data := os.TempDir()
	if o.Brief {
		data = cmp.Or(inMemory(), data)
	}
	work, err := newWorkDirIn(data, "rabbitmq")
	if err != nil {
		return nil, err
	}
	p := &rabbitProcess{place: place, work: work, epmdPort: ports[2], distPort: ports[3]}
	if err := p.prepare(rabbitNative(o, ports[0], ports[1])); err != nil {
		_, removed := p.remove(false)
		return nil, errors.Join(err, removed)
	}
	return newRabbit(ctx, o, "RabbitMQ "+place.version+" (native)", p, ports[0], ports[1], p.ctl)
}

// prepare writes the files that the node reads when it starts. rabbitmqctl needs the cookie to be admitted. With its
// own cookie, the node is separate from all others on this machine.
func (p *rabbitProcess) prepare(settings map[string]string) error {
	var cookie [16]byte
	_, _ = rand.Read(cookie[:]) // never fails
	for _, f := range []struct {
		name, text string
		mode       os.FileMode
	}{
		{".erlang.cookie", hex.EncodeToString(cookie[:]), 0o400},
		{"rabbitmq.conf", rabbitConf(settings), 0o600},
		{"enabled_plugins", "[rabbitmq_management].\n", 0o600},
		{"rabbitmq-env.conf", "", 0o600}, // instead of the machine's
	} {
		if err := os.WriteFile(p.work.path(f.name), []byte(f.text), f.mode); err != nil {
			return fmt.Errorf("writing rabbitmq's %s: %w", f.name, err)
		}
	}
	return nil
}

// env returns the whole environment of the programs, because a RABBITMQ_ variable of the user's would change the node.
func (p *rabbitProcess) env() []string {
	dir := p.place.inside(p.work)
	return []string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"LC_ALL=C.UTF-8",
		"HOME=" + dir,
		"TMPDIR=" + dir,
		"ERL_CRASH_DUMP=" + dir + "/erl_crash.dump",
		fmt.Sprintf("ERL_EPMD_PORT=%d", p.epmdPort),
		"ERL_EPMD_ADDRESS=127.0.0.1",
		// Otherwise every erl would start an epmd that stays and listens on all interfaces.
		"ERL_AFLAGS=-start_epmd false -kernel inet_dist_use_interface {127,0,0,1}",
		"RABBITMQ_NODENAME=" + rabbitNode,
		fmt.Sprintf("RABBITMQ_DIST_PORT=%d", p.distPort),
		// Otherwise every rabbitmqctl of the machine would use the same ten ports.
		"RABBITMQ_CTL_DIST_PORT_MIN=0",
		"RABBITMQ_CTL_DIST_PORT_MAX=0",
		"RABBITMQ_CONF_ENV_FILE=" + dir + "/rabbitmq-env.conf",
		"RABBITMQ_CONFIG_FILE=" + dir + "/rabbitmq.conf",
		"RABBITMQ_ADVANCED_CONFIG_FILE=" + dir + "/advanced.config",
		"RABBITMQ_ENABLED_PLUGINS_FILE=" + dir + "/enabled_plugins",
		"RABBITMQ_MNESIA_BASE=" + dir + "/data",
		"RABBITMQ_GENERATED_CONFIG_DIR=" + dir + "/generated",
		"RABBITMQ_SCHEMA_DIR=" + dir + "/schema",
		"RABBITMQ_LOG_BASE=" + dir + "/log",
		"RABBITMQ_LOGS=-", // to our log
		// The start script then becomes the node, instead of a parent that would have to be killed with it.
		"RUNNING_UNDER_SYSTEMD=true",
	}
}

// rabbitNode is the same for all nodes, because each has its own epmd.
const rabbitNode = "rabbit@localhost"

func (p *rabbitProcess) start(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	if p.node.running() {
		return errors.New("it runs already")
	}
	log, err := p.work.openLog()
	if err != nil {
		return err
	}
	defer log.Close() // the children have their own descriptors
	if p.epmd, err = p.child(log, "epmd", "-port", strconv.Itoa(p.epmdPort), "-address", "127.0.0.1"); err != nil {
		return err
	}
	if err := p.epmdListens(ctx); err != nil {
		return errors.Join(err, p.epmd.kill())
	}
	p.cpus += p.node.cpu()
	if p.node, err = p.child(log, "/usr/lib/rabbitmq/bin/rabbitmq-server"); err != nil {
		return errors.Join(err, p.epmd.kill())
	}
	p.down = false
	return nil
}

func (p *rabbitProcess) child(log *os.File, program string, args ...string) (*process, error) {
	cmd := p.place.command(context.Background(), p.work, p.env(), program, args...)
	cmd.Stdout, cmd.Stderr = log, log
	return startProcess(cmd)
}

// epmdListens waits for epmd, which must run before a node starts.
func (p *rabbitProcess) epmdListens(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", p.epmdPort))
		if err == nil {
			return conn.Close()
		}
		select {
		case <-p.epmd.done:
			return fmt.Errorf("epmd ended at once: %w; the end of the log:\n%s", p.epmd.err, p.logTail())
		case <-ctx.Done():
			return fmt.Errorf("epmd does not listen: %w", err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// stop kills a 3.10 when it is stopped for good, because its shutdown takes six seconds.
func (p *rabbitProcess) stop(forGood bool) error {
	if forGood {
		return p.kill()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.down = p.down || p.node.running()
	return errors.Join(p.node.terminate(30*time.Second), p.epmd.kill())
}

func (p *rabbitProcess) kill() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.down = p.down || p.node.running()
	return errors.Join(p.node.kill(), p.epmd.kill())
}

func (p *rabbitProcess) cpu() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cpus + p.node.cpu()
}

func (p *rabbitProcess) ended() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.down || p.node == nil || p.node.running() {
		return nil
	}
	return p.node.err
}

// ctl runs rabbitmqctl. It does not use the script in /usr/sbin, which changes the user.
func (p *rabbitProcess) ctl(ctx context.Context, args ...string) (string, error) {
	if len(args) == 2 && args[0] == "eval" {
		return p.eval(ctx, args[1])
	}
	cmd := p.place.command(ctx, p.work, p.env(), "/usr/lib/rabbitmq/bin/rabbitmqctl",
		append([]string{"-q", "-n", rabbitNode}, args...)...)
	cmd.WaitDelay = 5 * time.Second // a grandchild may keep the output open
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// eval is rabbitmqctl eval without the Erlang and the Elixir that this starts each time, which takes seconds of CPU.
// erl_call is a small program of Erlang's own.
func (p *rabbitProcess) eval(ctx context.Context, expression string) (string, error) {
	const done = "done\n"
	cookie, err := os.ReadFile(p.work.path(".erlang.cookie"))
	if err != nil {
		return "", fmt.Errorf("reading the node's cookie: %w", err)
	}
	cmd := p.place.command(ctx, p.work, p.env(), "erl_call", "-address", fmt.Sprintf("127.0.0.1:%d", p.distPort),
		"-R", "-c", string(cookie), "-fetch_stdout", "-no_result_term", "-e")
	cmd.Stdin = strings.NewReader("try begin " + strings.TrimSuffix(strings.TrimSpace(expression), ".") + " end of " +
		`Value -> io:format("~tp~ndone~n", [Value]) catch Class:Reason -> io:format("~tp~n", [{Class, Reason}]) end.` + "\n")
	cmd.WaitDelay = 5 * time.Second
	out, err := cmd.CombinedOutput()
	if err != nil {
		return string(out), err
	}
	value, ok := strings.CutSuffix(string(out), done)
	if !ok {
		return string(out), errors.New("the expression has no value")
	}
	return value, nil
}

// logTail returns many lines, because when a node cannot start, a long report of Erlang's follows the reason.
func (p *rabbitProcess) logTail() string { return p.work.logTail(150) }

func (p *rabbitProcess) remove(keepLog bool) (string, error) { return p.work.remove(keepLog) }
