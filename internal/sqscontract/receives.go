package sqscontract

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
)

const (
	deletePage     = apiPages + "DeleteMessage.html"
	hidePage       = apiPages + "ChangeMessageVisibility.html"
	receivePage    = apiPages + "ReceiveMessage.html"
	visibilityPage = guide + "sqs-visibility-timeout.html"
	receiptsPage   = "https://repost.aws/knowledge-center/sqs-receipt-handle-error"
)

// receiveRules are the rules of receives, deletions and visibility timeouts.
var receiveRules = []Rule{
	{Name: "a message whose visibility timeout is over", AWS: "comes in time", Page: visibilityPage, observe: func(c *check) string {
		url := c.queue()
		c.send(url, send{body: "a"})
		c.one(url, 2)
		return c.comes(url, time.Now(), 2*time.Second)
	}},
	{Name: "the visibility timeout of a queue, if a receive has none", AWS: "comes in time", Page: visibilityPage, observe: func(c *check) string {
		url := c.queue("VisibilityTimeout", "2")
		c.send(url, send{body: "a"})
		c.one(url, 0) // the SDK omits it
		return c.comes(url, time.Now(), 2*time.Second)
	}},
	{Name: "a receive that waits", AWS: "gets a later message at once", Page: guide + "sqs-short-and-long-polling.html", observe: func(c *check) string {
		url := c.queue()
		time.AfterFunc(time.Second, func() { _ = c.trySend(url, send{body: "a"}) })
		began := time.Now()
		all := c.receive(url, 20, 30)
		if len(all) == 1 && time.Since(began) < 15*time.Second {
			return "gets a later message at once"
		}
		return fmt.Sprintf("gets %d messages after %s", len(all), time.Since(began).Round(time.Second))
	}},
	{Name: "the wait of a queue, if a receive has none", AWS: "gets a later message at once", Page: receivePage, observe: func(c *check) string {
		url := c.queue("ReceiveMessageWaitTimeSeconds", "20")
		time.AfterFunc(time.Second, func() { _ = c.trySend(url, send{body: "a"}) })
		if all := c.receive(url, 0, 30); len(all) == 1 {
			return "gets a later message at once"
		}
		return "ends at once"
	}},
	{Name: "a receive of 11 messages", AWS: refused, Page: receivePage, observe: func(c *check) string {
		_, err := c.tryReceive(c.queue(), 11, 0, 30)
		return verdict(err)
	}},
	{Name: "a receive that waits for 21 s", AWS: refused, Page: receivePage, observe: func(c *check) string {
		url := c.queue()
		c.send(url, send{body: "a"}) // so that it ends
		_, err := c.tryReceive(url, 1, 21, 30)
		return verdict(err)
	}},
	{Name: "ApproximateReceiveCount", AWS: "counts 1 2 3", Page: receivePage, observe: func(c *check) string {
		url, counts := c.queue(), []string{"counts"}
		c.send(url, send{body: "a"})
		for range 3 {
			m := c.one(url, 30)
			counts = append(counts, m.Attributes["ApproximateReceiveCount"])
			if err := c.hide(url, m.ReceiptHandle, 0); err != nil {
				c.Fatal(err)
			}
		}
		return strings.Join(counts, " ")
	}},
	{Name: "SentTimestamp, in milliseconds, at each receive", AWS: "is the same", Page: receivePage, observe: func(c *check) string {
		url, began := c.queue(), time.Now()
		c.send(url, send{body: "a"})
		first := c.one(url, 1).Attributes["SentTimestamp"]
		second := c.one(url, 1).Attributes["SentTimestamp"]
		at, err := strconv.ParseInt(first, 10, 64)
		if age := time.UnixMilli(at).Sub(began).Abs(); err != nil || first != second || age > time.Minute {
			return fmt.Sprintf("is %s and then %s", first, second)
		}
		return "is the same"
	}},
	{Name: "ChangeMessageVisibility to a longer time", AWS: hides, Page: hidePage, observe: func(c *check) string {
		url := c.queue()
		c.send(url, send{body: "a"})
		m := c.one(url, 1)
		began := time.Now()
		if err := c.hide(url, m.ReceiptHandle, 3); err != nil {
			c.Fatal(err)
		}
		if comes := c.comes(url, began, 3*time.Second); comes != "comes in time" {
			return comes
		}
		return hides
	}},
	{Name: "ChangeMessageVisibility to 0", AWS: "comes in time", Page: hidePage, observe: func(c *check) string {
		url := c.queue()
		c.send(url, send{body: "a"})
		m := c.one(url, 600)
		if err := c.hide(url, m.ReceiptHandle, 0); err != nil {
			c.Fatal(err)
		}
		return c.comes(url, time.Now(), 0)
	}},
	{Name: "ChangeMessageVisibility to more than 12 h", AWS: refused, Page: hidePage, observe: func(c *check) string {
		url := c.queue()
		c.send(url, send{body: "a"})
		return verdict(c.hide(url, c.one(url, 30).ReceiptHandle, 43201))
	}},
	{Name: "ChangeMessageVisibility beyond 12 h since the receive", AWS: refused, Page: visibilityPage, virtual: true, observe: func(c *check) string {
		url := c.queue()
		c.send(url, send{body: "a"})
		m := c.one(url, 43200)
		<-time.After(time.Hour)
		if err := c.hide(url, m.ReceiptHandle, 11*60*60); err != nil {
			c.Fatal(err)
		}
		return verdict(c.hide(url, m.ReceiptHandle, 11*60*60+1))
	}},
	{Name: "ChangeMessageVisibility of a message that is visible again", AWS: "MessageNotInflight", Page: hidePage, observe: func(c *check) string {
		url := c.queue()
		c.send(url, send{body: "a"})
		m := c.one(url, 30)
		if err := c.hide(url, m.ReceiptHandle, 0); err != nil {
			c.Fatal(err)
		}
		return code(c.hide(url, m.ReceiptHandle, 30))
	}},
	{Name: "ChangeMessageVisibility with an older receipt", AWS: refused, Page: visibilityPage, observe: func(c *check) string {
		url := c.queue()
		c.send(url, send{body: "a"})
		old := c.one(url, 1)
		c.one(url, 30)
		return verdict(c.hide(url, old.ReceiptHandle, 30))
	}},
	{Name: "a deletion with the latest receipt", AWS: "deletes the message", Page: deletePage, observe: func(c *check) string {
		url := c.queue()
		c.send(url, send{body: "a"})
		if err := c.delete(url, c.one(url, 1).ReceiptHandle); err != nil {
			return code(err)
		}
		if all := c.receive(url, 2, 30); len(all) > 0 {
			return "does not delete the message"
		}
		return "deletes the message"
	}},
	{Name: "a deletion with an older receipt, on a standard queue", AWS: accepted, Page: deletePage, observe: func(c *check) string {
		url := c.queue()
		c.send(url, send{body: "a"})
		old := c.one(url, 1)
		c.one(url, 30)
		return code(c.delete(url, old.ReceiptHandle))
	}},
	{Name: "a deletion after the visibility timeout, on a FIFO queue", AWS: refused, Page: receiptsPage, observe: func(c *check) string {
		url := c.fifo()
		c.send(url, send{body: "a", group: "g", dedup: "a"})
		m := c.one(url, 30)
		if err := c.hide(url, m.ReceiptHandle, 0); err != nil {
			c.Fatal(err)
		}
		return verdict(c.delete(url, m.ReceiptHandle))
	}},
	{Name: "a deletion with a text that is no receipt", AWS: "ReceiptHandleIsInvalid", Page: receiptsPage, observe: func(c *check) string {
		return code(c.delete(c.queue(), aws.String("redeliver-probe")))
	}},
	{Name: "a batch of deletions with one bad receipt", AWS: "deletes the others", Page: apiPages + "DeleteMessageBatch.html", observe: func(c *check) string {
		url := c.queue()
		c.send(url, send{body: "a"})
		m := c.one(url, 2)
		if err := c.delete(url, aws.String("redeliver-probe"), m.ReceiptHandle); err == nil {
			return "accepts the bad receipt"
		}
		if all := c.receive(url, 4, 30); len(all) > 0 {
			return "deletes nothing"
		}
		return "deletes the others"
	}},
	{Name: "a short poll of a standard queue with as many messages in flight as it may have", AWS: "OverLimit", Page: hidePage, virtual: true, observe: func(c *check) string {
		url := c.queue()
		c.fillFlight(url, "")
		_, err := c.tryReceive(url, 1, 0, 30)
		return code(err)
	}},
	{Name: "a long poll of such a queue", AWS: "returns nothing", Page: receivePage, virtual: true, observe: func(c *check) string {
		url := c.queue()
		c.fillFlight(url, "")
		return c.returnsNothing(url, 10)
	}},
	{Name: "a receive of a FIFO queue with as many messages in flight as it may have", AWS: "returns nothing", Page: guide + "quotas-fifo.html", virtual: true, observe: func(c *check) string {
		url := c.fifo()
		c.fillFlight(url, "g")
		return c.returnsNothing(url, 0)
	}},
	{Name: "a message at the end of the retention", AWS: "is deleted", Page: guide + "quotas-messages.html", virtual: true, observe: func(c *check) string {
		url := c.queue("MessageRetentionPeriod", "60")
		c.send(url, send{body: "a"})
		c.one(url, 600) // hidden beyond it
		<-time.After(59 * time.Second)
		if n := c.attributes(url)["ApproximateNumberOfMessagesNotVisible"]; n != "1" {
			return "is deleted early"
		}
		<-time.After(time.Second)
		if n := c.attributes(url)["ApproximateNumberOfMessagesNotVisible"]; n != "0" {
			return "stays"
		}
		return "is deleted"
	}},
}

// fillFlight receives as many messages as a queue may have in flight. More are there, in groups of their own.
func (c *check) fillFlight(url, group string) {
	c.Helper()
	for i := range maxInFlight + 10 {
		id := strconv.Itoa(i)
		if group == "" {
			c.send(url, send{body: id})
		} else {
			c.send(url, send{body: id, group: group + id, dedup: id})
		}
	}
	for range maxInFlight / 10 {
		if n := len(c.receive(url, 1, 600)); n != 10 {
			c.Fatalf("a receive got %d messages", n)
		}
	}
}

func (c *check) returnsNothing(url string, wait int32) string {
	all, err := c.tryReceive(url, 1, wait, 30)
	if err != nil || len(all) > 0 {
		return fmt.Sprintf("returns %d messages, %s", len(all), code(err))
	}
	return "returns nothing"
}
