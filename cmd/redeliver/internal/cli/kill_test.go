package cli_test

import (
	"context"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/redeliver/redeliver/cmd/redeliver/internal/cli"
)

// asCommand makes this test's binary run the command, so that the test can kill it.
const asCommand = "REDELIVER_TEST_AS_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		os.Exit(cli.Run(context.Background(), os.Args[1:], cli.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Env: os.Getenv, MaxClose: maxWait}))
	}
	os.Exit(m.Run())
}

// A replay of 1,000 dead letters is killed (kill -9) three times during a write, and resumed each time. Every message
// is then in the retry topic and none is left in the DLQ. Each kill leaves at most one window of duplicates.
func TestAKilledReplayIsResumedAndLosesNothing(t *testing.T) {
	t.Parallel()
	const n, window, kills = 1000, 20, 3
	seed := rand.Uint64()
	t.Logf("report: seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	s := newTestKafka(t)
	recs := make([]*kgo.Record, n)
	for i := range recs {
		recs[i] = dead(i, int32(i%2), declined)
	}
	s.put(recs...)
	var left atomic.Int32 // writes to the retry topic or of the record until the kill
	var victim atomic.Pointer[os.Process]
	s.onWrite(func(string) {
		if left.Add(-1) == 0 {
			_ = victim.Load().Kill() // fails only if the process has already ended
		}
	})
	args := []string{"dlq", "replay", dlq, "--note", "test", "--window", strconv.Itoa(window)}
	killed := 0
	for range kills {
		cmd := exec.Command(os.Args[0], append(args, "--lease", "2s", "--yes", "--broker", s.url)...)
		cmd.Env = append(os.Environ(), asCommand+"=1", "REDELIVER_WHO=ann@ops-1")
		var said strings.Builder
		cmd.Stderr = &said
		left.Store(math.MaxInt32)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		victim.Store(cmd.Process)
		left.Store(int32(8 + random.IntN(30))) // after the claim and the record of the task
		switch err := cmd.Wait(); {
		case err == nil:
			t.Fatal("it was done before it was killed")
		case cmd.ProcessState.Exited(): // on a machine that paused for longer than the claim lasts
			t.Logf("report: it ended before it was killed: %v: %s", err, said.String())
		default:
			killed++
		}
		switch tasks := s.run("dlq", "tasks", dlq, "-o", "json").want(t, 0).objects(t); {
		case len(tasks) > 0:
			args = []string{"dlq", "resume", dlq, tasks[0]["id"].(string)}
		case !cmd.ProcessState.Exited(): // otherwise it lost its claim before it could record a task
			t.Fatal("it was killed after the record of its task, which is missing")
		}
		s.await("the claim of the one before has run out", func() bool {
			return s.run("dlq", "list", "-o", "json").want(t, 0).objects(t)[0]["running"] == nil
		})
	}
	left.Store(math.MaxInt32)
	before := s.written(back)
	s.run(append(args, "--yes")...).want(t, 0)
	s.run("dlq", "check", dlq).want(t, 0)
	sent := int(s.written(back))
	if seen := s.ids(back, sent); len(seen) != n {
		t.Errorf("%d of %d messages are on the retry topic", len(seen), n)
	}
	t.Logf("report: %d kills; %d were sent before the last, %d are there twice", killed, before, sent-n)
	if killed == 0 {
		t.Error("none was killed")
	}
	if sent-n > kills*window {
		t.Errorf("%d duplicates by %d kills, at most %d are allowed", sent-n, kills, kills*window)
	}
}
