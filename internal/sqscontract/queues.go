package sqscontract

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
)

const (
	createPage    = apiPages + "CreateQueue.html"
	getPage       = apiPages + "GetQueueAttributes.html"
	setPage       = apiPages + "SetQueueAttributes.html"
	redrivePage   = guide + "sqs-configure-dead-letter-queue.html"
	migrationPage = guide + "sqs-json-faqs.html"
)

// queueRules are the rules of queues and their attributes.
var queueRules = []Rule{
	{Name: "a queue that does not exist", AWS: "is missing", Page: apiPages + "GetQueueUrl.html", observe: func(c *check) string {
		_, err := c.api.GetQueueUrl(context.Background(), &sqs.GetQueueUrlInput{QueueName: aws.String(name(""))})
		if got := code(err); !slices.Contains([]string{"QueueDoesNotExist", "NonExistentQueue"}, got) {
			return got
		}
		return "is missing"
	}},
	{Name: "CreateQueue of a queue that exists, with the same attributes", AWS: "returns its URL", Page: createPage, observe: func(c *check) string {
		n := name("")
		first, err := c.tryCreate(n, "VisibilityTimeout", "60")
		if err != nil {
			c.Fatal(err)
		}
		if second, err := c.tryCreate(n, "VisibilityTimeout", "60"); err != nil || first != second {
			return code(err)
		}
		return "returns its URL"
	}},
	{Name: "CreateQueue of a queue that exists, with another attribute", AWS: "says that it exists", Page: createPage, observe: func(c *check) string {
		n := name("")
		if _, err := c.tryCreate(n, "VisibilityTimeout", "60"); err != nil {
			c.Fatal(err)
		}
		_, err := c.tryCreate(n, "VisibilityTimeout", "61")
		if got := code(err); !slices.Contains([]string{"QueueNameExists", "QueueAlreadyExists"}, got) {
			return got
		}
		return "says that it exists"
	}},
	{Name: "CreateQueue within a minute of the deletion", AWS: "QueueDeletedRecently", Page: createPage, observe: func(c *check) string {
		n := name("")
		url, err := c.tryCreate(n)
		if err != nil {
			c.Fatal(err)
		}
		if _, err := c.api.DeleteQueue(context.Background(), &sqs.DeleteQueueInput{QueueUrl: &url}); err != nil {
			c.Fatal(err)
		}
		_, err = c.tryCreate(n)
		return code(err)
	}},
	{Name: "a name with a space", AWS: refused, Page: createPage, observe: func(c *check) string { return c.creates(name(" a")) }},
	{Name: "a name of 81 characters", AWS: refused, Page: createPage, observe: func(c *check) string { return c.creates(name(strings.Repeat("a", 60))) }},
	{Name: "a name that ends with .fifo, without FifoQueue", AWS: refused, Page: createPage, observe: func(c *check) string { return c.creates(name(".fifo")) }},
	{Name: "FifoQueue, with a name that does not end with .fifo", AWS: refused, Page: createPage, observe: func(c *check) string { return c.creates(name(""), "FifoQueue", "true") }},
	{Name: "an attribute of a queue that SQS does not know", AWS: "is refused by its name", Page: createPage, observe: func(c *check) string {
		_, err := c.tryCreate(name(""), "NoSuchAttribute", "1")
		if err == nil || !strings.Contains(err.Error(), "NoSuchAttribute") {
			return verdict(err)
		}
		return "is refused by its name"
	}},
	{Name: "DelaySeconds of 901 for a queue", AWS: refused, Page: setPage, observe: func(c *check) string { return c.creates(name(""), "DelaySeconds", "901") }},
	{Name: "MessageRetentionPeriod of 59", AWS: refused, Page: setPage, observe: func(c *check) string { return c.creates(name(""), "MessageRetentionPeriod", "59") }},
	{Name: "MaximumMessageSize of 1023", AWS: refused, Page: setPage, observe: func(c *check) string { return c.creates(name(""), "MaximumMessageSize", "1023") }},
	{Name: "VisibilityTimeout of 43201", AWS: refused, Page: setPage, observe: func(c *check) string { return c.creates(name(""), "VisibilityTimeout", "43201") }},
	{Name: "MessageRetentionPeriod of a new queue", AWS: "is 345600", Page: getPage, observe: func(c *check) string { return c.reports(c.queue(), "MessageRetentionPeriod") }},
	{Name: "MaximumMessageSize of a new queue", AWS: "is 1048576", Page: getPage, observe: func(c *check) string { return c.reports(c.queue(), "MaximumMessageSize") }},
	{Name: "VisibilityTimeout of a new queue", AWS: "is 30", Page: getPage, observe: func(c *check) string { return c.reports(c.queue(), "VisibilityTimeout") }},
	{Name: "SqsManagedSseEnabled of a new queue", AWS: "is true", Page: getPage, observe: func(c *check) string { return c.reports(c.queue(), "SqsManagedSseEnabled") }},
	{Name: "MessageRetentionPeriod of a queue that has another", AWS: "is 120", Page: getPage, observe: func(c *check) string {
		return c.reports(c.queue("MessageRetentionPeriod", "120"), "MessageRetentionPeriod")
	}},
	{Name: "SetQueueAttributes", AWS: "changes the attribute", Page: setPage, observe: func(c *check) string {
		url := c.queue()
		if err := c.set(url, "VisibilityTimeout", "77"); err != nil {
			return code(err)
		}
		if v := c.attributes(url)["VisibilityTimeout"]; v != "77" {
			return "reports " + v
		}
		return "changes the attribute"
	}},
	{Name: "the numbers of messages", AWS: "are 1 visible, 2 in flight, 3 delayed", Page: getPage, observe: func(c *check) string {
		url := c.queue()
		c.send(url, send{body: "a"}, send{body: "b"}, send{body: "c"})
		c.send(url, send{body: "d", delay: 600}, send{body: "e", delay: 600}, send{body: "f", delay: 600})
		c.one(url, 600)
		c.one(url, 600)
		a := c.attributes(url)
		const number = "ApproximateNumberOfMessages"
		return fmt.Sprintf("are %s visible, %s in flight, %s delayed", a[number], a[number+"NotVisible"], a[number+"Delayed"])
	}},
	{Name: "tags", AWS: "are listed until they are removed", Page: apiPages + "TagQueue.html", observe: func(c *check) string {
		url, ctx := c.queue(), context.Background()
		list := func() map[string]string {
			out, err := c.api.ListQueueTags(ctx, &sqs.ListQueueTagsInput{QueueUrl: &url})
			if err != nil {
				c.Fatal(err)
			}
			return out.Tags
		}
		if _, err := c.api.TagQueue(ctx, &sqs.TagQueueInput{QueueUrl: &url, Tags: map[string]string{"a": "1", "b": "é @+=._:/-"}}); err != nil {
			return code(err)
		}
		tagged := list()
		if _, err := c.api.UntagQueue(ctx, &sqs.UntagQueueInput{QueueUrl: &url, TagKeys: []string{"a"}}); err != nil {
			return code(err)
		}
		if left := list(); len(tagged) != 2 || len(left) != 1 || left["b"] != "é @+=._:/-" {
			return fmt.Sprintf("are %v and then %v", tagged, left)
		}
		return "are listed until they are removed"
	}},
	{Name: "a tag with a # in its value", AWS: refused, Page: guide + "quotas-queues.html", observe: func(c *check) string {
		url := c.queue()
		_, err := c.api.TagQueue(context.Background(), &sqs.TagQueueInput{QueueUrl: &url, Tags: map[string]string{"a": "#"}})
		return verdict(err)
	}},
	{Name: "a RedrivePolicy to a queue that does not exist", AWS: refused, Page: redrivePage, observe: func(c *check) string {
		arn := c.attributes(c.queue())["QueueArn"] + "-missing"
		return c.creates(name(""), "RedrivePolicy", fmt.Sprintf(`{"deadLetterTargetArn":%q,"maxReceiveCount":3}`, arn))
	}},
	{Name: "a RedrivePolicy of a FIFO queue to a standard queue", AWS: refused, Page: guide + "sqs-dead-letter-queues.html", observe: func(c *check) string {
		return c.creates(name(".fifo"), "FifoQueue", "true", "RedrivePolicy", c.redriveTo(c.queue(), 3))
	}},
	{Name: "a RedrivePolicy with maxReceiveCount 0", AWS: refused, Page: setPage, observe: func(c *check) string {
		return c.creates(name(""), "RedrivePolicy", c.redriveTo(c.queue(), 0))
	}},
	{Name: "a RedrivePolicy that the RedriveAllowPolicy of its DLQ denies", AWS: refused, Page: setPage, observe: func(c *check) string {
		url, err := c.tryCreate(name(""), "RedriveAllowPolicy", `{"redrivePermission":"denyAll"}`)
		if err != nil {
			return "cannot be denied"
		}
		return c.creates(name(""), "RedrivePolicy", c.redriveTo(url, 3))
	}},
	{Name: "the error about a missing queue", AWS: "has its old code, too", Page: migrationPage, observe: func(c *check) string {
		_, err := c.api.GetQueueUrl(context.Background(), &sqs.GetQueueUrlInput{QueueName: aws.String(name(""))})
		if old := fullCode(err); old != "AWS.SimpleQueueService.NonExistentQueue" {
			return "has the code " + old
		}
		return "has its old code, too"
	}},
}

// creates says whether a queue can be created.
func (c *check) creates(name string, attributes ...string) string {
	_, err := c.tryCreate(name, attributes...)
	return verdict(err)
}

// reports says which value of an attribute a queue reports.
func (c *check) reports(url, name string) string {
	c.Helper()
	if v, ok := c.attributes(url)[name]; ok {
		return "is " + v
	}
	return "is not reported"
}
