package sqscontract

import (
	"fmt"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
)

const (
	orderPage = guide + "FIFO-queues-understanding-logic.html"
	dedupPage = guide + "using-messagededuplicationid-property.html"
	groupPage = guide + "using-messagegroupid-property.html"
)

// fifoRules are the rules of FIFO queues.
var fifoRules = []Rule{
	{Name: "a FIFO queue", AWS: "keeps the order of a group", Page: orderPage, observe: func(c *check) string {
		url := c.fifo()
		for i := range 12 {
			body := strconv.Itoa(i)
			c.send(url, send{body: body, group: "g", dedup: body})
		}
		for i := range 12 {
			m := c.one(url, 30)
			if got := aws.ToString(m.Body); got != strconv.Itoa(i) {
				return fmt.Sprintf("delivers %s as number %d", got, i)
			}
			if err := c.delete(url, m.ReceiptHandle); err != nil {
				c.Fatal(err)
			}
		}
		return "keeps the order of a group"
	}},
	{Name: "a group of which a message is in flight", AWS: "is held, and others are not", Page: orderPage, observe: func(c *check) string {
		url := c.fifo()
		c.send(url, send{body: "a1", group: "a", dedup: "a1"}, send{body: "a2", group: "a", dedup: "a2"}, send{body: "b1", group: "b", dedup: "b1"})
		c.one(url, 30)
		if got := bodies(c.receive(url, 1, 30)); got != "b1" {
			return "delivers " + got
		}
		return "is held, and others are not"
	}},
	{Name: "the head of a group that ChangeMessageVisibility hides", AWS: "comes before the others", Page: orderPage, observe: func(c *check) string {
		url := c.fifo()
		c.send(url, send{body: "a1", group: "a", dedup: "a1"}, send{body: "a2", group: "a", dedup: "a2"})
		m := c.one(url, 1)
		if err := c.hide(url, m.ReceiptHandle, 3); err != nil {
			c.Fatal(err)
		}
		if got := c.one(url, 30); aws.ToString(got.Body) != "a1" {
			return "is overtaken"
		}
		return "comes before the others"
	}},
	{Name: "DelaySeconds of a FIFO queue", AWS: "comes in time", Page: delaysPage, observe: func(c *check) string {
		url, began := c.fifo("DelaySeconds", "2"), time.Now()
		c.send(url, send{body: "a", group: "g", dedup: "a"})
		return c.comes(url, began, 2*time.Second)
	}},
	{Name: "DelaySeconds of a message on a FIFO queue", AWS: refused, Page: timersPage, observe: func(c *check) string {
		return c.sendsFIFO(send{body: "a", group: "g", dedup: "a", delay: 1})
	}},
	{Name: "a message without MessageGroupId on a FIFO queue", AWS: refused, Page: groupPage, observe: func(c *check) string { return c.sendsFIFO(send{body: "a", dedup: "a"}) }},
	{Name: "a message without MessageDeduplicationId on a FIFO queue", AWS: refused, Page: dedupPage, observe: func(c *check) string { return c.sendsFIFO(send{body: "a", group: "g"}) }},
	{Name: "a duplicate within five minutes", AWS: "is accepted and not delivered", Page: dedupPage, observe: func(c *check) string {
		return c.duplicate(c.fifo(), "d", "g", 0)
	}},
	{Name: "a duplicate of a deleted message", AWS: "is accepted and not delivered", Page: dedupPage, observe: func(c *check) string {
		url := c.fifo()
		c.send(url, send{body: "a", group: "g", dedup: "d"})
		if err := c.delete(url, c.one(url, 30).ReceiptHandle); err != nil {
			c.Fatal(err)
		}
		c.send(url, send{body: "b", group: "g", dedup: "d"})
		if all := c.receive(url, 1, 30); len(all) > 0 {
			return "is delivered"
		}
		return "is accepted and not delivered"
	}},
	{Name: "a duplicate after five minutes", AWS: "is delivered", Page: dedupPage, virtual: true, observe: func(c *check) string {
		return c.duplicate(c.fifo(), "d", "g", 5*time.Minute)
	}},
	{Name: "the MessageId of a duplicate", AWS: "is that of the first", Page: apiPages + "SendMessage.html", observe: func(c *check) string {
		url := c.fifo()
		first := c.send(url, send{body: "a", group: "g", dedup: "d"})[0]
		second := c.send(url, send{body: "a", group: "g", dedup: "d"})[0]
		if aws.ToString(first.MessageId) != aws.ToString(second.MessageId) {
			return "is another"
		}
		return "is that of the first"
	}},
	{Name: "a duplicate by content", AWS: "is accepted and not delivered", Page: dedupPage, observe: func(c *check) string {
		return c.duplicate(c.fifo("ContentBasedDeduplication", "true"), "", "g", 0)
	}},
	{Name: "a duplicate in another group, with the scope of a queue", AWS: "is accepted and not delivered", Page: dedupPage, observe: func(c *check) string {
		return c.duplicate(c.fifo(), "d", "h", 0)
	}},
	{Name: "a duplicate in another group, with the scope of a message group", AWS: "is delivered", Page: apiPages + "SetQueueAttributes.html", observe: func(c *check) string {
		return c.duplicate(c.fifo("DeduplicationScope", "messageGroup", "FifoThroughputLimit", "perMessageGroupId"), "d", "h", 0)
	}},
	{Name: "SequenceNumber in a group", AWS: "grows", Page: apiPages + "SendMessage.html", observe: func(c *check) string {
		url := c.fifo()
		all := make([]send, 10)
		for i := range all {
			all[i] = send{body: "a", group: "g", dedup: strconv.Itoa(i)}
		}
		c.send(url, all...)
		var last string
		for range all {
			m := c.one(url, 30)
			n := m.Attributes["SequenceNumber"]
			if len(n) < len(last) || len(n) == len(last) && n <= last || n == "" {
				return "does not grow"
			}
			last = n
			if err := c.delete(url, m.ReceiptHandle); err != nil {
				c.Fatal(err)
			}
		}
		return "grows"
	}},
	{Name: "a FIFO DLQ of a FIFO queue", AWS: "gets the message", Page: guide + "sqs-dead-letter-queues.html", observe: func(c *check) string {
		dead := c.fifo()
		url := c.fifo("RedrivePolicy", c.redriveTo(dead, 1))
		c.send(url, send{body: "a", group: "g", dedup: "a"})
		if err := c.hide(url, c.one(url, 30).ReceiptHandle, 0); err != nil {
			c.Fatal(err)
		}
		c.receive(url, 1, 30)
		if m := c.one(dead, 30); m.Attributes["MessageGroupId"] != "g" {
			return "gets it without its group"
		}
		return "gets the message"
	}},
}

func (c *check) sendsFIFO(s send) string {
	return verdict(c.trySend(c.fifo(), s))
}

// duplicate sends a message twice, the second one in a group after a wait, and says what happens to the second.
func (c *check) duplicate(url, dedup, group string, wait time.Duration) string {
	c.Helper()
	c.send(url, send{body: "a", group: "g", dedup: dedup})
	<-time.After(wait)
	c.send(url, send{body: "a", group: group, dedup: dedup})
	for n := 0; ; {
		all := c.receive(url, 1, 30)
		if len(all) == 0 {
			return map[bool]string{true: "is delivered", false: "is accepted and not delivered"}[n > 1]
		}
		n += len(all)
		for _, m := range all { // the next of its group comes when it is deleted
			if err := c.delete(url, m.ReceiptHandle); err != nil {
				c.Fatal(err)
			}
		}
	}
}
