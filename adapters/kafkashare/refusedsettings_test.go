package kafkashare

import (
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/redeliver/redeliver/internal/kafkaname"
)

// A service that refuses one setting of topics lets a subscription start, unless its default would lose something. Then
// the error says what to set. In both cases all topics exist, so that the remedy is one command for each.
func TestARefusedSettingOfATopicRefusesNoStart(t *testing.T) {
	t.Parallel()
	for _, setting := range kafkaname.AllSettings {
		if setting.Messages == "" {
			continue // only compacted topics have it
		}
		t.Run(setting.Name, func(t *testing.T) {
			t.Parallel()
			cluster, c := openFake(t, 1, "orders")
			cluster.ControlKey(int16(kmsg.CreateTopics), func(req kmsg.Request) (kmsg.Response, error, bool) {
				cluster.KeepControl()
				create, ok := req.(*kmsg.CreateTopicsRequest)
				if !ok || !slices.ContainsFunc(create.Topics[0].Configs, func(c kmsg.CreateTopicsRequestTopicConfig) bool { return c.Name == setting.Name }) {
					return nil, nil, false
				}
				resp, _ := create.ResponseKind().(*kmsg.CreateTopicsResponse)
				topic := kmsg.NewCreateTopicsResponseTopic()
				topic.Topic, topic.ErrorCode = create.Topics[0].Topic, kerr.PolicyViolation.Code
				resp.Topics = append(resp.Topics, topic)
				return resp, nil, true
			})
			_, err := c.prepareLayout(t.Context(), "orders")
			if needed := setting.Name == "max.message.bytes" || setting.Name == "retention.ms"; needed && (err == nil || !strings.Contains(err.Error(), setting.Name)) || !needed && err != nil {
				t.Errorf("the start: %v", err)
			}
			for _, suffix := range []string{".retry", ".retry.1s", ".dlq"} {
				if cluster.TopicInfo("orders.billing"+suffix) == nil {
					t.Errorf("%s is missing", suffix)
				}
			}
		})
	}
}
