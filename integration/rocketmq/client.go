package rocketmq

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// The codes of the requests and answers that this package uses, with RocketMQ's names.
const (
	sendMessage         = 10
	pullMessage         = 11
	queryConsumerOffset = 14
	updateTopic         = 17
	getBrokerConfig     = 26
	getBrokerRuntime    = 28
	getMaxOffset        = 30
	getRoute            = 105
	getClusterInfo      = 106
	updateGroup         = 200
	deleteGroup         = 207
	deleteInBroker      = 215
	deleteInNameServer  = 216

	systemBusy        = 2
	topicNotExist     = 17
	pullNotFound      = 19
	pullRetry         = 20
	pullOffsetMoved   = 21
	offsetNotFound    = 22
	readAndWrite      = "6" // a topic's permission
	withSubscription  = "4" // a pull's flag: the group need not be online, what it wants is in the request
	maxUnderWay       = 512
	maxPerPull        = "32" // messages, what a broker gives at most by its defaults
	defaultTopic      = "TBW102"
	retryTopicOfGroup = "%RETRY%"
	dlqOfGroup        = "%DLQ%"
)

// RetryTopic and DLQ return the names of a group's retry topic and of its DLQ.
func RetryTopic(group string) string { return retryTopicOfGroup + group }
func DLQ(group string) string        { return dlqOfGroup + group }

// Client is connected to a name server and to its one broker. It is safe for concurrent use.
type Client struct {
	names, broker *conn
	underWay      chan struct{} // writes
}

// address matches the address of a broker's master in the list of brokers. Its key is a number, with or without quotes.
var address = regexp.MustCompile(`"brokerAddrs":\{"?0"?:"([^"]+)"`)

// Dial connects to a name server, host:port, and to the broker that it knows. It returns an error if there is none.
func Dial(ctx context.Context, nameServer string) (*Client, error) {
	names, err := dialBroker(ctx, nameServer)
	if err != nil {
		return nil, fmt.Errorf("rocketmq's name server: %w", err)
	}
	list, err := names.call(ctx, getClusterInfo, nil, nil)
	if err != nil {
		names.close()
		return nil, fmt.Errorf("asking rocketmq's name server at %s for its brokers: %w", nameServer, err)
	}
	found := address.FindAllSubmatch(list.body, -1)
	if len(found) != 1 {
		names.close()
		return nil, fmt.Errorf("rocketmq's name server at %s knows %d brokers, not one: %s", nameServer, len(found), list.body)
	}
	broker, err := dialBroker(ctx, string(found[0][1]))
	if err != nil {
		names.close()
		return nil, fmt.Errorf("rocketmq's broker: %w", err)
	}
	return &Client{names: names, broker: broker, underWay: make(chan struct{}, maxUnderWay)}, nil
}

// Close closes both connections.
func (c *Client) Close() {
	c.names.close()
	c.broker.close()
}

// Version returns the version of the broker, such as "V5_5_0".
func (c *Client) Version(ctx context.Context) (string, error) {
	a, err := c.broker.call(ctx, getBrokerRuntime, nil, nil)
	if err != nil {
		return "", fmt.Errorf("asking rocketmq's broker for its version: %w", err)
	}
	var runtime struct {
		Table map[string]string `json:"table"`
	}
	if err := json.Unmarshal(a.body, &runtime); err != nil {
		return "", fmt.Errorf("asking rocketmq's broker for its version: %w", err)
	}
	return runtime.Table["brokerVersionDesc"], nil
}

// Settings returns the settings of the broker, by name.
func (c *Client) Settings(ctx context.Context) (map[string]string, error) {
	a, err := c.broker.call(ctx, getBrokerConfig, nil, nil)
	if err != nil {
		return nil, fmt.Errorf("asking rocketmq's broker for its settings: %w", err)
	}
	settings := make(map[string]string)
	for l := range strings.Lines(string(a.body)) {
		if name, value, ok := strings.Cut(strings.TrimSpace(l), "="); ok {
			settings[name] = value
		}
	}
	return settings, nil
}

