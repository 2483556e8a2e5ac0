package brokers

import (
	"context"
	"crypto/rand"
	_ "embed" // for the pom below
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

//go:embed kafka/pom.xml
var kafkaPOM []byte

// kafkaProcess runs one Kafka node as a child process.
type kafkaProcess struct {
	java, lib string
	heap      string
	work      *workDir

	mu   sync.Mutex // start and kill may meet when a context ends
	proc *process
	down bool // stopped or killed by us, while it ran
}

func nativeKafka(ctx context.Context, o KafkaOptions) (*Broker, error) {
	// A free port may be taken by another process before the broker binds it. Rare; other ports then.
	const tries = 3
	for try := 1; ; try++ {
		b, err := nativeKafkaOnce(ctx, o)
		if err == nil || try == tries || !strings.Contains(err.Error(), "Address already in use") {
			return b, err
		}
		o.Logf("kafka's port was taken by somebody else in the meantime, trying others")
	}
}

func nativeKafkaOnce(ctx context.Context, o KafkaOptions) (*Broker, error) {
	java, err := exec.LookPath("java")
	if err != nil {
		return nil, errors.New("java is not installed, and kafka runs on it: " +
			"install Java 17 (apt-get install openjdk-17-jre-headless), or name a running kafka in " + EnvKafka)
	}
	lib, err := jars(ctx, "kafka-"+kafkaVersion, kafkaPOM, o.Logf)
	if err != nil {
		return nil, err
	}
	ports, err := freePorts(ctx, 2)
	if err != nil {
		return nil, err
	}
	work, err := newWorkDir("kafka")
	if err != nil {
		return nil, err
	}
	k := &kafkaProcess{java: java, lib: lib, heap: o.Heap, work: work}
	if err := k.format(ctx, kafkaNative(o, work.path("data"), ports[0], ports[1])); err != nil {
		_, removed := k.remove(false)
		return nil, errors.Join(err, removed)
	}
	return open(ctx, &Broker{
		name:     "Apache Kafka " + kafkaVersion + " (native)",
		addrs:    []string{fmt.Sprintf("127.0.0.1:%d", ports[0])},
		sys:      k,
		ready:    kafkaIsWhole,
		patience: o.StartTimeout,
		logf:     o.Logf,
	})
}

// format writes server.properties and prepares the data directory, which KRaft wants done before the first start.
func (k *kafkaProcess) format(ctx context.Context, settings map[string]string) error {
	if err := os.WriteFile(k.work.path("server.properties"), []byte(properties(settings)), 0o600); err != nil {
		return fmt.Errorf("writing server.properties: %w", err)
	}
	cmd := exec.CommandContext(ctx, k.java, "-cp", filepath.Join(k.lib, "*"), "kafka.tools.StorageTool",
		"format", "-t", clusterID(), "-c", k.work.path("server.properties"))
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("kafka's StorageTool could not format %s: %w; it said:\n%s",
			k.work.path("data"), err, lastLines(string(out), 30))
	}
	return nil
}

// clusterID is what StorageTool's random-uuid prints, without waiting for another JVM.
func clusterID() string {
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails
	id[0] &= 0x7f           // or it might begin with '-', and be taken for an option
	return base64.RawURLEncoding.EncodeToString(id[:])
}

func (k *kafkaProcess) start(ctx context.Context) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	if k.proc.running() {
		return errors.New("it runs already")
	}
	log, err := k.work.openLog()
	if err != nil {
		return err
	}
	defer log.Close()           // the child has its own descriptor
	cmd := exec.Command(k.java, //nolint:noctx // It outlives this call; open ties it to a context.
		"-Xmx"+k.heap,
		// As Kafka's own start script has it.
		"-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35",
		"-XX:+ExplicitGCInvokesConcurrent", "-Djava.awt.headless=true",
		"-Dorg.slf4j.simpleLogger.showDateTime=true", "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
		"-cp", filepath.Join(k.lib, "*"), "kafka.Kafka", k.work.path("server.properties"))
	cmd.Dir = k.work.dir
	cmd.Stdout, cmd.Stderr = log, log
	p, err := startProcess(cmd)
	if err != nil {
		return err
	}
	k.proc, k.down = p, false
	return nil
}

func (k *kafkaProcess) stop(bool) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.down = k.down || k.proc.running()
	return k.proc.terminate(30 * time.Second)
}

func (k *kafkaProcess) kill() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.down = k.down || k.proc.running()
	return k.proc.kill()
}

func (k *kafkaProcess) ended() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.down || k.proc == nil || k.proc.running() {
		return nil
	}
	return k.proc.err
}

func (k *kafkaProcess) logTail() string { return k.work.logTail(40) }

func (k *kafkaProcess) remove(keepLog bool) (string, error) { return k.work.remove(keepLog) }
