package brokers

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
)

// formatKafka writes server.properties and formats the data directory of a node of the cluster, which KRaft requires
// before the first start. Kafka's StorageTool does that in a JVM, which takes seconds. So it runs once per machine, and
// its output is reused: only three numbers differ between nodes.
func formatKafka(ctx context.Context, java, lib string, work *workDir, settings map[string]string, cluster, version string, logf func(string, ...any)) error {
	_, pom := kafkaJars(version)
	recipe := fmt.Appendf(nil, "2 %s\n%s", formatSettings("data"), pom)
	formatted, err := cached(ctx, "kafka-"+version+"-formatted", recipe, logf, func(ctx context.Context, dir string) error {
		return runStorageTool(ctx, java, lib, dir)
	})
	if err != nil {
		return err
	}
	if err := os.CopyFS(work.path("data"), os.DirFS(filepath.Join(formatted, "data"))); err != nil {
		return fmt.Errorf("copying a formatted directory: %w", err)
	}
	meta := map[string]string{"version": "1", "cluster.id": cluster, "node.id": settings["node.id"], "directory.id": kafkaUUID()}
	for name, text := range map[string]string{"data/meta.properties": properties(meta), "server.properties": properties(settings)} {
		if err := os.WriteFile(work.path(name), []byte(text), 0o600); err != nil {
			return fmt.Errorf("writing kafka's %s: %w", name, err)
		}
	}
	return nil
}

// formatSettings returns the settings of the node whose directory is formatted.
func formatSettings(data string) string {
	return properties(kafkaNative(KafkaOptions{}, data, 1, 2, 3))
}

func runStorageTool(ctx context.Context, java, lib, dir string) error {
	if err := os.WriteFile(filepath.Join(dir, "server.properties"), []byte(formatSettings(filepath.Join(dir, "data"))), 0o600); err != nil {
		return fmt.Errorf("writing server.properties: %w", err)
	}
	cmd := exec.CommandContext(ctx, java, append(slices.Clone(briefJVM), "-cp", filepath.Join(lib, "*"), "kafka.tools.StorageTool",
		"format", "-t", kafkaUUID(), "-c", filepath.Join(dir, "server.properties"))...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return errors.Join(fmt.Errorf("kafka's StorageTool could not format %s: %w", dir, err), errors.New(lastLines(string(out), 30)))
	}
	return nil
}

// kafkaUUID returns a UUID like StorageTool's random-uuid: the id of a cluster, or of a directory.
func kafkaUUID() string {
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails
	id[0] &= 0x7f           // a leading '-' would look like an option
	return base64.RawURLEncoding.EncodeToString(id[:])
}
