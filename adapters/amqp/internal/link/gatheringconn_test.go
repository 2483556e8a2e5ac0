package link

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// With concurrent writers nothing is lost, duplicated or torn.
func TestConcurrentWritesStayWhole(t *testing.T) {
	here, there := net.Pipe()
	g := newGatheringConn(here)
	const writers, each, size = 8, 200, 1000
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() {
			for n := range each {
				piece := bytes.Repeat([]byte{byte(n)}, size)
				piece[0] = byte(w)
				if n, err := g.Write(piece); n != size || err != nil {
					t.Errorf("wrote %d of %d: %v", n, size, err)
				}
				piece[1]++ // the slice belongs to the writer again
			}
		})
	}
	next := make([]byte, writers)
	piece := make([]byte, size)
	for range writers * each {
		if _, err := io.ReadFull(there, piece); err != nil {
			t.Fatal(err)
		}
		if w := piece[0]; !bytes.Equal(piece[1:], bytes.Repeat([]byte{next[w]}, size-1)) {
			t.Fatalf("writer %d's write %d is torn", w, next[w])
		}
		next[piece[0]]++
	}
	all.Wait()
	if err := g.Close(); err != nil {
		t.Error(err)
	}
	if _, err := there.Read(piece); err == nil {
		t.Error("there is more to read")
	}
}

// While the broker does not read, writers block with bounded memory until the connection is closed.
func TestWriteBlocksWhileTheBrokerDoesNotRead(t *testing.T) {
	here, there := net.Pipe()
	g := newGatheringConn(here).(*gatheringConn)
	t.Cleanup(func() { _ = there.Close() })
	const size = 64 << 10
	taken, end := make(chan int, 10_000), make(chan error, 1)
	go func() {
		for {
			if _, err := g.Write(make([]byte, size)); err != nil {
				end <- err
				return
			}
			taken <- size
		}
	}()
	// The first write may go directly to the kernel; after that the buffer fills.
	for total := 0; total <= maxGathered; {
		select {
		case n := <-taken:
			total += n
		case <-time.After(time.Minute):
			t.Fatalf("the writer waits after %d bytes, want %d", total, maxGathered)
		}
	}
	select {
	case err := <-end:
		t.Fatal("writing has ended:", err)
	default:
	}
	if err := g.Close(); err != nil {
		t.Error(err)
	}
	if err := <-end; !errors.Is(err, net.ErrClosed) {
		t.Errorf("the writer that waited got %v", err)
	}
	for total := len(taken) * size; total > 2*maxGathered; {
		t.Fatalf("Write accepted %d bytes above the bound", total)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if n := cap(g.waiting); n > 4*maxGathered {
		t.Errorf("%d bytes are kept", n)
	}
}

// A write that fails in the background ends the connection for its reader and for every later write.
func TestFailedWriteEndsTheConnection(t *testing.T) {
	here, there := net.Pipe()
	g := newGatheringConn(broken{here})
	t.Cleanup(func() { _ = there.Close() })
	if _, err := g.Write([]byte("taken")); err != nil {
		t.Fatal(err)
	}
	if _, err := g.Read(make([]byte, 1)); err == nil {
		t.Error("the reader got no error")
	}
	if _, err := g.Write([]byte("x")); !errors.Is(err, errBroken) {
		t.Errorf("the next write returns %v", err)
	}
}

var errBroken = errors.New("no route to host")

type broken struct{ net.Conn }

func (broken) Write([]byte) (int, error) { return 0, errBroken }

// A large burst leaves no large buffer.
func TestBurstLeavesNoLargeBuffer(t *testing.T) {
	here, there := net.Pipe()
	g := newGatheringConn(here).(*gatheringConn)
	burst := make([]byte, 3*maxGathered)
	_, _ = rand.Read(burst)
	for range 4 {
		go func() { _, _ = g.Write(burst) }()
		got := make([]byte, len(burst))
		if _, err := io.ReadFull(there, got); err != nil || !bytes.Equal(got, burst) {
			t.Fatalf("the burst differs from the written one: %v", err)
		}
	}
	for range 2 { // buffers alternate
		_, _ = g.Write([]byte("x"))
		if _, err := there.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
	}
	g.mu.Lock()
	n := cap(g.waiting)
	g.mu.Unlock()
	if n > maxGathered {
		t.Errorf("%d bytes are kept", n)
	}
	_ = g.Close()
}
