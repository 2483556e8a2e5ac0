package brokers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// kafkaClasses returns the flags of a JVM for a Kafka that runs for minutes.
func kafkaClasses(ctx context.Context, java, version string, logf func(string, ...any)) ([]string, error) {
	_, pom := kafkaJars(version)
	return classesOf(ctx, java, "kafka-"+version, pom, logf, func(ctx context.Context, archive string) (*Broker, error) {
		o := KafkaOptions{Own: true, Version: version, Brief: true, Heap: defaultHeap, classesTo: archive}
		complete(&o.StartTimeout, &o.Logf, logf)
		return nativeKafka(ctx, o)
	})
}

// elasticMQClasses returns the flags of a JVM for an ElasticMQ that runs for minutes.
func elasticMQClasses(ctx context.Context, java string, logf func(string, ...any)) ([]string, error) {
	return classesOf(ctx, java, "elasticmq-"+elasticMQVersion, elasticMQPOM, logf, func(ctx context.Context, archive string) (*Broker, error) {
		o := SQSOptions{Own: true, Brief: true, Heap: defaultHeap, classesTo: archive}
		complete(&o.StartTimeout, &o.Logf, logf)
		s, err := nativeSQS(ctx, o)
		if err != nil {
			return nil, err
		}
		return s.Broker, nil
	})
}

// classesOf returns the flags of a JVM for a broker that runs for minutes. The JVM loads classes from an archive in
// their memory layout, because reading, checking and laying them out takes half of a start. Once per machine, a broker
// is started and ended to write the archive. A JVM ignores an archive that does not fit it.
func classesOf(
	ctx context.Context, java, name string, pom []byte, logf func(string, ...any), start func(ctx context.Context, archive string) (*Broker, error),
) ([]string, error) {
	program, err := filepath.EvalSymlinks(java)
	if err != nil {
		return nil, fmt.Errorf("finding java: %w", err)
	}
	info, err := os.Stat(program)
	if err != nil {
		return nil, fmt.Errorf("finding java: %w", err)
	}
	recipe := fmt.Appendf(nil, "1 %s %d %s %q\n%s", program, info.Size(), info.ModTime(), briefJVM, pom)
	dir, err := cached(ctx, name+"-classes", recipe, logf, func(ctx context.Context, dir string) error {
		archive := filepath.Join(dir, classArchive)
		b, err := start(ctx, archive)
		if err != nil {
			return err
		}
		if c, ok := b.sys.(*child); ok { // true for all native brokers
			err = c.stopWithin(3 * time.Minute) // it writes the classes when it ends
		}
		_, missing := os.Stat(archive)
		return errors.Join(err, b.Stop(), missing)
	})
	switch {
	case ctx.Err() != nil:
		return nil, err
	case err != nil:
		logf("%s starts without an archive of its classes, and takes longer: %v", name, err)
		return briefJVM, nil
	}
	return append([]string{"-XX:SharedArchiveFile=" + filepath.Join(dir, classArchive)}, briefJVM...), nil
}

// writesClasses returns the flags of the JVM that writes the archive.
func writesClasses(archive string) []string {
	return append([]string{"-XX:ArchiveClassesAtExit=" + archive}, briefJVM...)
}

const classArchive = "classes.jsa"
