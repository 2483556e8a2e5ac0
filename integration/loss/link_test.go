package loss

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/redeliver/redeliver/integration/consumer"
)

// link is a proxy between consumers and their broker, with an adjustable speed.
type link struct {
	to     string
	listen net.Listener
	ctx    context.Context // its end

	mu    sync.Mutex
	delay time.Duration // of every byte, one way
	rate  int           // bytes a second of all connections together, one way; 0 means no bound
	free  [2]time.Time  // when each direction has forwarded all bytes so far
}

func newLink(t *testing.T, to string) *link {
	t.Helper()
	listen, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background()) // not the test's context, which ends before the consumers
	l := &link{to: to, listen: listen, ctx: ctx}
	var all sync.WaitGroup
	all.Go(func() { l.serve(&all) })
	t.Cleanup(func() {
		cancel()
		_ = listen.Close()
		all.Wait()
	})
	return l
}

func (l *link) address() string { return l.listen.Addr().String() }

// slow sets the speed of the link from now on. Bytes under way keep their time.
func (l *link) slow(delay time.Duration, rate int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.delay, l.rate = delay, rate
}

func (l *link) serve(all *sync.WaitGroup) {
	for {
		client, err := l.listen.Accept()
		if err != nil {
			return
		}
		broker, err := (&net.Dialer{Timeout: 10 * time.Second}).DialContext(l.ctx, "tcp", l.to)
		if err != nil {
			_ = client.Close()
			continue
		}
		for direction, ends := range [2][2]net.Conn{{client, broker}, {broker, client}} {
			from, to := ends[0], ends[1]
			stop := context.AfterFunc(l.ctx, func() { _ = from.Close() })
			all.Go(func() {
				defer stop()
				l.pass(from, to, direction)
			})
		}
	}
}

// chunk is the result of one read, with its arrival time.
type chunk struct {
	data []byte
	at   time.Time
}

// pass copies until one end closes. The bytes under way are bounded, so that a slow link slows its writer.
func (l *link) pass(from, to net.Conn, direction int) {
	underway := make(chan chunk, 64)
	var out sync.WaitGroup
	out.Go(func() {
		defer to.Close()
		for c := range underway {
			if wait := time.Until(c.at); wait > 0 && !consumer.Pause(l.ctx, wait) {
				continue
			}
			if _, err := to.Write(c.data); err != nil {
				_ = from.Close() // the reader has ended, and nobody needs the rest
			}
		}
	})
	for {
		buf := make([]byte, 16<<10)
		n, err := from.Read(buf)
		if n > 0 {
			underway <- chunk{buf[:n], l.arrival(n, direction)}
		}
		if err != nil {
			break
		}
	}
	close(underway)
	out.Wait()
	_ = from.Close()
}

// arrival returns when n bytes that are read now arrive.
func (l *link) arrival(n, direction int) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if l.free[direction].Before(now) || l.rate == 0 {
		l.free[direction] = now
	}
	if l.rate > 0 {
		l.free[direction] = l.free[direction].Add(time.Duration(n) * time.Second / time.Duration(l.rate))
	}
	return l.free[direction].Add(l.delay)
}
