package sqs

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/sqs/internal/api"
	"github.com/redeliver/redeliver/internal/sqsfake"
)

// Each setting of each queue is changed by its owner while messages run and wait. Every message has one end, and none
// stays. The owner's RedrivePolicy is an end, too.
func TestEachSettingChangedAlone(t *testing.T) {
	for _, queue := range []string{"orders", "orders.fifo"} {
		theirs := api.SiblingName(queue, "-theirs")
		for _, changed := range []string{queue, api.SiblingName(queue, suspectsSuffix), api.SiblingName(queue, dlqSuffix)} {
			for setting, value := range map[string]string{
				"DelaySeconds": "900", "MaximumMessageSize": "1024", "MessageRetentionPeriod": "300", "ReceiveMessageWaitTimeSeconds": "20", "VisibilityTimeout": "0",
				"RedrivePolicy":             fmt.Sprintf(`{"deadLetterTargetArn":%q,"maxReceiveCount":1}`, sqsfake.ARN(theirs)),
				"ContentBasedDeduplication": "true", "DeduplicationScope": "messageGroup",
			} {
				isFIFO := api.IsFIFO(queue)
				if (strings.Contains(setting, "Deduplication") && !isFIFO) || setting == "MessageRetentionPeriod" && (isFIFO || changed != queue) {
					continue // it would delete dead letters, or messages that wait for the head of their group
				}
				t.Run(fmt.Sprint(changed, " ", setting), func(t *testing.T) {
					inBubble(t, func(b *bubble) {
						b.Create(queue)
						b.Create(theirs)
						done := map[string]int{}
						stop := b.consume(queue, Config{Policy: steps(2, 20*time.Second, 3*time.Minute)}, func(_ context.Context, st redeliver.State, _ types.Message) error {
							if strings.HasPrefix(st.ID, "fails") || strings.HasPrefix(st.ID, "recovers") && st.Attempt() < 3 {
								return errHandler
							}
							b.mu.Lock()
							defer b.mu.Unlock()
							done[st.ID]++
							return nil
						})
						ids := map[string]bool{}
						for n := range 6 {
							for _, kind := range []string{"fine", "fails", "recovers"} {
								id := fmt.Sprint(kind, n)
								ids[id] = true
								b.put(queue, id, strings.Repeat("v", 1+900*(n%2)), map[bool]string{true: kind}[isFIFO], nil)
							}
							if n == 2 {
								b.Set(changed, setting, value)
							}
							b.advance(10 * time.Second)
						}
						suspects := api.SiblingName(queue, suspectsSuffix)
						for range 60 {
							if len(b.Messages(queue))+len(b.Messages(suspects)) > 0 {
								b.advance(time.Minute)
							}
						}
						stop()
						dead := map[string]bool{} // a large message may be in several parts
						for _, m := range append(b.Messages(api.SiblingName(queue, dlqSuffix)), b.Messages(theirs)...) {
							dead[string(m.Attributes[UUIDAttribute].Value)] = true
						}
						for id := range ids {
							if ends := done[id] + map[bool]int{true: 1}[dead[id]]; ends != 1 {
								b.Errorf("%s has %d ends: ran %v, is dead: %t", id, ends, b.ran(id), dead[id])
							}
						}
						b.wantKept()
						if n := len(b.Messages(queue)) + len(b.Messages(suspects)); n > 0 {
							b.Errorf("%d messages are left", n)
						}
					})
				})
			}
		}
	}
}
