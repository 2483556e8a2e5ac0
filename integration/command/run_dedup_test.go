package command_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/redeliver/redeliver/adapters/kafka"
	"github.com/redeliver/redeliver/integration/brokers"
)

// A sidecar skips what another one has handled, by their common Redis.
func TestSidecarsShareTheirDedup(t *testing.T) {
	t.Parallel()
	s := kafkaShop(t)
	h := newHandler(t, func(http.ResponseWriter, string, string) {})
	flags := []string{"--http", h.URL, "--dedup", "redis://" + brokers.RequireRedis(t) + "/0"}
	id := func(of string) string { return kafka.UUIDHeader + "=" + s.topic + of }
	first := s.sidecar(flags...)
	s.send("order", "tenant=acme", id("a"))
	<-h.posts
	first.end()
	second := s.sidecar(flags...)
	s.send("order", "tenant=acme", id("a"))
	const others = 30 // so that each partition has one behind the copy
	for i := range others {
		s.send(fmt.Sprintf("other %d", i), "tenant=acme", id(fmt.Sprint(i)))
	}
	await(t, func() string { return fmt.Sprintf("the others are handled: %v", h.seen()) }, func() bool { return len(h.seen()) == others+1 })
	second.end()
	if got := h.seen(); got["order"] != "1" {
		t.Errorf("the handler got %v", got)
	}
}
