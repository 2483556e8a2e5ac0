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
	settled  map[string]map[int]bool // by key and number
	nSettled int                     // distinct messages
	wrong    []string
	repeats  int // attempts of settled messages
}

// readJournal checks the journal: no attempt begins before all earlier messages of its key are settled. A settled
// message may run again, because its process was killed.
func (c perKeyConfig) readJournal(t *testing.T) *perKeyJournal {
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
				j.nSettled++
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

// check fails the test if the order was violated.
func (j *perKeyJournal) check(t *testing.T) {
	t.Helper()
	for _, w := range j.wrong[:min(len(j.wrong), 10)] {
		t.Error(w)
	}
}

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
	killed := make(chan struct{})
	go func() {
		defer close(killed)
		cfg.killRepeatedly(t, all, kills)
	}()
	cfg.writeAhead(t, client)
	<-killed
	for _, p := range all {
		p.end(syscall.SIGTERM)
	}
	j := cfg.readJournal(t)
	j.check(t)
	t.Logf("report: %d messages of %d keys, %d attempts repeated by %d kills", j.nSettled, perKeyKeys, j.repeats, kills)
	cfg.checkDeadLetters(t)
}

// killRepeatedly ends random processes, most by SIGKILL, and replaces each in all.
func (c perKeyConfig) killRepeatedly(t *testing.T, all []child, kills int) {
	t.Helper()
	r := mathrand.New(mathrand.NewPCG(c.Seed, 1))
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
		victim := r.IntN(len(all))
		all[victim].end(how)
		all[victim] = startPerKey(t, c, len(all)+i)
	}
}

// writeAhead writes all messages in rounds, a little ahead of the handlers, and returns when they are settled or the
// order was violated. A round has one message of each key.
func (c perKeyConfig) writeAhead(t *testing.T, client *kgo.Client) {
	t.Helper()
	deadline := time.After(5 * time.Minute)
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for round := 0; ; {
		j := c.readJournal(t)
		if len(j.wrong) > 0 || j.nSettled == perKeyKeys*perKeyEach {
			return
		}
		if round < perKeyEach && j.nSettled >= (round-8)*perKeyKeys {
			var recs []*kgo.Record
			for k := range perKeyKeys {
				recs = append(recs, &kgo.Record{Topic: c.Topic, Key: fmt.Append(nil, "key-", k), Value: binary.BigEndian.AppendUint32(nil, uint32(round))})
			}
			if err := client.ProduceSync(t.Context(), recs...).FirstErr(); err != nil {
				t.Fatal(err)
			}
			round++
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("%d of %d messages were settled within 5 minutes", j.nSettled, perKeyKeys*perKeyEach)
		}
	}
}

// checkDeadLetters checks that the dead letters of a key are in the order of the origin. A kill may have written one
// twice.
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