// CreateTopic creates a topic with that number of queues, and returns when the name server announces it.
func (c *Client) CreateTopic(ctx context.Context, topic string, queues int) error {
	n := strconv.Itoa(queues)
	if _, err := c.broker.call(ctx, updateTopic, map[string]string{
		"topic": topic, "defaultTopic": defaultTopic, "readQueueNums": n, "writeQueueNums": n, "perm": readAndWrite,
		"topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false",
	}, nil); err != nil {
		return fmt.Errorf("creating rocketmq's topic %s: %w", topic, err)
	}
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for {
		_, err := c.names.call(ctx, getRoute, map[string]string{"topic": topic}, nil)
		if err == nil || !is(err, topicNotExist) {
			return err
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return fmt.Errorf("rocketmq's name server does not know topic %s, which was created: %w", topic, ctx.Err())
		}
	}
}

// CreateGroup creates a consumer group, with that number of queues in its retry topic.
func (c *Client) CreateGroup(ctx context.Context, group string, retryQueues int) error {
	config, err := json.Marshal(map[string]any{
		"groupName": group, "consumeEnable": true, "consumeFromMinEnable": true, "consumeBroadcastEnable": true,
		"retryQueueNums": retryQueues, "retryMaxTimes": 16, "brokerId": 0, "whichBrokerWhenConsumeSlowly": 1,
		"notifyConsumerIdsChangedEnable": true,
	})
	if err != nil {
		return err
	}
	if _, err := c.broker.call(ctx, updateGroup, nil, config); err != nil {
		return fmt.Errorf("creating rocketmq's group %s: %w", group, err)
	}
	return c.CreateTopic(ctx, RetryTopic(group), retryQueues)
}

// Drop deletes topics and a group with its offsets, its retry topic and its DLQ.
func (c *Client) Drop(ctx context.Context, group string, topics ...string) error {
	var errs []error
	for _, topic := range append(topics, RetryTopic(group), DLQ(group)) {
		_, err := c.broker.call(ctx, deleteInBroker, map[string]string{"topic": topic}, nil)
		_, bad := c.names.call(ctx, deleteInNameServer, map[string]string{"topic": topic}, nil)
		if err = errors.Join(err, bad); err != nil {
			errs = append(errs, fmt.Errorf("deleting rocketmq's topic %s: %w", topic, err))
		}
	}
	if _, err := c.broker.call(ctx, deleteGroup, map[string]string{"groupName": group, "cleanOffset": "true"}, nil); err != nil {
		errs = append(errs, fmt.Errorf("deleting rocketmq's group %s: %w", group, err))
	}
	return errors.Join(errs...)
}

// Ends returns how many messages have been written to each queue of a topic.
func (c *Client) Ends(ctx context.Context, topic string, queues int) ([]int64, error) {
	return c.offsets(ctx, getMaxOffset, queues, map[string]string{"topic": topic})
}

// Committed returns the committed offset of a group in each queue of a topic, 0 for none.
func (c *Client) Committed(ctx context.Context, group, topic string, queues int) ([]int64, error) {
	return c.offsets(ctx, queryConsumerOffset, queues, map[string]string{"topic": topic, "consumerGroup": group})
}

func (c *Client) offsets(ctx context.Context, code, queues int, fields map[string]string) ([]int64, error) {
	all := make([]int64, queues)
	for q := range all {
		asked := maps.Clone(fields)
		asked["queueId"] = strconv.Itoa(q)
		a, err := c.broker.call(ctx, code, asked, nil)
		if is(err, offsetNotFound) {
			continue
		}
		if err == nil {
			all[q], err = strconv.ParseInt(a.ExtFields["offset"], 10, 64)
		}
		if err != nil {
			return nil, fmt.Errorf("asking rocketmq for the offsets of %s, queue %d: %w", fields["topic"], q, err)
		}
	}
	return all, nil
}
