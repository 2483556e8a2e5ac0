package link

import (
	"net"
	"sync"
)

// maxGathered is the number of waiting bytes above which writers block.
const maxGathered = 1 << 20

// gatheringConn is a connection that writes in the background. Data that comes during one write goes with the next.
// The client flushes after every frame, which costs a packet and a wakeup of the broker for each publish. No data
// waits for later data. A successful Write does not mean that the data was sent; confirms do.
type gatheringConn struct {
	net.Conn
	mu      sync.Mutex
	changed sync.Cond // signals changes of the fields below
	waiting []byte
	err     error // nothing more is written
}

func newGatheringConn(conn net.Conn) net.Conn {
	g := &gatheringConn{Conn: conn}
	g.changed.L = &g.mu
	go g.writeLoop()
	return g
}

// Write implements [net.Conn].
func (g *gatheringConn) Write(b []byte) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for len(g.waiting) > maxGathered && g.err == nil {
		g.changed.Wait()
	}
	if g.err != nil {
		return 0, g.err
	}
	if len(g.waiting) == 0 {
		g.changed.Broadcast()
	}
	g.waiting = append(g.waiting, b...)
	return len(b), nil
}

// writeLoop runs in a goroutine until the connection ends.
func (g *gatheringConn) writeLoop() {
	var piece []byte
	g.mu.Lock()
	defer g.mu.Unlock()
	for g.err == nil {
		if len(g.waiting) == 0 {
			g.changed.Wait()
			continue
		}
		piece, g.waiting = g.waiting, piece[:0]
		g.changed.Broadcast()
		g.mu.Unlock()
		_, err := g.Conn.Write(piece)
		g.mu.Lock()
		if err != nil {
			g.endLocked(err)
			_ = g.Conn.Close() // so that the reader gets an error too
		}
		if cap(piece) > maxGathered {
			piece = nil // frees the memory of a burst
		}
	}
}

// Close implements [net.Conn]. It drops waiting data. The client closes only after the broker's last answer, or if
// there will be none.
func (g *gatheringConn) Close() error {
	g.mu.Lock()
	g.endLocked(net.ErrClosed)
	g.mu.Unlock()
	return g.Conn.Close()
}

// endLocked stops the writing goroutine and all goroutines that wait for it.
func (g *gatheringConn) endLocked(err error) {
	if g.err == nil {
		g.err = err
	}
	g.changed.Broadcast()
}
