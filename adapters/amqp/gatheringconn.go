package amqp

import (
	"net"
	"sync"
)

// maxGathered is how many bytes wait to be written before writers have to.
const maxGathered = 1 << 20

// gatheringConn is a connection that writes in the background: what comes while the
// kernel takes one piece goes with the next. The client flushes after every frame
// that a goroutine of it sends, which is one packet and one wakening of the
// broker for each publish. Nothing waits for company. That a write was taken says
// nothing; confirms do.
type gatheringConn struct {
	net.Conn
	mu      sync.Mutex
	changed sync.Cond // of what follows
	waiting []byte
	err     error // no more is written
}

func newGatheringConn(conn net.Conn) net.Conn {
	g := &gatheringConn{Conn: conn}
	g.changed.L = &g.mu
	go g.write()
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

// write belongs to a goroutine that ends with the connection.
func (g *gatheringConn) write() {
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
			_ = g.Conn.Close() // so that whoever reads hears of it too
		}
		if cap(piece) > maxGathered {
			piece = nil // a burst does not stay in memory
		}
	}
}

// Close implements [net.Conn]. What waits is not written: the client closes only
// when the broker has answered the last that it sent, or never will.
func (g *gatheringConn) Close() error {
	g.mu.Lock()
	g.endLocked(net.ErrClosed)
	g.mu.Unlock()
	return g.Conn.Close()
}

// endLocked has the writer and those that wait for it stop; the caller holds mu.
func (g *gatheringConn) endLocked(err error) {
	if g.err == nil {
		g.err = err
	}
	g.changed.Broadcast()
}
