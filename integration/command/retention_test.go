package command_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redeliver/redeliver/integration/brokers"
)

// A DLQ has the retention of "run --retention", as its broker reports it. A run with another retention is refused. A
// run without the flag accepts the existing one.
func TestTheRetentionOfADLQ(t *testing.T) {
	t.Parallel()
	onEachBroker(t, func(t *testing.T, s *shop) {
		if strings.HasPrefix(s.url, "sqs") {
			if !brokers.Proving {
				t.Skip("ElasticMQ has no MessageRetentionPeriod; make prove runs this on moto, which has it")
			}
			s = sqsShopAt(t, brokers.RequireMoto(t))
		}
		s.handles("--retention", "96h")
		row := map[string]any{}
		for _, one := range s.rows(doneOrPartly, append([]string{"dlq", "list"}, s.flags...)...) {
			if one["dlq"] == s.dlq {
				row = one
			}
		}
		if row["keeps"] != "96h0m0s" {
			t.Errorf("%s is listed as %v, want it to keep messages for 96 h", s.dlq, row)
		}
		s.handles()
		cmd, errs := s.running("--retention", "48h")
		late := time.AfterFunc(maxWait, func() { _ = cmd.Process.Kill() })
		defer late.Stop()
		if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 2 && cmd.ProcessState.ExitCode() != 1 || !strings.Contains(errs.String(), s.dlq) {
			t.Errorf("a run with another retention ended with %v: %s", err, errs.String())
		}
		t.Logf("report: another retention is refused: %s", strings.TrimSpace(errs.String()))
	})
}

// running starts "run" with a handler that fails each message.
func (s *shop) running(flags ...string) (cmd *exec.Cmd, errs *bytes.Buffer) {
	s.t.Helper()
	args := append([]string{"run", "--retries", "0"}, s.whose...)
	if strings.HasPrefix(s.url, "amqp:") {
		args = append(args, s.flags...)
	}
	cmd = exec.Command(filepath.Join(built, "redeliver"), append(append(args, flags...), "--exec", "--", "false")...)
	errs = new(bytes.Buffer)
	cmd.Env, cmd.Stderr = append(os.Environ(), "REDELIVER_BROKER="+s.url), errs
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	return cmd, errs
}

// handles waits until one more message is in the DLQ.
func (s *shop) handles(flags ...string) {
	s.t.Helper()
	look := func() (n int) {
		cmd := exec.Command(filepath.Join(built, "redeliver"), "dlq", "show", s.dlq, "--output", "jsonl")
		cmd.Env = append(os.Environ(), "REDELIVER_BROKER="+s.url)
		out, err := cmd.Output()
		if err != nil {
			return 0 // it does not exist yet
		}
		return bytes.Count(out, []byte("\n"))
	}
	want := look() + 1
	cmd, errs := s.running(flags...)
	s.send("to fail")
	for began := time.Now(); look() < want; {
		if time.Since(began) > maxWait {
			_ = cmd.Process.Kill()
			s.t.Fatalf("%s did not have %d messages within %s: %s", s.dlq, want, maxWait, errs.String())
		}
		<-time.After(betweenLooks)
	}
	_ = cmd.Process.Signal(syscall.SIGTERM)
	if err := cmd.Wait(); err != nil {
		s.t.Fatalf("run ended with %v: %s", err, errs.String())
	}
}
