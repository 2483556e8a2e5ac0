//go:build prove

package kafka_test

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	mathrand "math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/redeliver/redeliver/integration/brokers"
	"github.com/redeliver/redeliver/internal/kafkatest"
)

// perKeyJournal is a summary of the journal.
type perKeyJournal struct {
	settled map[string]map[int]bool
	n       int // distinct messages settled
	wrong   []string
	repeats int
}

// read checks the journal: no attempt begins before all earlier messages of its key are settled. A settled message may
// run again, because its process was killed.
func (c perKeyConfig) read(t *testing.T) *perKeyJournal {
	t.Helper()
	f, err := os.Open(c.Journal)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	j := &perKeyJournal{settled: make(map[string]map[int]bool)}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var what, key string
		var n, attempt int
		if _, err := fmt.Sscan(lines.Text(), &what, &key, &n, &attempt); err != nil {
			t.Fatalf("%q: %v", lines.Text(), err)
		}
		done := j.settled[key]
		if done == nil {
			done = make(map[int]bool)
			j.settled[key] = done
		}
		switch {
		case what == "settled":
			if !done[n] {
				done[n] = true
				j.n++
			}
		case done[n]:
			j.repeats++
		default:
			for m := range n {
				if !done[m] {
					j.wrong = append(j.wrong, fmt.Sprintf("attempt %d of %s/%d began before %d was settled", attempt, key, n, m))
					break
				}
			}
		}
	}
	return j
}

// With any failures, and kills in any state, the messages of a key settle one after another, and are dead-lettered in
// their order.
func TestKeysKeepTheirOrderWhileProcessesAreKilled(t *testing.T) {
	t.Parallel()
	const processes, kills = 3, 14
	addrs := brokers.RequireKafka(t)
	topic := "perkey-" + strings.ToLower(rand.Text()[:10])
	cfg := perKeyConfig{Addrs: addrs, Topic: topic, Group: "g-" + topic, Journal: filepath.Join(t.TempDir(), "journal"), Seed: mathrand.Uint64()}
	t.Logf("report: seed %d", cfg.Seed)
	if err := os.WriteFile(cfg.Journal, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	client, err := kgo.NewClient(kgo.UnknownTopicRetries(50), kgo.SeedBrokers(addrs...), kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	admin := kadm.NewClient(client)
	kafkatest.MakeTopic(t, admin, 4, nil, topic)
	var all []child
	for i := range processes {
		all = append(all, startPerKey(t, cfg, i))
	}
	chaos := make(chan struct{})
	go func() {
		defer close(chaos)
		r := mathrand.New(mathrand.NewPCG(cfg.Seed, 1))
		for i := range kills {
			select {
			case <-time.After(time.Duration(500+r.IntN(3500)) * time.Millisecond):
			case <-t.Context().Done():
				return
			}
			how := syscall.SIGKILL
			if i%5 == 4 {
				how = syscall.SIGTERM
			}
			victim := r.IntN(processes)
			all[victim].end(how)
			all[victim] = startPerKey(t, cfg, processes+i)
		}
	}()
	write := func(n int) {
		var recs []*kgo.Record
		for k := range perKeyKeys {
			recs = append(recs, &kgo.Record{Topic: topic, Key: fmt.Append(nil, "key-", k), Value: binary.BigEndian.AppendUint32(nil, uint32(n))})
		}
		if err := client.ProduceSync(t.Context(), recs...).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	// Round after round, a little ahead of the handlers, while some are killed.
	deadline := time.After(5 * time.Minute)
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	var j *perKeyJournal
	for written := 0; ; {
		j = cfg.read(t)
		if len(j.wrong) > 0 || j.n == perKeyKeys*perKeyEach {
			break
		}
		if written < perKeyEach && j.n >= (written-8)*perKeyKeys {
			write(written)
			written++
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("%d of %d messages were settled within 5 minutes", j.n, perKeyKeys*perKeyEach)
		}
	}
	for i, w := range j.wrong {
		if i < 10 {
			t.Error(w)
		}
	}
	<-chaos
	for _, p := range all {
		p.end(syscall.SIGTERM)
	}
	j = cfg.read(t)
	for i, w := range j.wrong {
		if i < 10 {
			t.Error(w)
		}
	}
	t.Logf("report: %d messages of %d keys, %d attempts repeated by %d kills", j.n, perKeyKeys, j.repeats, kills)
	cfg.checkDeadLetters(t)
}

// checkDeadLetters reads the DLQ. The dead letters of a key are in the order of the origin, and are the permanent
// failures. A kill may have written one twice.
func (c perKeyConfig) checkDeadLetters(t *testing.T) {
	t.Helper()
	dlq := fmt.Sprintf("%s.%s.dlq", c.Topic, c.Group)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	letters := make(map[string][]int) // by key, the first of each
	if err := kafkatest.Read(ctx, c.Addrs, func(rec *kgo.Record) {
		key, n := string(rec.Key), int(binary.BigEndian.Uint32(rec.Value))
		if !slices.Contains(letters[key], n) {
			letters[key] = append(letters[key], n)
		}
	}, dlq); err != nil {
		t.Fatal(err)
	}
	if len(letters) == 0 {
		t.Error("nothing was dead-lettered")
	}
	for key, ns := range letters {
		if !slices.IsSorted(ns) {
			t.Errorf("%s was dead-lettered in the order %v", key, ns)
		}
	}
	t.Logf("report: %d keys have dead letters", len(letters))
}
