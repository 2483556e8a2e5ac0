package main

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"strings"

	"github.com/redeliver/redeliver/integration/brokers"
)

//go:embed java
var javaSources embed.FS

// The sides in Java. They speak as this program does as a child.
const (
	springDefault side = "spring"
	springTuned   side = "spring-tuned"
)

// How Spring calls what stands behind a topic where all delays are the same, and the group that reads the first.
const (
	springRetry = "-retry"
	springDLT   = "-dlt"
)

func (s side) spring() bool { return s == springDefault || s == springTuned }

// buildJava compiles the sides in Java, once per machine.
func (e *experiment) buildJava(ctx context.Context) (*brokers.JavaProject, error) {
	sources, err := fs.Sub(javaSources, "java")
	if err != nil {
		return nil, err
	}
	return brokers.Java(ctx, "bench", sources, e.sayf)
}

// springCommand is a run of Spring's side. Its heap is what a JVM takes by itself.
func springCommand(built *brokers.JavaProject, s spec) []string {
	return []string{
		built.Java, "-Dorg.slf4j.simpleLogger.defaultLogLevel=off", "-Dbrokers=" + strings.Join(s.Brokers, ","),
		"-Dtopic=" + s.Topic, "-Dgroup=" + s.Group, fmt.Sprintf("-Dmessages=%d", s.Messages), fmt.Sprintf("-Dtuned=%t", s.Side == springTuned),
		"-cp", built.Classpath, "redeliver.bench.SpringSide",
	}
}

// program is the command of a child.
func (s spec) program(self string) *exec.Cmd {
	if s.Program != nil {
		return exec.Command(s.Program[0], s.Program[1:]...) //nolint:noctx // As this program's own children; it ends by itself, or is killed.
	}
	return exec.Command(self, childCommand) //nolint:noctx // It ends when its input ends, so that it can close in order.
}

// unsettledOfSpring is what neither of Spring's two groups has committed.
func (c *cluster) unsettledOfSpring(ctx context.Context, s spec) (int64, error) {
	first, err := c.lag(ctx, s.Group, s.Topic)
	if err != nil {
		return 0, err
	}
	again, err := c.lag(ctx, s.Group+springRetry, s.Topic+springRetry)
	return first + again, err
}

// dropSpring deletes what Spring has made behind a topic.
func (c *cluster) dropSpring(ctx context.Context, n names) error {
	_, err := c.admin.DeleteTopics(ctx, n.topic+springRetry, n.topic+springDLT)
	_, bad := c.admin.DeleteGroups(ctx, n.ours+springRetry)
	return errors.Join(err, bad)
}
