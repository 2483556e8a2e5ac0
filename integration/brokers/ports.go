package brokers

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
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
