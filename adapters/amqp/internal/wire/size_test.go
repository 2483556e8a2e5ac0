package wire

import (
	"strings"
	"testing"

	amqp091 "github.com/rabbitmq/amqp091-go"
)

// Headers of three bytes on the wire take more than a hundred bytes of memory.
func TestMemoryOfCountsHeaders(t *testing.T) {
	flags := amqp091.Table{}
	for name := range strings.SplitSeq(strings.Repeat("x", 99), "") {
		flags[name+strings.Repeat("y", len(flags))] = true
	}
	for name, c := range map[string]struct {
		d           amqp091.Delivery
		least, most int
	}{
		"a body":        {amqp091.Delivery{Body: make([]byte, 1000)}, 1000, 1000},
		"flags":         {amqp091.Delivery{Headers: flags}, 99 * 100, 99 * 300},
		"a text":        {amqp091.Delivery{Headers: amqp091.Table{"a": strings.Repeat("x", 5000), "b": make([]byte, 5000)}}, 10_000, 10_500},
		"nested tables": {amqp091.Delivery{Headers: amqp091.Table{"a": []any{flags, flags}}}, 2 * 99 * 100, 2*99*300 + 1000},
	} {
		if n := MemoryOf(&c.d); n < c.least || n > c.most {
			t.Errorf("%s: %d bytes, want %d to %d", name, n, c.least, c.most)
		}
	}
}
