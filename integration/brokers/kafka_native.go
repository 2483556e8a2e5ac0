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
	"slices"
)

//go:embed kafka/pom.xml
var kafkaPOM []byte

func nativeKafka(ctx context.Context, o KafkaOptions) (*Broker, error) {
	return onFreePorts("kafka", inUse, o.Logf, func() (*Broker, error) { return nativeKafkaOnce(ctx, o) })
}

func nativeKafkaOnce(ctx context.Context, o KafkaOptions) (*Broker, error) {
	java, lib, err := javaOf(ctx, "kafka", kafkaVersion, EnvKafka, kafkaPOM, o.Logf)
	if err != nil {
		return nil, err
	}
	ports, err := freePorts(ctx, 3)
	if err != nil {
		return nil, err
	}
	work, err := newWorkDir("kafka")
	if err != nil {
		return nil, err
	}
	flags := briefJVM
	if !o.Brief {
		// As Kafka's own start script has it.
		flags = []string{"-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent"}
	}
	k := &child{work: work, command: kafkaCommand(java, lib, work, o.Heap, flags...)}
	if err := formatKafka(ctx, java, lib, work, kafkaNative(o, work.path("data"), ports[0], ports[1], ports[2])); err != nil {
		_, removed := k.remove(false)
		return nil, errors.Join(err, removed)
	}
	return open(ctx, &Broker{
		name:      "Apache Kafka " + kafkaVersion + " (native)",
		addrs:     []string{fmt.Sprintf("127.0.0.1:%d", ports[0])},
		userAddrs: o.userAddrs(ports[2]),
		sys:       k,
		ready:     kafkaIsWhole,
		patience:  o.StartTimeout,
		logf:      o.Logf,
	})
}

// formatKafka writes server.properties and prepares the data directory, which KRaft wants done before the first start.
func formatKafka(ctx context.Context, java, lib string, work *workDir, settings map[string]string) error {
	if err := os.WriteFile(work.path("server.properties"), []byte(properties(settings)), 0o600); err != nil {
		return fmt.Errorf("writing server.properties: %w", err)
	}
	cmd := exec.CommandContext(ctx, java, append(slices.Clone(briefJVM), "-cp", filepath.Join(lib, "*"), "kafka.tools.StorageTool",
		"format", "-t", clusterID(), "-c", work.path("server.properties"))...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("kafka's StorageTool could not format %s: %w; it said:\n%s",
			work.path("data"), err, lastLines(string(out), 30))
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
