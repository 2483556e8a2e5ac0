package brokers

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
)

// Ports for brokers come from below the range that the kernel takes for outgoing connections (32768 and up on Linux).
// From inside it, a client that keeps dialling its stopped broker sooner or later gets the broker's own port as its
// source port, connects to itself, and the broker cannot bind it again.
const firstPort, lastPort = 20000, 32000

// freePorts returns n different loopback ports that nobody listens on now.
func freePorts(ctx context.Context, n int) ([]int, error) {
	var listen net.ListenConfig
	var ports []int
	var last error
	for range 200 {
		port := firstPort + rand.IntN(lastPort-firstPort)
		l, err := listen.Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			last = err
			continue
		}
		defer l.Close() // held until all are found, so that none comes twice
		if ports = append(ports, port); len(ports) == n {
			return ports, nil
		}
	}
	return nil, fmt.Errorf("finding %d free ports from %d to %d: %w", n, firstPort, lastPort, last)
}

// onFreePorts starts a server on ports that were free a moment before. Another process may take one until the server
// binds it, which then says taken: rare, and other ports then.
func onFreePorts[T any](server, taken string, logf func(string, ...any), start func() (T, error)) (T, error) {
	const tries = 3
	for try := 1; ; try++ {
		s, err := start()
		if err == nil || try == tries || !strings.Contains(err.Error(), taken) {
			return s, err
		}
		logf("%s's port was taken by somebody else in the meantime, trying another", server)
	}
}

// inUse is what most servers say of a port that somebody else has.
const inUse = "Address already in use"
