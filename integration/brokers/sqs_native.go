package brokers

import (
	"context"
	_ "embed" // for the pom below
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

//go:embed elasticmq/pom.xml
var elasticMQPOM []byte

func nativeSQS(ctx context.Context, o SQSOptions) (*SQSServer, error) {
	return onFreePorts("elasticmq", inUse, o.Logf, func() (*SQSServer, error) { return nativeSQSOnce(ctx, o) })
}

func nativeSQSOnce(ctx context.Context, o SQSOptions) (*SQSServer, error) {
	java, lib, err := javaOf("elasticmq", EnvSQS, elasticMQPOM)
	if err != nil {
		return nil, err
	}
	flags, err := o.jvm(ctx, java)
	if err != nil {
		return nil, err
	}
	ports, err := freePorts(ctx, 1)
	if err != nil {
		return nil, err
	}
	work, err := newWorkDir("elasticmq")
	if err != nil {
		return nil, err
	}
	args := append([]string{"-Xmx" + o.Heap}, flags...)
	args = append(args, "-Djava.awt.headless=true", "-Dconfig.file="+work.path("elasticmq.conf"),
		"-cp", filepath.Join(lib, "*"), "org.elasticmq.server.Main")
	c := &child{work: work, command: func() *exec.Cmd {
		return exec.Command(java, args...) //nolint:noctx // It outlives this call; open ties it to a context.
	}}
	conf := sqsConf(sqsSettings(o, "127.0.0.1", ports[0], ports[0], work.path("messages")))
	if err := os.WriteFile(work.path("elasticmq.conf"), []byte(conf), 0o600); err != nil {
		_, removed := c.remove(false)
		return nil, errors.Join(fmt.Errorf("writing elasticmq.conf: %w", err), removed)
	}
	return newSQS(ctx, "ElasticMQ "+elasticMQVersion+" (native)", c, ports[0], o.StartTimeout, o.Logf)
}

// jvm returns the flags of the JVM.
func (o SQSOptions) jvm(ctx context.Context, java string) ([]string, error) {
	switch {
	case o.classesTo != "":
		return writesClasses(o.classesTo), nil
	case o.Brief:
		return elasticMQClasses(ctx, java, o.Logf)
	default:
		return nil, nil
	}
}
