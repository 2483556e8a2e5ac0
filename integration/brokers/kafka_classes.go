package brokers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// kafkaClasses returns the flags of a JVM that runs a Kafka of minutes. It takes the classes from an archive, in which
// they lie as they are in memory: half of what a start costs is to read, check and lay them out. A Kafka that was
// started for that and ended again has written it, once per machine. A JVM to which it does not fit takes no notice of it.
func kafkaClasses(ctx context.Context, java string, logf func(string, ...any)) ([]string, error) {
	program, err := filepath.EvalSymlinks(java)
	if err != nil {
		return nil, fmt.Errorf("finding java: %w", err)
	}
	info, err := os.Stat(program)
	if err != nil {
		return nil, fmt.Errorf("finding java: %w", err)
	}
	recipe := fmt.Appendf(nil, "1 %s %d %s %q\n%s", program, info.Size(), info.ModTime(), briefJVM, kafkaPOM)
	dir, err := cached(ctx, "kafka-"+kafkaVersion+"-classes", recipe, logf, func(ctx context.Context, dir string) error {
		archive := filepath.Join(dir, classArchive)
		o := KafkaOptions{Own: true, Brief: true, Heap: defaultHeap, classesTo: archive}
		complete(&o.StartTimeout, &o.Logf, logf)
		b, err := nativeKafka(ctx, o)
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
		logf("kafka starts without an archive of its classes, and takes longer: %v", err)
		return briefJVM, nil
	}
	return append([]string{"-XX:SharedArchiveFile=" + filepath.Join(dir, classArchive)}, briefJVM...), nil
}

const classArchive = "classes.jsa"
