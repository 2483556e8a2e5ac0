package brokers

import (
	"context"
	_ "embed" // for the pom below
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
)

//go:embed rocketmq/pom.xml
var rocketMQPOM []byte

// withNames is a broker of RocketMQ with the name server by which clients find it. The name server starts before the
// broker, which would otherwise look for it again only after half a minute, and ends after it.
type withNames struct {
	*child
	names *Broker
}

func (w *withNames) ended() error {
	if err := w.child.ended(); err != nil {
		return err
	}
	if err := w.names.sys.ended(); err != nil {
		return fmt.Errorf("its name server: %w; the end of that one's log:\n%s", err, w.names.LogTail())
	}
	return nil
}

func (w *withNames) remove(keepLog bool) (string, error) {
	if keepLog {
		w.names.KeepLog()
	}
	log, err := w.child.remove(keepLog)
	return log, errors.Join(err, w.names.Stop())
}

func nativeRocketMQ(ctx context.Context, o RocketMQOptions) (*Broker, error) {
	java, lib, err := javaOf("rocketmq", EnvRocketMQ, rocketMQPOM)
	if err != nil {
		return nil, err
	}
	names, err := rocketMQNames(ctx, java, lib, o)
	if err != nil {
		return nil, err
	}
	port, err := portForRocketMQ(ctx)
	if err != nil {
		return nil, errors.Join(err, names.Stop())
	}
	work, err := newWorkDir("rocketmq")
	if err != nil {
		return nil, errors.Join(err, names.Stop())
	}
	w := &withNames{&child{work: work, command: rocketMQCommand(java, lib, work, o.Heap, "org.apache.rocketmq.broker.BrokerStartup")}, names}
	settings := rocketMQSettings(o, names.addrs[0], port, work.path("store"))
	if err := os.WriteFile(work.path(rocketMQConf), []byte(properties(settings)), 0o600); err != nil {
		_, removed := w.remove(false)
		return nil, errors.Join(fmt.Errorf("writing the broker's settings: %w", err), removed)
	}
	return open(ctx, &Broker{
		name: "Apache RocketMQ " + rocketMQVersion + " (native)", addrs: names.addrs, sys: w,
		ready: rocketMQAnswers, maxWait: o.StartTimeout, logf: o.Logf,
	})
}

// rocketMQConf is the name of the files with the settings of the name server and of the broker.
const rocketMQConf = "rocketmq.conf"

func rocketMQNames(ctx context.Context, java, lib string, o RocketMQOptions) (*Broker, error) {
	ports, err := freePorts(ctx, 1)
	if err != nil {
		return nil, err
	}
	work, err := newWorkDir("rocketmq-names")
	if err != nil {
		return nil, err
	}
	c := &child{work: work, command: rocketMQCommand(java, lib, work, "128m", "org.apache.rocketmq.namesrv.NamesrvStartup")}
	if err := os.WriteFile(work.path(rocketMQConf), []byte(properties(rocketMQNamesSettings(ports[0], work.dir))), 0o600); err != nil {
		_, removed := c.remove(false)
		return nil, errors.Join(fmt.Errorf("writing the name server's settings: %w", err), removed)
	}
	return open(ctx, &Broker{
		name: "Apache RocketMQ " + rocketMQVersion + "'s name server (native)", addrs: []string{loopback(ports[0])}, sys: c,
		ready: listens, maxWait: o.StartTimeout, logf: o.Logf,
	})
}

// rocketMQCommand returns a function that returns a new command for a server. The work directory is also the user's
// home, because both servers write their logs below it. It is also RocketMQ's home, which they require but from which
// they need nothing here.
func rocketMQCommand(java, lib string, work *workDir, heap, class string) func() *exec.Cmd {
	return func() *exec.Cmd {
		return exec.Command(java, "-Xmx"+heap, "-XX:MaxDirectMemorySize="+heap, //nolint:noctx // It outlives this call; open ties it to a context.
			// These are the flags of RocketMQ's own start script, with its additions for a Java later than 8.
			"-XX:+UseG1GC", "-XX:G1HeapRegionSize=16m", "-XX:G1ReservePercent=25", "-XX:InitiatingHeapOccupancyPercent=30",
			"--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED", "--add-opens=java.base/java.nio=ALL-UNNAMED", "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
			"-Duser.home="+work.dir, "-Drocketmq.home.dir="+work.dir,
			"-cp", filepath.Join(lib, "*"), class, "-c", work.path(rocketMQConf))
	}
}

// portForRocketMQ returns a free port for which the port two below is free, too. The broker also listens there, for
// requests of producers that may not wait behind others.
func portForRocketMQ(ctx context.Context) (int, error) {
	var listen net.ListenConfig
	var last error
	for range 20 {
		ports, err := freePorts(ctx, 1)
		if err != nil {
			return 0, err
		}
		l, err := listen.Listen(ctx, "tcp", loopback(ports[0]-2))
		if err == nil {
			return ports[0], l.Close()
		}
		last = err
	}
	return 0, fmt.Errorf("finding a free port with another two below it: %w", last)
}

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// listens only connects, because a name server without a broker has no data to ask for.
func listens(ctx context.Context, addrs []string) error {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", addrs[0])
	if err != nil {
		return err
	}
	return c.Close()
}
