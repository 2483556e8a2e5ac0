package redis_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	mathrand "math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/adaptertest"
	"github.com/redeliver/redeliver/adapters/pubsub"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/integration/brokers"
	"github.com/redeliver/redeliver/integration/onlooker"
)

// A process that takes dead letters and replays them, and is killed: this binary, started again with undertakerEnv set.
const undertakerEnv = "REDELIVER_TEST_REDIS_UNDERTAKER"

func TestMain(m *testing.M) {
	if raw := os.Getenv(undertakerEnv); raw != "" {
		_, _ = fmt.Fprintln(os.Stderr, undertake(raw))
		os.Exit(1) // it ends by being killed
	}
	os.Exit(m.Run())
}

// undertaker is what the parent tells its children, by that variable.
type undertaker struct {
	Addr   string `json:"addr"`
	Origin string `json:"origin"`
	Dir    string `json:"dir"`
}

const killWindow = 20

// undertake replays whatever it finds, or goes on with what another has begun, until it is killed.
func undertake(raw string) error {
	var u undertaker
	if err := json.Unmarshal([]byte(raw), &u); err != nil {
		return err
	}
	ctx := context.Background()
	client := redis.NewClient(onlooker.Redis(u.Addr))
	c, err := connect(ctx, client, "undertaker-"+rand.Text(), adaptertest.Config{Group: "billing"})
	if err != nil {
		return err
	}
	q, err := c.DeadLetters(ctx, pubsub.DeadLetterConfig{Topic: u.Origin, Dir: u.Dir, Quiet: 100 * time.Millisecond})
	if err != nil {
		return err
	}
	for {
		tasks, err := deadletter.History(ctx, q)
		if err != nil {
			return err
		}
		if n := len(tasks); n > 0 && tasks[n-1].Resumable() {
			_, err = deadletter.Resume(ctx, q, tasks[n-1].ID, "undertaker", deadletter.Report{})
		} else {
			_, err = deadletter.Run(ctx, q, deadletter.Replay{Who: "undertaker", Why: "test", Window: killWindow})
		}
		if err != nil {
			return err
		}
	}
}

// Processes that take letters from a DLQ and replay them are killed at random, with SIGKILL: every letter comes back to
// its group, and few of them twice.
func TestAShelfThatIsKilledAtRandomLosesNothing(t *testing.T) {
	t.Parallel()
	addr := brokers.RequireRedis(t)
	h := newHarness(t, addr)
	origin, groups := h.Origin(t, 1)
	dlq, back := origin+"."+groups[0]+".dlq", origin+"."+groups[0]+".retry"
	seed := mathrand.Uint64()
	random := mathrand.New(mathrand.NewPCG(seed, 1))
	raw, err := json.Marshal(undertaker{addr, origin, t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(onlooker.Redis(addr))
	defer client.Close()

	const kills, each = 10, 60
	wanted := make(map[string]int)
	var log strings.Builder
	start := func() *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), undertakerEnv+"="+string(raw))
		cmd.Stderr = &log
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return cmd
	}
	kill := func(cmd *exec.Cmd) {
		if err := cmd.Process.Kill(); err != nil {
			t.Errorf("a process ended by itself: %v", err)
		}
		_ = cmd.Wait() // it was killed
	}
	came := func() map[string]int {
		entries, err := client.XRange(t.Context(), back, "-", "+").Result()
		if err != nil {
			t.Fatal(err)
		}
		ids := make(map[string]int)
		for _, entry := range entries {
			m, err := letter(entry)
			if err != nil {
				t.Fatal(err)
			}
			ids[m.ID]++
		}
		return ids
	}
	moving := 0 // kills of processes that had replayed something
	for n := range kills {
		var msgs []adaptertest.Message
		for i := range each {
			id := fmt.Sprintf("m-%d-%03d", n, i)
			wanted[id]++
			st := redeliver.State{ID: id, Group: groups[0], Origin: origin, Attempts: 4, Reason: redeliver.ReasonExhausted, LastFailed: time.Now()}
			msgs = append(msgs, adaptertest.Message{ID: id, Body: []byte("body"), Ours: st.AppendHeaders(nil)})
		}
		before := len(came())
		cmd := start()
		h.Put(t, dlq, msgs...)
		<-time.After(time.Duration(100+random.IntN(1200)) * time.Millisecond) // it is killed in the midst of something
		kill(cmd)
		if len(came()) > before {
			moving++
		}
	}
	last := start()
	defer kill(last)
	deadline := time.Now().Add(adaptertest.Patience)
	var ids map[string]int
	for len(ids) < len(wanted) {
		if time.Now().After(deadline) {
			t.Fatalf("seed %d: %d of %d letters have come back to their group\n%s", seed, len(ids), len(wanted), log.String())
		}
		<-time.After(100 * time.Millisecond) // Redis tells nobody but a reader
		ids = came()
	}
	again := 0
	for id, n := range ids {
		again += n - 1
		if wanted[id] == 0 {
			t.Errorf("%s came back, which was never dead", id)
		}
	}
	t.Logf("report: seed %d: %d letters, %d kills (%d of them of one that had replayed), %d replayed twice", seed, len(ids), kills, moving, again)
	if most := kills * (killWindow + 3*8); again > most { // a window, and what the lanes had in hand
		t.Errorf("%d were replayed twice, want at most %d", again, most)
	}
	if moving == 0 {
		t.Error("none had replayed anything when it was killed: the test proves nothing")
	}
}
