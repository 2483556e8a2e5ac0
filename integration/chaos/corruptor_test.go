//go:build prove

package chaos

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// corruptor is a proxy for a Kafka node. While it is on, it flips a bit in the records of each answer to a fetch.
// Records have a checksum, so a client must notice that. Nothing else in the protocol has a checksum, because it trusts
// TCP. A changed offset in a request would prove nothing about a client.
type corruptor struct {
	to        string
	listen    net.Listener
	lying     atomic.Bool
	corrupted atomic.Int64 // number of corrupted answers
}

func newCorruptor(t *testing.T, to string) *corruptor {
	t.Helper()
	listen, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &corruptor{to: to, listen: listen}
	t.Cleanup(func() { _ = listen.Close() })
	go l.serve()
	return l
}

func (l *corruptor) address() string { return l.listen.Addr().String() }

func (l *corruptor) serve() {
	for {
		client, err := l.listen.Accept()
		if err != nil {
			return
		}
		node, err := net.DialTimeout("tcp", l.to, 5*time.Second)
		if err != nil {
			_ = client.Close()
			continue
		}
		c := &corruptingConn{corruptor: l, fetches: make(map[uint32]int16)}
		for _, way := range []func(){
			func() { copyFrames(node, client, c.request) },
			func() { copyFrames(client, node, c.response) },
		} {
			go func() {
				way()
				_ = client.Close()
				_ = node.Close()
			}()
		}
	}
}

// corruptingConn is a connection. It remembers which answers are to fetches, and their version.
type corruptingConn struct {
	*corruptor
	mu      sync.Mutex
	fetches map[uint32]int16 // versions by correlation id
}

// copyFrames forwards Kafka's frames until either side ends. It calls each for each frame without its size; each may
// change the frame.
func copyFrames(to io.Writer, from io.Reader, each func([]byte)) {
	for {
		var size [4]byte
		if _, err := io.ReadFull(from, size[:]); err != nil {
			return
		}
		frame := make([]byte, 4+binary.BigEndian.Uint32(size[:]))
		copy(frame, size[:])
		n, err := io.ReadFull(from, frame[4:])
		if err == nil {
			each(frame[4:])
		} else if !errors.Is(err, io.ErrUnexpectedEOF) {
			return
		}
		if _, broken := to.Write(frame[:4+n]); broken != nil || err != nil {
			return
		}
	}
}

func (c *corruptingConn) request(frame []byte) {
	if len(frame) < 8 || binary.BigEndian.Uint16(frame) != uint16(kmsg.Fetch) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fetches[binary.BigEndian.Uint32(frame[4:])] = int16(binary.BigEndian.Uint16(frame[2:]))
}

func (c *corruptingConn) response(frame []byte) {
	if len(frame) < 5 {
		return
	}
	id := binary.BigEndian.Uint32(frame)
	c.mu.Lock()
	version, ok := c.fetches[id]
	delete(c.fetches, id)
	c.mu.Unlock()
	if ok && c.lying.Load() && corrupt(frame, version) {
		c.corrupted.Add(1)
	}
}

// batchHead is the length of a batch before its first record, in bytes.
const batchHead = 61

// corrupt flips a bit in the middle of the records of each partition's first batch, usually in a value.
func corrupt(frame []byte, version int16) (changed bool) {
	r := kmsg.NewPtrFetchResponse()
	r.SetVersion(version)
	body := frame[4:]
	if r.IsFlexible() {
		body = body[1:] // no tags, as with all brokers
	}
	if r.ReadFrom(body) != nil {
		return false
	}
	for _, topic := range r.Topics {
		for _, p := range topic.Partitions {
			if len(p.RecordBatches) <= batchHead {
				continue
			}
			// RecordBatches is a part of the frame and not a copy.
			size := 12 + int(binary.BigEndian.Uint32(p.RecordBatches[8:]))
			if size > batchHead && size <= len(p.RecordBatches) {
				p.RecordBatches[(batchHead+size)/2] ^= 1
				changed = true
			}
		}
	}
	return changed
}
