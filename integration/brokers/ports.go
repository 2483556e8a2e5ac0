package brokers

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
)

// The ports of brokers are below the range that the kernel uses for outgoing connections (32768 and up on Linux). In
// that range, a client that keeps dialling its stopped broker sooner or later gets the broker's own port as its source
// port and connects to itself. The broker then cannot bind the port again.
const firstPort, lastPort = 20000, 32000

// freePorts returns n different loopback ports on which nobody listens now.
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
		defer l.Close() // keep it open until all are found, so that none is found twice
		if ports = append(ports, port); len(ports) == n {
			return ports, nil
		}
	}
	return nil, fmt.Errorf("finding %d free ports from %d to %d: %w", n, firstPort, lastPort, last)
}

// onFreePorts starts a server on ports that were free just before. Another process may take a port until the server
// binds it. The server's error then contains taken, and onFreePorts tries other ports. That is rare.
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

// inUse is the error text of most servers for a port that is in use.
const inUse = "Address already in use"
