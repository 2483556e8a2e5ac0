//go:build prove

package pika_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/amqp"
	"github.com/redeliver/redeliver/internal/limits"
)

// frame is RabbitMQ's frame_max, and maxHeader what remains for a content header.
const (
	frame     = 128 << 10
	maxHeader = frame - 8
)

// filled returns a persistent message whose content header has size bytes.
func filled(queue, id string, size int, others headers) wire {
	m := wire{Key: queue, Body: []byte(id), Props: props{"delivery_mode": 2, "message_id": id}, Headers: headers{}}
	maps.Copy(m.Headers, others)
	n := 14 + 1 + 1 + len(id) + 4 + 1 + len("fill") + 5 // flags, mode, id, table, name
	for name, v := range others {
		n += 1 + len(name) + 5
		switch v.Kind {
		case "S":
			n += len(v.Bytes) / 2
		case "A":
			for _, item := range v.Array {
				n += 5 + len(item.Bytes)/2
			}
		}
	}
	m.Headers["fill"] = text(strings.Repeat("f", size-n))
	return m
}

// Headers near the size of a frame never close a connection. Redeliver's headers are shortened, and a message without
// room for them goes to the DLQ with all its own.
func TestHeadersNearTheFrame(t *testing.T) {
	onBoth(t, func(t *testing.T, b *fixture) {
		var mu sync.Mutex
		runs := make(map[string]int)
		b.copiesNothing = true
		b.handler = func(msg *message.Message) error {
			mu.Lock()
			defer mu.Unlock()
			runs[msg.UUID]++
			return errors.New(strings.Repeat("error ", 400))
		}
		b.start(b.config(policy))
		b.declare(b.queue+".cc", nil)
		// Around the sizes at which first the state, and then the reason, no longer fits.
		sizes := []int{122_880, 124_000, 125_000, 125_600, 126_000, 126_300, 126_600, 126_968, 127_000, 128_000, 129_000, 129_800, 130_000, 130_400, 130_500, 130_600, 130_700, 130_800, 130_900, 131_000, 131_040, maxHeader - 1, maxHeader}
		msgs := make(map[string]wire)
		for _, size := range sizes {
			id := fmt.Sprint(size)
			msgs[id] = filled(b.queue, id, size, nil)
			b.peer.put(t, msgs[id], wire{Key: b.queue, Body: []byte("after " + id), Props: props{"message_id": "after " + id, "delivery_mode": 2}})
			msgs["after "+id] = wire{Headers: headers{}, Body: []byte("after " + id)}
		}
		msgs["all"] = filled(b.queue, "all", maxHeader, headers{"CC": array(text(b.queue + ".cc")), "redeliver-id": text("theirs"), "redeliver-amqp-cc": text("x")})
		b.peer.put(t, msgs["all"])
		letters := b.deadLetters(len(msgs), byBody)
		retried, deadWithReason := 0, 0 // the largest of each
		for _, id := range slices.Sorted(maps.Keys(letters)) {
			letter := letters[id]
			ours := state(&letter)
			restoreProperties(&letter)
			reportDifferences(t, "the dead letter "+id, letter.Headers, msgs[id].Headers)
			if reason, n := ours[redeliver.HeaderReason], runs[id]; strings.HasPrefix(id, "after") {
				if n != 3 || reason != "exhausted" || len(ours[redeliver.HeaderError]) != limits.MaxErrorText {
					t.Errorf("%s ran %d times and is in the DLQ with %v", id, n, ours)
				}
			} else if n == 3 {
				retried = max(retried, size(id))
			} else if reason != "" {
				deadWithReason = max(deadWithReason, size(id))
			}
		}
		t.Logf("report: RabbitMQ %s, frame of %d bytes: headers of %d bytes were retried, of %d were dead-lettered with their reason, of %d without",
			b.version, frame, retried, deadWithReason, maxHeader)
		for id, want := range map[string]int{"122880": 3, "126000": 3, "126968": 1, fmt.Sprint(maxHeader): 1, "all": 1} {
			if runs[id] != want {
				t.Errorf("headers of %s bytes ran %d times, want %d", id, runs[id], want)
			}
		}
		b.wantMessages(b.queue+".cc", 1)
		b.checkNoFaults()
	})
}

