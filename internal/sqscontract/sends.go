package sqscontract

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

const (
	sendPage       = apiPages + "SendMessage.html"
	batchPage      = apiPages + "SendMessageBatch.html"
	quotasPage     = guide + "quotas-messages.html"
	attributesPage = guide + "sqs-message-metadata.html"
	timersPage     = guide + "sqs-message-timers.html"
	delaysPage     = guide + "sqs-delay-queues.html"
)

// sendRules are the rules of messages that are sent.
var sendRules = []Rule{
	{Name: "DelaySeconds of a message", AWS: "comes in time", Page: timersPage, observe: func(c *check) string {
		url, began := c.queue(), time.Now()
		c.send(url, send{body: "a", delay: 2})
		return c.comes(url, began, 2*time.Second)
	}},
	{Name: "DelaySeconds of a queue", AWS: "comes in time", Page: delaysPage, observe: func(c *check) string {
		url, began := c.queue("DelaySeconds", "2"), time.Now()
		c.send(url, send{body: "a"})
		return c.comes(url, began, 2*time.Second)
	}},
	{Name: "a delay of 900 s", AWS: accepted, Page: timersPage, observe: func(c *check) string { return c.sends(send{body: "a", delay: 900}) }},
	{Name: "a delay of 901 s", AWS: refused, Page: timersPage, observe: func(c *check) string { return c.sends(send{body: "a", delay: 901}) }},
	{Name: "a delay of -1 s", AWS: refused, Page: sendPage, observe: func(c *check) string { return c.sends(send{body: "a", delay: -1}) }},
	{Name: "an empty body", AWS: refused, Page: sendPage, observe: func(c *check) string { return c.sends(send{}) }},
	{Name: "a body with U+FFFE", AWS: refused, Page: quotasPage, observe: func(c *check) string { return c.sends(send{body: "a\ufffe"}) }},
	{Name: "a body with U+0001", AWS: refused, Page: quotasPage, observe: func(c *check) string { return c.sends(send{body: "a\x01"}) }},
	{Name: "a body of 1 MiB", AWS: accepted, Page: quotasPage, observe: func(c *check) string { return c.sends(send{body: strings.Repeat("x", 1<<20)}) }},
	{Name: "a body of 1 MiB and a byte", AWS: refused, Page: quotasPage, observe: func(c *check) string {
		return c.sends(send{body: strings.Repeat("x", 1<<20+1)})
	}},
	{Name: "a body of MaximumMessageSize", AWS: accepted, Page: sendPage, observe: func(c *check) string {
		return c.sends(send{body: strings.Repeat("x", 1024)}, "MaximumMessageSize", "1024")
	}},
	{Name: "a body of MaximumMessageSize and a byte", AWS: refused, Page: sendPage, observe: func(c *check) string {
		return c.sends(send{body: strings.Repeat("x", 1025)}, "MaximumMessageSize", "1024")
	}},
	{Name: "a body of MaximumMessageSize with an attribute", AWS: refused, Page: attributesPage, observe: func(c *check) string {
		return c.sends(send{body: strings.Repeat("x", 1024), attributes: map[string]types.MessageAttributeValue{"a": text("b")}}, "MaximumMessageSize", "1024")
	}},
	{Name: "a batch of 1 MiB and a byte", AWS: refused, Page: batchPage, observe: func(c *check) string {
		url := c.queue()
		_, err := c.trySendAll(url, send{body: strings.Repeat("x", 1<<19)}, send{body: strings.Repeat("x", 1<<19+1)})
		return verdict(err)
	}},
	{Name: "a batch of 11 messages", AWS: refused, Page: batchPage, observe: func(c *check) string {
		_, err := c.trySendAll(c.queue(), make11()...)
		return verdict(err)
	}},
	{Name: "a batch without messages", AWS: refused, Page: batchPage, observe: func(c *check) string {
		_, err := c.trySendAll(c.queue())
		return verdict(err)
	}},
	{Name: "a batch with one bad message", AWS: "sends the others", Page: batchPage, observe: func(c *check) string {
		url := c.queue()
		_, err := c.trySendAll(url, send{body: "a", delay: 901}, send{body: "b"})
		if all := c.receive(url, 2, 30); err == nil || bodies(all) != "b" {
			return fmt.Sprintf("sends %q, %s", bodies(all), code(err))
		}
		return "sends the others"
	}},
	{Name: "ten attributes of every type", AWS: returns, Page: attributesPage, observe: func(c *check) string {
		url, all := c.queue(), numbered(4)
		all["number"], all["float"] = typed("Number", "-12.50"), typed("Number.float", "3.14")
		all["binary"], all["png"] = binary("Binary", []byte{0, 1, 0xfe, 0xff}), binary("Binary.png", []byte("\x89PNG"))
		all["a.dotted-name_1"], all["json"] = text("ü <&> \t\n\U0010ffff"), typed("String.json", `{"a":1}`)
		c.send(url, send{body: "a", attributes: all})
		return same(c.one(url, 30).MessageAttributes, all)
	}},
	{Name: "11 attributes", AWS: refused, Page: attributesPage, observe: func(c *check) string {
		return c.sends(send{body: "a", attributes: numbered(11)})
	}},
	{Name: "an attribute whose name has a space", AWS: refused, Page: attributesPage, observe: func(c *check) string { return c.sendsAttribute("a b", text("v")) }},
	{Name: "an attribute whose name begins with AWS.", AWS: refused, Page: attributesPage, observe: func(c *check) string { return c.sendsAttribute("AWS.a", text("v")) }},
	{Name: "an attribute without a value", AWS: refused, Page: attributesPage, observe: func(c *check) string { return c.sendsAttribute("a", text("")) }},
	{Name: "an attribute with U+0001", AWS: refused, Page: attributesPage, observe: func(c *check) string { return c.sendsAttribute("a", text("v\x01")) }},
	{Name: "a number that is none", AWS: refused, Page: attributesPage, observe: func(c *check) string { return c.sendsAttribute("a", typed("Number", "abc")) }},
	{Name: "the trace header of a message in a batch", AWS: returns, Page: attributesPage, observe: func(c *check) string {
		const trace = "Root=1-5759e988-bd862e3fe1be46a994272793"
		url := c.queue()
		c.send(url, send{body: "a", trace: trace})
		switch got := c.one(url, 30).Attributes["AWSTraceHeader"]; got {
		case trace:
			return returns
		case "":
			return "is lost"
		default:
			return fmt.Sprintf("comes back as %q", got)
		}
	}},
	{Name: "MessageGroupId on a standard queue", AWS: returns, Page: guide + "sqs-fair-queues.html", observe: func(c *check) string {
		url := c.queue()
		if err := c.trySend(url, send{body: "a", group: "tenant"}); err != nil {
			return verdict(err)
		}
		if got := c.one(url, 30).Attributes["MessageGroupId"]; got != "tenant" {
			return fmt.Sprintf("comes back as %q", got)
		}
		return returns
	}},
	{Name: "MessageDeduplicationId on a standard queue", AWS: refused, Page: sendPage, observe: func(c *check) string {
		return c.sends(send{body: "a", group: "g", dedup: "d"})
	}},
	{Name: "the DLQ of a RedrivePolicy, after maxReceiveCount receives", AWS: "gets the message with its MessageId", Page: guide + "sqs-dead-letter-queues.html", observe: func(c *check) string {
		dead := c.queue()
		url := c.queue("RedrivePolicy", c.redriveTo(dead, 2))
		id := aws.ToString(c.send(url, send{body: "a", attributes: map[string]types.MessageAttributeValue{"k": text("v")}})[0].MessageId)
		for range 2 {
			if err := c.hide(url, c.one(url, 30).ReceiptHandle, 0); err != nil {
				c.Fatal(err)
			}
		}
		if all := c.receive(url, 1, 30); len(all) > 0 {
			return "does not get the message"
		}
		if m := c.one(dead, 30); aws.ToString(m.MessageId) != id || aws.ToString(m.MessageAttributes["k"].StringValue) != "v" {
			return "gets another message"
		}
		return "gets the message with its MessageId"
	}},
	{Name: "DeadLetterQueueSourceArn of a message that a RedrivePolicy moved", AWS: "is the queue's", Page: receivePage, observe: func(c *check) string {
		dead := c.queue()
		url := c.queue("RedrivePolicy", c.redriveTo(dead, 1))
		c.send(url, send{body: "a"})
		if err := c.hide(url, c.one(url, 30).ReceiptHandle, 0); err != nil {
			c.Fatal(err)
		}
		c.receive(url, 1, 30)
		switch source := c.one(dead, 30).Attributes["DeadLetterQueueSourceArn"]; source {
		case c.attributes(url)["QueueArn"]:
			return "is the queue's"
		case "":
			return "is missing"
		default:
			return fmt.Sprintf("is %q", source)
		}
	}},
}

// sends says whether a message is accepted by a new queue.
func (c *check) sends(s send, attributes ...string) string {
	return verdict(c.trySend(c.queue(attributes...), s))
}

func (c *check) sendsAttribute(name string, v types.MessageAttributeValue) string {
	return c.sends(send{body: "a", attributes: map[string]types.MessageAttributeValue{name: v}})
}

// redriveTo returns a RedrivePolicy.
func (c *check) redriveTo(url string, most int) string {
	c.Helper()
	return fmt.Sprintf(`{"deadLetterTargetArn":%q,"maxReceiveCount":%d}`, c.attributes(url)["QueueArn"], most)
}

func numbered(n int) map[string]types.MessageAttributeValue {
	all := make(map[string]types.MessageAttributeValue)
	for i := range n {
		all["a"+strconv.Itoa(i)] = text("v")
	}
	return all
}

func make11() []send {
	all := make([]send, 11)
	for i := range all {
		all[i].body = strconv.Itoa(i)
	}
	return all
}
