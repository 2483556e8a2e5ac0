package main

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/driver"
	"github.com/redeliver/redeliver/internal/wirename"
)

// The shape of the messages of all rows.
const (
	valueSize  = 1024
	keyCount   = 10_000
	partitions = 4
	uuidHeader = wirename.WatermillUUID // both sides read the id from it
)

// shape configures the messages of a row. A zero field means the value of most rows.
type shape struct {
	size       int // of a value, in bytes, with the 16 that say which message it is and when it was written
	keys       uint64
	mixed      bool // the keys do not come in turn, so that messages that fail have any key
	partitions int  // of the origin
}

func (s shape) withDefaults() shape {
	return shape{size: cmp.Or(s.size, valueSize), keys: cmp.Or(s.keys, keyCount), mixed: s.mixed, partitions: cmp.Or(s.partitions, partitions)}
}

// writer makes records. A value is the id, the time of writing in nanoseconds, and bytes that do not compress. Keys are
// spread over the partitions, so that all partitions have the same number of messages. It belongs to one goroutine.
type writer struct {
	shape
	rng  *rand.ChaCha8
	sums []uint64 // of each id
}

func newWriter() *writer { return newShaped(shape{}) }

func newShaped(s shape) *writer {
	var seed [32]byte
	binary.BigEndian.PutUint64(seed[:], uint64(time.Now().UnixNano()))
	return &writer{shape: s.withDefaults(), rng: rand.NewChaCha8(seed)}
}

// value makes the value of the next id.
func (w *writer) value(id uint64) []byte {
	value := make([]byte, w.size)
	binary.BigEndian.PutUint64(value, id)
	binary.BigEndian.PutUint64(value[8:], uint64(time.Now().UnixNano()))
	_, _ = w.rng.Read(value[16:]) // never fails
	w.sums = append(w.sums, fold(value))
	return value
}

// keyOf returns the number of a message's key. Where keys do not come in turn, some have more messages than others.
func (s shape) keyOf(id uint64) uint64 {
	if s.mixed || s.keys > keyCount {
		return id * 0x9e3779b97f4a7c15 >> 32 % s.keys
	}
	return id % s.keys
}

func (w *writer) written() written { return written{len(w.sums), total(w.sums, 1), w.sums} }

func (w *writer) record(topic string, id uint64) *kgo.Record {
	value := w.value(id)
	key := w.keyOf(id)
	return &kgo.Record{
		Topic: topic, Partition: int32(key % uint64(w.partitions)), Key: fmt.Appendf(nil, "key-%05d", key), Value: value,
		Headers: []kgo.RecordHeader{{Key: uuidHeader, Value: uuidOf(id)}},
	}
}

// withState appends the headers of a state to a record's own, as redeliver does.
func withState(r *kgo.Record, st *redeliver.State) *kgo.Record {
	for _, h := range driver.AppendStateHeaders(*st, nil) {
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: h.Name, Value: []byte(h.Value)})
	}
	return r
}

// written describes the messages that were written to a topic.
type written struct {
	count int
	sum   uint64
	sums  []uint64 // of each id
}

// divisibleBy is the messages whose ids are divisible by every; 0: none.
func (w written) divisibleBy(every int) (count int, sum uint64) {
	if every == 0 {
		return 0, 0
	}
	return (w.count + every - 1) / every, total(w.sums, every)
}

func total(sums []uint64, every int) (sum uint64) {
	for i := 0; i < len(sums); i += every {
		sum += sums[i]
	}
	return sum
}

// uuidOf is a UUID with the id in its last group.
func uuidOf(id uint64) []byte { return fmt.Appendf(nil, "be9c4000-0000-4000-8000-%012x", id) }

// idOfUUID reads the id back.
func idOfUUID(s string) (uint64, bool) {
	if len(s) != 36 {
		return 0, false
	}
	id, err := strconv.ParseUint(s[24:], 16, 64)
	return id, err == nil
}

// idOf is the id in a value, or a number that no message has.
func idOf(value []byte) uint64 {
	if len(value) < 16 {
		return 1<<64 - 1
	}
	return binary.BigEndian.Uint64(value)
}

// writtenAt returns the time in a value.
func writtenAt(value []byte) time.Time {
	return time.Unix(0, int64(binary.BigEndian.Uint64(value[8:])))
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// fold is one message's part of a checksum that does not depend on the order: a mix of its id and the hash of its
// value.
func fold(value []byte) uint64 {
	x := idOf(value)<<32 ^ uint64(crc32.Checksum(value, castagnoli))
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9 // splitmix64
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// tally counts messages and adds up their checksum; it is safe for concurrent use.
type tally struct {
	count atomic.Int64
	sum   atomic.Uint64
}

// add returns how many there are now.
func (t *tally) add(value []byte) int64 {
	t.sum.Add(fold(value))
	return t.count.Add(1)
}
