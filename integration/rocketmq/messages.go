package rocketmq

import (
	"context"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Produce writes a message to a queue of a topic. Another goroutine calls done once, when the broker has confirmed the
// message. Produce waits while too many writes are unconfirmed. It repeats a write that the broker refuses because it
// is busy, as RocketMQ's own producer does.
func (c *Client) Produce(ctx context.Context, topic string, queue int, id string, body []byte, done func(error)) {
	select {
	case c.underWay <- struct{}{}:
	case <-ctx.Done():
		done(ctx.Err())
		return
	}
	request := command{Code: sendMessage, body: body, ExtFields: map[string]string{
		"producerGroup": "redeliver", "topic": topic, "defaultTopic": defaultTopic, "defaultTopicQueueNums": "4",
		"queueId": strconv.Itoa(queue), "sysFlag": "0", "bornTimestamp": strconv.FormatInt(time.Now().UnixMilli(), 10), "flag": "0",
		// The properties that RocketMQ's own producer sets in every message. The protocol defines the bytes between
		// names and values.
		"properties": "UNIQ_KEY\x01" + id + "\x02WAIT\x01true\x02", "reconsumeTimes": "0", "unitMode": "false", "batch": "false",
	}}
	var answered func(command, error)
	answered = func(a command, err error) {
		switch {
		case err != nil:
		case a.Code == systemBusy && ctx.Err() == nil:
			go c.broker.send(request, answered) // not here, where answers are read
			return
		case a.Code != 0:
			err = fmt.Errorf("writing to %s: %w", topic, &Error{a.Code, a.Remark})
		}
		<-c.underWay
		done(err)
	}
	c.broker.send(request, answered)
}

// Message is a message in a queue.
type Message struct {
	Body   []byte
	Stored time.Time // when the broker wrote it, to the millisecond
}

// Read calls f with every message now in a topic.
func (c *Client) Read(ctx context.Context, topic string, queues int, f func(Message)) error {
	ends, err := c.Ends(ctx, topic, queues)
	if err != nil {
		return err
	}
	for q, end := range ends {
		for at := int64(0); at < end; {
			found, next, err := c.pull(ctx, topic, q, at)
			if err == nil && next <= at && len(found) == 0 {
				err = fmt.Errorf("nothing at %d of %d", at, end)
			}
			if err != nil {
				return fmt.Errorf("reading %s, queue %d: %w", topic, q, err)
			}
			for _, m := range found {
				f(m)
			}
			at = next
		}
	}
	return nil
}

// pull reads a few messages from an offset, and returns the next offset.
func (c *Client) pull(ctx context.Context, topic string, queue int, at int64) ([]Message, int64, error) {
	a, err := c.broker.call(ctx, pullMessage, map[string]string{
		"consumerGroup": "redeliver-reader", "topic": topic, "queueId": strconv.Itoa(queue), "queueOffset": strconv.FormatInt(at, 10),
		"maxMsgNums": maxPerPull, "sysFlag": withSubscription, "commitOffset": "0", "suspendTimeoutMillis": "0",
		"subscription": "*", "subVersion": "0", "expressionType": "TAG",
	}, nil)
	// An answer without messages, with the offset of the next one.
	empty := is(err, pullNotFound) || is(err, pullRetry) || is(err, pullOffsetMoved)
	if err != nil && !empty {
		return nil, 0, err
	}
	next, err := strconv.ParseInt(a.ExtFields["nextBeginOffset"], 10, 64)
	if err != nil {
		return nil, 0, fmt.Errorf("the answer to a pull does not say where to go on: %w", err)
	}
	if empty {
		return nil, next, nil
	}
	found, err := parse(a.body)
	return found, next, err
}

// Offsets in a message, and the flags for addresses that are twelve bytes longer (IPv6).
const (
	flagsAt  = 36
	hostsAt  = 48
	bornV6   = 1 << 4
	storedV6 = 1 << 5
	longer   = 12
)

// parse reads the messages of a pull. Each begins with its length.
func parse(b []byte) (all []Message, err error) {
	for len(b) > 0 {
		if len(b) < 92 || int(binary.BigEndian.Uint32(b)) > len(b) || binary.BigEndian.Uint32(b) < 92 {
			return all, fmt.Errorf("a message in %d bytes that is none", len(b))
		}
		var one []byte
		one, b = b[:binary.BigEndian.Uint32(b)], b[binary.BigEndian.Uint32(b):]
		flags, at := binary.BigEndian.Uint32(one[flagsAt:]), hostsAt+8
		if flags&bornV6 != 0 {
			at += longer
		}
		stored := time.UnixMilli(int64(binary.BigEndian.Uint64(one[at:])))
		if at += 8 + 8 + 4 + 8; flags&storedV6 != 0 { // the time, the broker's address, attempts, a transaction
			at += longer
		}
		if at+4 > len(one) || at+4+int(binary.BigEndian.Uint32(one[at:])) > len(one) {
			return all, fmt.Errorf("a message of %d bytes with more in it", len(one))
		}
		end := at + 4 + int(binary.BigEndian.Uint32(one[at:]))
		all = append(all, Message{Body: one[at+4 : end], Stored: stored})
	}
	return all, nil
}

// Delays parses a setting such as "1s 5s 2m": the wait of each level, beginning with level 1.
func Delays(setting string) ([]time.Duration, error) {
	var all []time.Duration
	for field := range strings.FieldsSeq(setting) {
		d, err := time.ParseDuration(field)
		if err != nil {
			return nil, fmt.Errorf("rocketmq's messageDelayLevel %q: %w", setting, err)
		}
		all = append(all, d)
	}
	return all, nil
}
