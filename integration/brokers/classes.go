package brokers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// kafkaClasses returns the flags of a JVM that runs a Kafka of minutes.
func kafkaClasses(ctx context.Context, java string, logf func(string, ...any)) ([]string, error) {
	return classesOf(ctx, java, "kafka-"+kafkaVersion, kafkaPOM, logf, func(ctx context.Context, archive string) (*Broker, error) {
		o := KafkaOptions{Own: true, Brief: true, Heap: defaultHeap, classesTo: archive}
		complete(&o.StartTimeout, &o.Logf, logf)
		return nativeKafka(ctx, o)
	})
}

// elasticMQClasses are those of an ElasticMQ of minutes.
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

// classesOf returns the flags of a JVM that runs a broker of minutes. It takes the classes from an archive, in which
// they lie as they are in memory: half of what a start costs is to read, check and lay them out. A broker that was
// started for that and ended again has written it, once per machine. A JVM to which it does not fit takes no notice of it.
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
		if c, ok := b.sys.(*child); ok { // as all native brokers are
			err = c.stopWithin(3 * time.Minute) // at its end it writes them
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

// writesClasses are the flags of the one that writes the archive.
func writesClasses(archive string) []string {
	return append([]string{"-XX:ArchiveClassesAtExit=" + archive}, briefJVM...)
}

const classArchive = "classes.jsa"
