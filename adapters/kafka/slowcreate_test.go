package kafka_test

import (
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/redeliver/redeliver/adapters/kafka"
)

// refuseCreateTopics answers a request to create topics with an error for each.
func refuseCreateTopics(req kmsg.Request, why *kerr.Error) kmsg.Response {
	res := req.ResponseKind().(*kmsg.CreateTopicsResponse)
	for _, topic := range req.(*kmsg.CreateTopicsRequest).Topics {
		one := kmsg.NewCreateTopicsResponseTopic()
		one.Topic, one.ErrorCode = topic.Topic, why.Code
		res.Topics = append(res.Topics, one)
	}
	return res
}

// A busy broker may not create a topic in time, or not know its settings at once. Then it is asked again.
func TestASlowTopicCreationIsRetried(t *testing.T) {
	t.Parallel()
	cluster := fake(t, "orders")
	var asked atomic.Int32
	cluster.ControlKey(int16(kmsg.CreateTopics), func(req kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		if asked.Add(1)%2 == 0 {
			return nil, nil, false
		}
		return refuseCreateTopics(req, kerr.RequestTimedOut), nil, true
	})
	var described atomic.Int32
	cluster.ControlKey(int16(kmsg.DescribeConfigs), func(req kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		resources := req.(*kmsg.DescribeConfigsRequest).Resources
		if len(resources) < 2 || described.Add(1) > 2 { // the origin is old
			return nil, nil, false
		}
		res := req.ResponseKind().(*kmsg.DescribeConfigsResponse)
		for _, r := range resources {
			one := kmsg.NewDescribeConfigsResponseResource()
			one.ResourceType, one.ResourceName, one.ErrorCode = r.ResourceType, r.ResourceName, kerr.UnknownTopicOrPartition.Code
			res.Resources = append(res.Resources, one)
		}
		return res, nil, true
	})
	c, ev := openClient(t, kafka.Config{Brokers: cluster.ListenAddrs(), Group: "billing", Policy: quick(1)})
	route(t, c, "orders", failFirst(1))
	recs, ids := orders("orders", 3)
	write(t, cluster.ListenAddrs(), recs...)
	ev.awaitEnds(t, ids...)
	if asked.Load() < 4 || described.Load() < 3 {
		t.Errorf("%d topics were asked for, and settings %d times", asked.Load(), described.Load())
	}
}
