package brokers

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/exec"
	"strconv"
	"time"
)

// MotoOptions configures a moto server.
type MotoOptions struct {
	// Own requests a server that nobody else uses, even if the environment gives one. Default false.
	Own bool
	// StartTimeout bounds every wait for readiness. Default 8 min, because a machine that also runs test suites is
	// slow.
	StartTimeout time.Duration
	// Logf logs what is started and how. Default: the standard logger, which writes to stderr.
	Logf func(format string, args ...any)
}

// Moto starts a moto server, or uses the one from the environment, and returns when it answers. The server keeps all
// data in memory, so Kill and Start empty it. It never runs in docker, because the tests that use SQS through boto3
// need its virtual environment in any case; see [Python].
func Moto(ctx context.Context, o MotoOptions) (*SQSServer, error) {
	complete(&o.StartTimeout, &o.Logf, log.Printf)
	if url := os.Getenv(EnvMoto); url != "" && !o.Own {
		return givenSQS(ctx, url, EnvMoto, EnvMotoRestart, "MotoOptions.Own", o.StartTimeout, o.Logf)
	}
	began := time.Now()
	s, err := onFreePorts("moto", inUse, o.Logf, func() (*SQSServer, error) { return startMoto(ctx, o) })
	if err != nil {
		return nil, fmt.Errorf("starting a moto server for the tests: %w", err)
	}
	o.Logf("%s, up in %.1fs", s, time.Since(began).Seconds())
	return s, nil
}

func startMoto(ctx context.Context, o MotoOptions) (*SQSServer, error) {
	python, err := Python()
	if err != nil {
		return nil, err
	}
	ports, err := freePorts(ctx, 1)
	if err != nil {
		return nil, err
	}
	work, err := newWorkDir("moto")
	if err != nil {
		return nil, err
	}
	c := &child{work: work, command: func() *exec.Cmd {
		//nolint:noctx // It outlives this call; open ties it to a context.
		return exec.Command(python, "-u", "-m", "moto.server", "-H", "127.0.0.1", "-p", strconv.Itoa(ports[0]))
	}}
	return newSQS(ctx, "moto "+motoVersion()+" (native)", c, ports[0], o.StartTimeout, o.Logf)
}
