package loss

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"time"
)

// rule determines the results of a message's handler.
type rule string

const (
	never  rule = "never"  // never fails: the first run commits it
	once   rule = "once"   // the first attempt fails
	always rule = "always" // every attempt fails: it must end in the DLQ
)

// The headers by which the consumers know a message. Everything else in a message only has to arrive unchanged.
const (
	headerID    = "id"
	headerRule  = "fail"
	headerAfter = "after" // the error asks for this wait, instead of the policy's
)

// steps are the policy's waits, short so that many retries fit into a test. The last of the resulting levels is used
// for hops, too: see headerAfter.
var steps = []time.Duration{200 * time.Millisecond, 500 * time.Millisecond, time.Second}

const maxRetries = 3

// header is one of a record's headers; a nil value is null.
type header struct {
	key   string
	value []byte
}

// item is a message with its expected history.
type item struct {
	id      string
	rule    rule
	after   time.Duration
	key     []byte
	value   []byte
	headers []header
	uuid    bool // it has a Watermill UUID, which is then redeliver's id
	// place is the position that the broker reported, or "" for a write without an answer.
	place string
	at    time.Time
	// recordID is the id that redeliver derives from the place and the time, on Kafka; otherwise it is the place.
	recordID string
}

// attempts returns the number of runs that the rule asks for.
func (it *item) attempts() int {
	switch it.rule {
	case once:
		return 2
	case always:
		return maxRetries + 1
	default:
		return 1
	}
}

// wait returns the minimum time between the failure of an attempt (counted from 1) and the next attempt.
func (it *item) wait(attempt int) time.Duration {
	if it.after > 0 {
		return it.after
	}
	return steps[min(attempt, len(steps))-1]
}

// makeItems draws n messages. Of a thousand, onces fail once and failAlways always. There are about ten messages for each
// key.
func makeItems(rng *rand.Rand, n, onces, failAlways int) []*item {
	return moreItems(rng, 0, n, onces, failAlways)
}

// moreItems draws n additional messages after the existing ones.
func moreItems(rng *rand.Rand, there, n, onces, failAlways int) []*item {
	items := make([]*item, n)
	for at := range items {
		i := there + at
		it := &item{id: fmt.Sprintf("m%06d", i), rule: never, uuid: rng.IntN(2) == 0}
		switch nth := i % 1000; {
		case nth < onces:
			it.rule = once
		case nth < onces+failAlways:
			it.rule = always
		}
		it.key = fmt.Appendf(nil, "k\x00%d", rng.IntN(n/10+1))
		it.value = fmt.Appendf(nil, "%s \xff\x00 %d", it.id, rng.Uint64())
		it.headers = []header{{headerID, []byte(it.id)}, {headerRule, []byte(it.rule)}}
		if it.rule != never && rng.IntN(4) == 0 {
			it.after = 1300 * time.Millisecond // 1s, then 200ms, and the rest is held
			it.headers = append(it.headers, header{headerAfter, []byte(it.after.String())})
		}
		it.headers = append(it.headers,
			header{"twice", []byte{0, 0xff}}, header{"twice", []byte("second")}, header{"null", nil}, header{"empty", []byte{}})
		if it.uuid {
			it.headers = append(it.headers, header{"_watermill_message_uuid", []byte(it.id)})
		}
		items[at] = it
	}
	rng.Shuffle(n, func(i, j int) { items[i], items[j] = items[j], items[i] })
	return items
}

// same reports whether two values are equal and both or neither null.
func same(a, b []byte) bool { return bytes.Equal(a, b) && (a == nil) == (b == nil) }
