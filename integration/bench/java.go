package main

import (
	"context"
	"embed"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/redeliver/redeliver/integration/brokers"
)

//go:embed java
var javaSources embed.FS

// The sides in Java. They use the protocol of this program's children.
const (
	springDefault side = "spring"
	springTuned   side = "spring-tuned"
	springThreads side = "spring-tuned-threads" // a thread for each partition
	rocketDefault side = "rocketmq"
	rocketTuned   side = "rocketmq-tuned"
)

// Spring's suffixes for the retry topic (if all delays are equal) and its group, and for the dead-letter topic.
const (
	springRetry = "-retry"
	springDLT   = "-dlt"
)

func (s side) spring() bool { return s == springDefault || s == springTuned || s == springThreads }

func (s side) rocket() bool { return s == rocketDefault || s == rocketTuned }

func (s side) java() bool { return s.spring() || s.rocket() }

// buildJava compiles the sides in Java, once per machine.
func (e *experiment) buildJava(ctx context.Context) (*brokers.JavaProject, error) {
	sources, err := fs.Sub(javaSources, "java")
	if err != nil {
		return nil, err
	}
	return brokers.Java(ctx, "bench", sources, e.sayf)
}

// javaCommand returns the command of a side in Java. Its heap has the JVM's default size.
func javaCommand(built *brokers.JavaProject, s spec) []string {
	common := []string{
		built.Java, "-Dorg.slf4j.simpleLogger.defaultLogLevel=off", "-Dbrokers=" + strings.Join(s.Brokers, ","),
		"-Dtopic=" + s.Topic, "-Dgroup=" + s.Group, fmt.Sprintf("-Dmessages=%d", s.Messages), fmt.Sprintf("-Dwarm=%d", s.Warm), fmt.Sprintf("-Dfailing=%t", s.Failing.Every > 0),
	}
	if s.Side.rocket() {
		return slices.Concat(common, []string{
			"-Drocketmq.log.root=" + rocketLogs(), "-Drocketmq.log.level=off", fmt.Sprintf("-Dtuned=%t", s.Side == rocketTuned), fmt.Sprintf("-Dretries=%d", retries),
			"-cp", built.Classpath, "redeliver.bench.RocketSide",
		})
	}
	threads := 1
	if s.Side == springThreads {
		threads = partitions
	}
	return slices.Concat(common, []string{
		fmt.Sprintf("-Dtuned=%t", s.Side != springDefault), fmt.Sprintf("-Dthreads=%d", threads), "-cp", built.Classpath, "redeliver.bench.SpringSide",
	})
}

// rocketLogs is where RocketMQ's client creates its log file, although logging is off. The default is the
// user's home.
func rocketLogs() string {
	return filepath.Join(os.TempDir(), fmt.Sprintf("redeliver-bench-rocketmq-%d", os.Getpid()))
}

// program is the command of a child.
func (s spec) program(self string) *exec.Cmd {
	if s.Program != nil {
		return exec.Command(s.Program[0], s.Program[1:]...) //nolint:noctx // As this program's own children; it ends on its own, or is killed.
	}
	return exec.Command(self, childCommand) //nolint:noctx // It ends when its input ends, so that it can close in order.
}

// unsettledOfSpring counts what Spring's two groups have not committed.
func (c *cluster) unsettledOfSpring(ctx context.Context, s spec) (int64, error) {
	first, err := c.lag(ctx, s.Group, s.Topic)
	if err != nil {
		return 0, err
	}
	again, err := c.lag(ctx, s.Group+springRetry, s.Topic+springRetry)
	return first + again, err
}
