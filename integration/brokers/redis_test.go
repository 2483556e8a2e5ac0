//go:build prove

package brokers_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redeliver/redeliver/integration/brokers"
)

// The loss suite relies on this: a private Redis can be killed at any time and comes back on the same address with
// every confirmed write, including the latest.
func TestOwnRedisKeepsWritesThroughSIGKILL(t *testing.T) {
	b := brokers.OwnRedis(t, brokers.RedisOptions{})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	addr := b.Addrs()[0]
	written := 0
	for _, end := range []struct {
		how   string
		again func() error
	}{
		{"kill and start", func() error {
			if err := b.Kill(); err != nil {
				return err
			}
			if answer, err := redisSay(ctx, addr, "PING"); err == nil {
				t.Errorf("the server still answers after SIGKILL: %s", answer)
			}
			return b.Start(ctx)
		}},
		{"restart", func() error { return b.Restart(ctx) }},
	} {
		for range 50 {
			if answer, err := redisSay(ctx, addr, fmt.Sprintf("RPUSH kept %d", written)); err != nil || !strings.HasPrefix(answer, ":") {
				t.Fatalf("writing: %q, %v", answer, err)
			}
			written++
		}
		if err := end.again(); err != nil {
			t.Fatalf("%s: %v", end.how, err)
		}
		if answer, err := redisSay(ctx, addr, "LLEN kept"); err != nil || answer != fmt.Sprint(":", written) {
			t.Errorf("%s: %q of %d writes are there (%v)", end.how, answer, written, err)
		}
	}
}

// redisSay sends one line and returns the first line of the answer.
func redisSay(ctx context.Context, addr, line string) (string, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if _, err := fmt.Fprintf(conn, "%s\r\n", line); err != nil {
		return "", err
	}
	answer, err := bufio.NewReader(conn).ReadString('\n')
	return strings.TrimSpace(answer), err
}
