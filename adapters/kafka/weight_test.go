package kafka

import (
	"testing"

	"github.com/IBM/sarama"
)

// Lanes read ahead by the number of records alone: 4,096 of 1 MiB in each partition would have been all of a process's
// memory.
func TestLanesBoundTheBytesThatTheyReadAhead(t *testing.T) {
	r := &reader{}
	read := func(l *lane, size int) *entry {
		e := &entry{rec: record{ConsumerMessage: &sarama.ConsumerMessage{Key: make([]byte, 8), Value: make([]byte, size-8)}}}
		l.weigh(e)
		return e
	}
	many, few := &lane{r: r}, &lane{r: r}
	var all []*entry
	for range 31 {
		if many.heavy() {
			t.Fatalf("%d bytes are too many", many.weight)
		}
		all = append(all, read(many, 1<<20))
	}
	small := read(few, aheadLeast-1)
	last := read(many, 1<<20)
	if !many.heavy() || many.light() {
		t.Errorf("a lane with %d of %d bytes reads on", many.weight, r.weight.Load())
	}
	if few.heavy() {
		t.Errorf("a lane with %d of %d bytes must wait for the other", few.weight, r.weight.Load())
	}
	// What begins, or is settled without, is lifted once.
	for range 2 {
		many.lift(last)
		few.lift(small)
	}
	for _, e := range all[:15] {
		many.lift(e)
	}
	if !many.light() || many.weight != 16<<20 || few.weight != 0 || r.weight.Load() != 16<<20 {
		t.Errorf("%d and %d bytes, %d in all, light %v", many.weight, few.weight, r.weight.Load(), many.light())
	}
	// A lane takes all that it had along.
	many.unload()
	if r.weight.Load() != 0 {
		t.Errorf("%d bytes are left of lanes that have ended", r.weight.Load())
	}
}

// A record of 400,000 empty headers has a few KB on the wire and 30 MB in memory. It weighed nothing, and a lane read 4,096
// of them ahead.
func TestHeadersWeigh(t *testing.T) {
	l := &lane{r: &reader{}}
	headers := make([]*sarama.RecordHeader, 400_000)
	for i := range headers {
		headers[i] = &sarama.RecordHeader{}
	}
	for range 2 {
		l.weigh(&entry{rec: record{ConsumerMessage: &sarama.ConsumerMessage{Headers: headers}}})
	}
	if !l.heavy() {
		t.Errorf("a lane with %d bytes of two such records reads on", l.weight)
	}
	one := &entry{rec: record{ConsumerMessage: &sarama.ConsumerMessage{Headers: []*sarama.RecordHeader{{Key: []byte("key"), Value: []byte("value")}}}}}
	if l.weigh(one); one.weight != headerBytes+8 {
		t.Errorf("a header of 8 bytes weighs %d", one.weight)
	}
}
