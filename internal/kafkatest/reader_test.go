package kafkatest_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/redeliver/redeliver/internal/kafkatest"
)

// topicLog is a topic of one partition with a plain and a transactional producer.
type topicLog struct {
	*testing.T
	cluster   *kfake.Cluster
	plain, tx *kgo.Client
	ctx       context.Context
	read      []string
}

const topic = "orders"

func newLog(t *testing.T) *topicLog {
	t.Helper()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, topic))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	l := &topicLog{T: t, cluster: cluster, ctx: ctx}
	l.plain = l.client()
	l.tx = l.client(kgo.TransactionalID("tx"))
	return l
}

func (l *topicLog) client(opts ...kgo.Opt) *kgo.Client {
	l.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(l.cluster.ListenAddrs()...), kgo.DefaultProduceTopic(topic)}, opts...)...)
	if err != nil {
		l.Fatal(err)
	}
	l.Cleanup(cl.Close)
	return cl
}

func (l *topicLog) write(by *kgo.Client, values ...string) {
	l.Helper()
	for _, v := range values {
		if err := by.ProduceSync(l.ctx, kgo.StringRecord(v)).FirstErr(); err != nil {
			l.Fatal(err)
		}
	}
}

func (l *topicLog) begin(values ...string) {
	l.Helper()
	if err := l.tx.BeginTransaction(); err != nil {
		l.Fatal(err)
	}
	l.write(l.tx, values...)
}

func (l *topicLog) end(how kgo.TransactionEndTry) {
	l.Helper()
	if err := l.tx.EndTransaction(l.ctx, how); err != nil {
		l.Fatal(err)
	}
}

func (l *topicLog) reader() *kafkatest.Reader {
	l.Helper()
	r, err := kafkatest.NewReader(l.cluster.ListenAddrs(), topic)
	if err != nil {
		l.Fatal(err)
	}
	l.Cleanup(r.Close)
	return r
}

func (l *topicLog) take(rec *kgo.Record) { l.read = append(l.read, string(rec.Value)) }

func (l *topicLog) want(err error, values ...string) {
	l.Helper()
	if err != nil || !slices.Equal(l.read, values) {
		l.Fatalf("read %q, want %q: %v", l.read, values, err)
	}
	l.read = nil
}

// Aborted records and markers of transactions count for the end, but are not handled.
func TestAReaderReachesTheLastCommittedRecord(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	l.write(l.plain, "a")
	l.begin("b")
	l.end(kgo.TryCommit)
	l.begin("not")
	l.end(kgo.TryAbort)
	r := l.reader()
	l.want(r.ReadToEnd(l.ctx, l.take), "a", "b")
	l.want(r.ReadToEnd(l.ctx, l.take))
	l.write(l.plain, "c")
	l.want(r.ReadToEnd(l.ctx, l.take), "c")
}

// The end is behind an open transaction.
func TestAReaderWaitsForAnOpenTransaction(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	l.write(l.plain, "a")
	l.begin("b")
	l.write(l.plain, "c")
	r := l.reader()
	// When the client requests the start offset, it knows the end offset.
	var asked atomic.Int32
	known := make(chan struct{})
	l.cluster.ControlKey(int16(kmsg.ListOffsets), func(kmsg.Request) (kmsg.Response, error, bool) {
		l.cluster.KeepControl()
		if asked.Add(1) == 2 {
			close(known)
		}
		return nil, nil, false
	})
	read := make(chan error, 1)
	go func() { read <- r.ReadToEnd(l.ctx, l.take) }()
	<-known
	l.end(kgo.TryCommit)
	l.want(<-read, "a", "b", "c")
}

// If all records of a topic are deleted, there is nothing to wait for.
func TestAReaderSkipsDeletedRecords(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	l.write(l.plain, "a", "b")
	adm := kadm.NewClient(l.plain)
	ends, err := adm.ListEndOffsets(l.ctx, topic)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := adm.DeleteRecords(l.ctx, ends.Offsets()); err != nil {
		t.Fatal(err)
	}
	r := l.reader()
	l.want(r.ReadToEnd(l.ctx, l.take))
	l.write(l.plain, "c")
	l.want(r.ReadToEnd(l.ctx, l.take), "c")
}

// A reader may begin before its topic exists.
func TestAReaderFindsATopicCreatedLater(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	looked := make(chan struct{})
	var once atomic.Bool
	l.cluster.ControlKey(int16(kmsg.Metadata), func(req kmsg.Request) (kmsg.Response, error, bool) {
		l.cluster.KeepControl()
		for _, asked := range req.(*kmsg.MetadataRequest).Topics {
			if asked.Topic != nil && *asked.Topic == "later" && !once.Swap(true) {
				close(looked)
			}
		}
		return nil, nil, false
	})
	read := make(chan error, 1)
	var recs []*kgo.Record
	go func() {
		var err error
		recs, err = kafkatest.ReadFirst(l.ctx, l.cluster.ListenAddrs(), "later", 2)
		read <- err
	}()
	<-looked
	if _, err := kadm.NewClient(l.plain).CreateTopic(l.ctx, 1, 1, nil, "later"); err != nil {
		t.Fatal(err)
	}
	late := l.client(kgo.DefaultProduceTopic("later"))
	l.write(late, "a", "b")
	if err := <-read; err != nil || len(recs) != 2 || string(recs[1].Value) != "b" {
		t.Errorf("%d records are read: %v", len(recs), err)
	}
}
