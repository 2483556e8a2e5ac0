package kafka_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/delayqueue"
	"github.com/redeliver/redeliver/integration/brokers"
	"github.com/redeliver/redeliver/internal/kafkatest"
)

// copies counts what who reads only committed records sees on the levels and in the DLQ
// of a group in which everything fails.
type copies struct {
	copyConfig
	dir    string
	client *kgo.Client
	reader *kafkatest.Reader // of the levels and the DLQ
	starts int

	seen map[string]int  // by topic, message and attempts
	dead map[string]bool // messages in the DLQ
}

func newCopies(t *testing.T, transactions bool) *copies {
	t.Helper()
	name := strings.ToLower(rand.Text()[:10])
	c := &copies{
		copyConfig: copyConfig{Addrs: brokers.RequireKafka(t), Topic: "copies-" + name, Group: "g-" + name, Transactions: transactions},
		dir:        t.TempDir(), seen: make(map[string]int), dead: make(map[string]bool),
	}
	var err error
	if c.client, err = kgo.NewClient(kgo.UnknownTopicRetries(50), kgo.SeedBrokers(c.Addrs...)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.client.Close)
	topics := []string{c.Topic, c.Topic + "." + c.Group + ".dlq"}
	for _, level := range copyLevels {
		topics = append(topics, c.Topic+"."+c.Group+".retry."+delayqueue.LevelName(level))
	}
	// The reader must not look for what is not there yet.
	admin := kadm.NewClient(c.client)
	forever, bytes := "-1", "4194304"
	for i, topic := range topics {
		var settings map[string]*string
		if i > 0 {
			settings = map[string]*string{"retention.ms": &forever, "max.message.bytes": &bytes}
		}
		kafkatest.MakeTopic(t, admin, 4, settings, topic)
	}
	if c.reader, err = kafkatest.NewReader(c.Addrs, topics[1:]...); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.reader.Close)
	return c
}

func (c *copies) take(r *kgo.Record) {
	attempts := ""
	for _, h := range r.Headers {
		if h.Key == redeliver.HeaderAttempt {
			attempts = string(h.Value)
		}
	}
	c.seen[r.Topic+" "+string(r.Value)+" "+attempts]++
	if strings.HasSuffix(r.Topic, ".dlq") {
		c.dead[string(r.Value)] = true
	}
}

func (c *copies) start(t *testing.T, instance string) child {
	t.Helper()
	c.starts++
	cfg := c.copyConfig
	cfg.Instance = instance
	return startChild(t, copyEnv, cfg, filepath.Join(c.dir, fmt.Sprintf("child-%d.log", c.starts)))
}

// steady writes so many messages a second, and calls at before the given ones.
func (c *copies) steady(t *testing.T, n, rate int, at map[int]func()) {
	t.Helper()
	const tick = 20 * time.Millisecond
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	chunk := rate * int(tick) / int(time.Second)
	for i := 0; i < n; {
		<-ticker.C
		var recs []*kgo.Record
		for end := min(n, i+chunk); i < end; i++ {
			if do := at[i]; do != nil {
				do()
			}
			id := fmt.Sprintf("m%05d", i)
			recs = append(recs, &kgo.Record{Topic: c.Topic, Key: []byte(id), Value: []byte(id)})
		}
		if err := c.client.ProduceSync(t.Context(), recs...).FirstErr(); err != nil {
			t.Error(err)
			return
		}
	}
}

// await returns when so many messages are in the DLQ.
func (c *copies) await(t *testing.T, n int) {
	t.Helper()
	c.wait(t, n, "messages in the DLQ", func() int { return len(c.dead) })
}

func (c *copies) wait(t *testing.T, n int, what string, seen func() int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	defer cancel()
	for seen() < n {
		if err := c.reader.Poll(ctx, c.take); err != nil {
			for i := range c.starts {
				log, _ := os.ReadFile(filepath.Join(c.dir, fmt.Sprintf("child-%d.log", i+1)))
				t.Logf("child %d:\n%s", i+1, log)
			}
			t.Fatalf("%d of %d %s: %v", seen(), n, what, err)
		}
	}
}

// more is how many records there are that were there before, once all is read that is
// there now: nobody writes any more.
func (c *copies) more(t *testing.T) (n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	defer cancel()
	if err := c.reader.ToEnd(ctx, c.take); err != nil {
		t.Fatal(err)
	}
	for _, times := range c.seen {
		n += times - 1
	}
	return n
}

// A process that is killed at 2,000 failing messages a second leaves copies, which climb
// the levels by themselves, and none where forwards and offsets are in one transaction.
func TestAKillLeavesNoCopyWithTransactions(t *testing.T) {
	t.Parallel()
	const rate, seconds, kills = 2000, 3, 3
	for name, transactions := range map[string]bool{"by default": false, "with transactions": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCopies(t, transactions)
			p := c.start(t, "one")
			var written sync.WaitGroup
			written.Go(func() { c.steady(t, rate*seconds, rate, nil) })
			defer written.Wait()
			for i := range kills { // in the midst of its work
				c.wait(t, (i+1)*rate*seconds/2, "records", func() int { return len(c.seen) })
				p.end(syscall.SIGKILL)
				p = c.start(t, "one")
			}
			c.await(t, rate*seconds)
			p.end(syscall.SIGTERM)
			n := c.more(t)
			t.Logf("report: %s: %d kills at %d failing/s left %d copies on levels and in the DLQ", name, kills, rate, n)
			if (n > 0) == transactions {
				t.Errorf("%d copies", n)
			}
		})
	}
}

// Members come and go, and one stands still until its session is over and others have
// its partitions: what it had in hand is written by nobody twice when it goes on.
func TestAZombieLeavesNoCopyWithTransactions(t *testing.T) {
	t.Parallel()
	const rate, n = 500, 4000
	c := newCopies(t, true)
	a := c.start(t, "")
	b := c.start(t, "")
	var third child
	c.steady(t, n, rate, map[int]func(){
		rate: func() { third = c.start(t, "") },
		2 * rate: func() {
			if err := b.Signal(syscall.SIGSTOP); err != nil {
				t.Error(err)
			}
		},
		7 * rate: func() { // its session is 3 s
			if err := b.Signal(syscall.SIGCONT); err != nil {
				t.Error(err)
			}
			a.end(syscall.SIGTERM)
		},
	})
	c.await(t, n)
	b.end(syscall.SIGTERM)
	third.end(syscall.SIGTERM)
	if copied := c.more(t); copied > 0 {
		t.Errorf("%d copies", copied)
	}
}
