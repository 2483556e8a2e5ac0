package reader

import (
	"testing"

	"github.com/IBM/sarama"

	"github.com/redeliver/redeliver/adapters/kafka/internal/crash"
	"github.com/redeliver/redeliver/adapters/kafka/internal/settle"
	"github.com/redeliver/redeliver/driver"
	"github.com/redeliver/redeliver/internal/engine"
)

// parseRecord parses a record with a source.
func parseRecord(s *source, rec *sarama.ConsumerMessage) *driver.Message[*sarama.ConsumerMessage] {
	m := &driver.Message[*sarama.ConsumerMessage]{Record: rec, Seq: s.records.Add(recordInfo{})}
	s.addBytes(m)
	return m
}

// A bound on the number of records is not enough: 4,096 records of 1 MiB for each partition would fill the memory.
func TestSourcesBoundTheBytesThatTheyReadAhead(t *testing.T) {
	r := &Reader{}
	of := func(size int) *sarama.ConsumerMessage {
		return &sarama.ConsumerMessage{Key: make([]byte, 8), Value: make([]byte, size-8)}
	}
	many, few := &source{r: r}, &source{r: r}
	var all []*driver.Message[*sarama.ConsumerMessage]
	for range 31 {
		if many.isHeavy() {
			t.Fatalf("%d bytes are too much", many.bytesAhead)
		}
		all = append(all, parseRecord(many, of(1<<20)))
	}
	small := parseRecord(few, of(minAheadBytes-1))
	last := parseRecord(many, of(1<<20))
	if !many.isHeavy() || many.isLight() {
		t.Errorf("a source with %d of %d bytes reads on", many.bytesAhead, r.bytesAhead.Load())
	}
	if few.isHeavy() {
		t.Errorf("a source with %d of %d bytes must wait for the other", few.bytesAhead, r.bytesAhead.Load())
	}
	// A record is subtracted once: when it begins, or when it is settled without that.
	for range 2 {
		many.removeBytes(last)
		few.removeBytes(small)
	}
	for _, m := range all[:15] {
		many.removeBytes(m)
	}
	if !many.isLight() || many.bytesAhead != 16<<20 || few.bytesAhead != 0 || r.bytesAhead.Load() != 16<<20 {
		t.Errorf("%d and %d bytes, %d in all, light %v", many.bytesAhead, few.bytesAhead, r.bytesAhead.Load(), many.isLight())
	}
}

// A record of 400,000 empty headers has a few KB on the wire and 30 MB in memory.
func TestHeadersCountAsBytesReadAhead(t *testing.T) {
	s := &source{r: &Reader{}}
	headers := make([]*sarama.RecordHeader, 400_000)
	for i := range headers {
		headers[i] = &sarama.RecordHeader{}
	}
	for range 2 {
		parseRecord(s, &sarama.ConsumerMessage{Headers: headers})
	}
	if !s.isHeavy() {
		t.Errorf("a source with %d bytes of two such records reads on", s.bytesAhead)
	}
	one := parseRecord(s, &sarama.ConsumerMessage{Headers: []*sarama.RecordHeader{{Key: []byte("key"), Value: []byte("value")}}})
	if n := s.records.At(one.Seq).bytes; n != headerBytes+8 {
		t.Errorf("a header of 8 bytes counts as %d", n)
	}
}

// offlineSource returns a source without a session, whose lane calls posted for each Post.
func offlineSource(r *Reader, posted func()) *source {
	r.Sub = &engine.Subscription{}
	return &source{r: r, lane: countingLane(posted), progress: settle.NewPartition(r.NewCommitter(nil), settle.Config{Crash: crash.Config{Sub: r.Sub}})}
}

// addRecord parses the record with the next offset.
func addRecord(t *testing.T, s *source) *driver.Message[*sarama.ConsumerMessage] {
	t.Helper()
	m := &driver.Message[*sarama.ConsumerMessage]{Record: &sarama.ConsumerMessage{Offset: int64(s.progress.Span())}}
	if err := s.Parse(m); err != nil {
		t.Fatal(err)
	}
	return m
}

func TestAMessageThatIsTooFarAheadAsksAgain(t *testing.T) {
	t.Parallel()
	posted := 0
	s := offlineSource(&Reader{}, func() { posted++ })
	slow := addRecord(t, s)
	for range settle.MaxSpan - 1 {
		if m := addRecord(t, s); s.Begin(m) != engine.Begins {
			t.Fatalf("record %d does not begin", m.Seq)
		} else {
			s.Settle(m)
		}
	}
	far := addRecord(t, s)
	if s.Begin(far) != engine.NotYet {
		t.Error("a record that is too far ahead began")
	}
	s.Settle(slow)
	if posted != 1 || s.Begin(far) != engine.Begins {
		t.Errorf("it was asked to ask again %d times", posted)
	}
}

func TestAPartitionResumesWhenASlowMessageIsSettled(t *testing.T) {
	t.Parallel()
	group := &pauseRecorder{}
	s := offlineSource(&Reader{Config: Config{Group: group}}, func() {})
	s.Accept(maxReadAhead)
	var slow *driver.Message[*sarama.ConsumerMessage]
	for range settle.MaxSpan {
		m := addRecord(t, s)
		if slow == nil {
			slow = m
			continue
		}
		s.Settle(m)
	}
	s.Accept(maxReadAhead)
	if !group.paused {
		t.Fatal("the partition is not paused")
	}
	s.Settle(slow)
	if group.paused {
		t.Error("the partition stays paused")
	}
}

// pauseRecorder is a group that records whether its partition is paused.
type pauseRecorder struct {
	sarama.ConsumerGroup
	paused bool
}

func (p *pauseRecorder) Pause(map[string][]int32)  { p.paused = true }
func (p *pauseRecorder) Resume(map[string][]int32) { p.paused = false }

// countingLane is a lane that calls a function for each Post.
type countingLane func()

func (p countingLane) Post(func()) bool                                                { p(); return true }
func (p countingLane) Revise(func(*driver.Message[*sarama.ConsumerMessage]))           {}
func (p countingLane) Abandon(*driver.Message[*sarama.ConsumerMessage], error)         {}
func (p countingLane) ReturnUnrun(func(*driver.Message[*sarama.ConsumerMessage]) bool) {}