// size returns the size in a message's id.
func size(id string) int {
	n, _ := strconv.Atoi(id) // 0 for other ids
	return n
}

// restoreProperties restores the properties that are in the headers of a dead letter.
func restoreProperties(letter *wire) {
	for name, v := range maps.Clone(letter.Headers) {
		switch {
		case name == amqp.HeaderCC || name == "cc":
			letter.Headers["CC"] = v
		case name == amqp.HeaderForeign:
			maps.Copy(letter.Headers, v.Table)
		case strings.HasPrefix(name, "Redeliver-"):
			letter.Headers["r"+name[1:]] = v
		case !strings.HasPrefix(name, "redeliver-amqp-"):
			continue
		}
		delete(letter.Headers, name)
	}
}

// A dead letter can be read and returned: the broker's additions also fit, if the message's own headers leave 64 bytes
// of the frame.
func TestALargeDeadLetterCanBeReadAgain(t *testing.T) {
	onBoth(t, func(t *testing.T, b *fixture) {
		b.copiesNothing = true
		b.start(b.config(policy))
		n := 0
		for size := 130_200; size <= 130_840; size += 20 {
			b.peer.put(t, filled(b.queue, fmt.Sprint(size), size, nil))
			n++
		}
		b.peer.put(t, b.peer.Take(t, b.queue+".dlq", n)...) // pika has received all of them
		for range 3 {
			var last amqp091.Delivery
			for range n {
				d, ok, err := b.ch.Get(b.queue+".dlq", false)
				if err != nil || !ok {
					t.Fatal(ok, err)
				}
				last = d
			}
			if err := last.Nack(true, true); err != nil {
				t.Fatal(err)
			}
		}
		b.checkNoFaults()
	})
}

// The client library closes the connection over more than 8192 fields of a table, or tables more than 32 deep. A
// readable message must stay readable with redeliver's headers, and with the user's redeliver- headers in a table.
func TestHeadersAtTheLimitsOfTheClient(t *testing.T) {
	onBoth(t, func(t *testing.T, b *fixture) {
		b.copiesNothing = true
		b.start(b.config(policy))
		many := func(n int) headers {
			h := make(headers, n)
			for i := range n {
				h[strconv.Itoa(i)] = raw("V")
			}
			return h
		}
		deep := raw("V")
		for range 32 {
			deep = table(map[string]value{"d": deep})
		}
		nulls := make([]value, 8192)
		for i := range nulls {
			nulls[i] = raw("V")
		}
		both := many(8191)
		both["redeliver-deep"] = deep
		msgs := map[string]headers{
			"8192": many(8192), "8185": many(8185), "8170": many(8170), "8100": many(8100), "deep": {"d": deep}, "array": {"a": array(nulls...)},
			"deep like ours": {"redeliver-deep": deep, "mine": text("x")}, "many, deep, with names like ours": both,
		}
		for id, h := range msgs {
			b.peer.put(t, wire{Key: b.queue, Body: []byte(id), Props: props{"delivery_mode": 2, "message_id": id}, Headers: h})
		}
		for id, letter := range b.deadLetters(len(msgs), byBody) {
			ours := state(&letter)
			restoreProperties(&letter)
			reportDifferences(t, "the dead letter "+id, letter.Headers, msgs[id])
			if want := map[string]string{"deep": "exhausted", "array": "exhausted", "8100": "exhausted", "8170": "unschedulable"}[id]; want != "" && ours[redeliver.HeaderReason] != want {
				t.Errorf("%s is in the DLQ with %v, want the reason %s", id, ours, want)
			}
		}
		b.checkNoFaults()
	})
}
