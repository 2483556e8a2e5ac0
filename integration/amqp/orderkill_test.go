//go:build prove

package amqp_test

import (
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/integration/brokers"
	"github.com/redeliver/redeliver/integration/consumer"
)

// orderJournal is the content of the journal so far.
type orderJournal struct {
	file    *os.File
	rest    string       // incomplete line
	keys    int          // keys with separate lines
	settled map[int]bool // by the position of a message in the queue
	wrong   []string
	repeats int
	runs    int
	pid     int // the process that began a message last
}

// read checks the new lines: no attempt begins before all earlier messages of its key are settled. A settled message
// may run again, because its process was killed.
func (j *orderJournal) read(t *testing.T) {
	t.Helper()
	news, err := io.ReadAll(j.file)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(j.rest+string(news), "\n")
	j.rest = lines[len(lines)-1]
	for _, line := range lines[:len(lines)-1] {
		var what string
		var key, n, attempt, pid int
		if _, err := fmt.Sscanf(line, "%s key-%d/%d %d %d", &what, &key, &n, &attempt, &pid); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		at := n*orderKeys + key
		if what == "settled" {
			j.settled[at] = true
			continue
		}
		j.runs, j.pid = j.runs+1, pid
		if j.settled[at] {
			j.repeats++
			continue
		}
		for before := at % j.keys; before < at; before += j.keys {
			if !j.settled[before] {
				j.wrong = append(j.wrong, fmt.Sprintf("attempt %d of %s began before %s was settled", attempt, orderAt(at), orderAt(before)))
				break
			}
		}
	}
}

// orderAt returns the id of the message at that position of the queue.
func orderAt(at int) string { return orderID(at%orderKeys, at/orderKeys) }

// With failures and kills at any time, the messages of a queue or key run and are settled one after another, and go
// to the DLQ in order. Unacked ones may run again.
func TestOrderIsKeptWhileProcessesAreKilled(t *testing.T) {
	t.Parallel()
	for i, order := range []redeliver.Order{redeliver.OrderBlocking, redeliver.OrderThroughRetries} {
		for version, r := range inTurn(t, i) {
			t.Run(fmt.Sprintf("%s on %s", order, version), func(t *testing.T) {
				t.Parallel()
				keepsOrderOverKills(t, r, order)
			})
		}
	}
}

func keepsOrderOverKills(t *testing.T, r *brokers.Rabbit, order redeliver.Order) {
	const processes, kills, n = 2, 8, orderKeys * orderEach
	l := newFixture(t, r, func(l *fixture) {
		l.cfg.Policy = redeliver.Policy{Order: order, MaxRetries: orderRetries, Backoff: redeliver.Steps(20*time.Millisecond, 50*time.Millisecond, 100*time.Millisecond)}
		l.cfg.Key = keyOf
	})
	l.declared()
	cfg := orderConfig{URL: r.URL(), Queue: l.queue, Order: order, Journal: filepath.Join(t.TempDir(), "journal"), Seed: mathrand.Uint64()}
	file, err := os.Create(cfg.Journal)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	j := &orderJournal{file: file, keys: map[redeliver.Order]int{redeliver.OrderBlocking: 1, redeliver.OrderThroughRetries: orderKeys}[order], settled: make(map[int]bool)}
	var all []*consumer.Process
	for i := range processes {
		all = append(all, startOrder(t, cfg, i))
	}
	random := mathrand.New(mathrand.NewPCG(cfg.Seed, 1))
	tick, over := time.NewTicker(20*time.Millisecond), time.After(maxWait)
	defer tick.Stop()
	wait := func() {
		select {
		case <-tick.C:
		case <-over:
			t.Fatalf("seed %d: %d of %d messages were settled within %s", cfg.Seed, len(j.settled), n, maxWait)
		}
	}
	killed, written := 0, 0
	for len(j.settled) < n || killed < kills {
		if j.read(t); len(j.wrong) > 0 {
			break
		}
		if written < n && len(j.settled) >= written-8*orderKeys { // a little ahead of the handlers
			var round []string
			for range orderKeys {
				round = append(round, orderAt(written))
				written++
			}
			l.publishMessages(round...)
		}
		if killed < kills && len(j.settled) >= (killed+1)*n/(kills+2) {
			for range random.IntN(5) { // at any time
				wait()
			}
			victim := slices.IndexFunc(all, func(p *consumer.Process) bool { return p.PID() == j.pid })
			if victim < 0 || random.IntN(8) == 0 {
				victim = random.IntN(processes)
			}
			how := syscall.SIGKILL
			if killed%5 == 4 {
				how = syscall.SIGTERM
			}
			all[victim].End(how)
			all[victim] = startOrder(t, cfg, processes+killed)
			killed++
		}
		wait()
	}
	for _, p := range all {
		p.End(syscall.SIGTERM)
	}
	j.read(t)
	for _, w := range j.wrong[:min(10, len(j.wrong))] {
		t.Errorf("seed %d: %s", cfg.Seed, w)
	}
	if t.Failed() {
		return
	}
	l.awaitReady(l.queue, 0)
	t.Logf("report: seed %d, %d messages, %d runs, %d attempts repeated by %d kills, %d dead letters", cfg.Seed, n, j.runs, j.repeats, kills, l.deadInOrder(j.keys))
}

// deadInOrder checks that the dead letters of a key are in the order of the queue. A kill may have written one twice.
// It returns the number of dead letters.
func (l *fixture) deadInOrder(keys int) int {
	l.Helper()
	letters := make(map[int][]int) // by key, the first copy of each
	n := l.ready(l.queue + ".dlq")
	for range n {
		var key, m int
		id := l.getMessage(l.queue + ".dlq").MessageId
		if _, err := fmt.Sscanf(id, "key-%d/%d", &key, &m); err != nil {
			l.Fatalf("%q: %v", id, err)
		}
		at := m*orderKeys + key
		if !slices.Contains(letters[at%keys], at) {
			letters[at%keys] = append(letters[at%keys], at)
		}
	}
	if n == 0 {
		l.Error("nothing was dead-lettered")
	}
	for _, ats := range letters {
		if !slices.IsSorted(ats) {
			l.Errorf("dead-lettered in the order %v", ats)
		}
	}
	return n
}
