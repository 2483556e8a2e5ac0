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
	"github.com/redeliver/redeliver/adapters/sqs/internal/wire"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/driver"
	"github.com/redeliver/redeliver/internal/sqsfake"
	"github.com/redeliver/redeliver/mq"
)

// Plan names the right for each operation of a subscription, and no other. Messages succeed, fail, are dead-lettered,
// need heartbeats, and become suspects.
func TestPlanNamesEachOperation(t *testing.T) {
	for _, queue := range []string{"orders", "orders.fifo"} {
		t.Run(queue, func(t *testing.T) {
			inBubble(t, func(b *bubble) {
				plan, planned := b.plan(queue)
				st := redeliver.State{ID: "often", Group: queue, Origin: queue, Attempts: 1, Due: b.began}
				rewritten := wire.Carried{Headers: driver.AppendStateHeaders(st, nil)}
				state := strings.Replace(rewritten.Pack(), "{", fmt.Sprintf(`{"copies":"%d",`, maxCopies), 1)
				b.putIn(queue, "often", map[string]sqsfake.Attribute{StateAttribute: sqsfake.String(state)})
				b.Edit(queue, func(m *sqsfake.Message) { m.Receives = maxReturnsInPlace })
				for n, q := range []string{queue, api.SiblingName(queue, suspectsSuffix)} {
					for _, kind := range []string{"fine", "fails", "slow"} {
						b.putIn(q, fmt.Sprint(kind, n), nil)
					}
				}
				stop := b.consume(queue, Config{NoProvisioning: true, Policy: steps(1, 20*time.Second)}, func(_ context.Context, st redeliver.State, _ types.Message) error {
					if strings.HasPrefix(st.ID, "slow") {
						<-time.After(20 * time.Second)
					}
					if strings.HasPrefix(st.ID, "fails") {
						return errHandler
					}
					return nil
				})
				b.advance(10 * time.Minute)
				stop()
				b.wantRights(plan.Rights, planned)
			})
		})
	}
}

// Plan names the right for each operation of a person who works on a DLQ and pauses its queue, and no other.
func TestPlanNamesEachOperationOfAnOperator(t *testing.T) {
	for _, queue := range []string{"orders", "orders.fifo"} {
		t.Run(queue, func(t *testing.T) {
			inBubble(t, func(b *bubble) {
				plan, planned := b.plan(queue)
				b.Create(plan.OperatorPlaces[0].Name)
				q := openTestDLQ(b.T, b.fake, queue, 30, map[bool]string{true: "g"}[api.IsFIFO(queue)])
				defer q.Close()
				ctx := b.Context()
				for _, do := range []func() error{
					func() error { return q.client.Operations().Pause(ctx, queue, "why") },
					func() error { _, err := q.client.Operations().Paused(ctx, queue); return err },
					func() error { return q.client.Operations().Resume(ctx, queue) },
					func() error {
						for _, err := range deadletter.Browse(ctx, q, deadletter.Filter{}) {
							if err != nil {
								return err
							}
						}
						return nil
					},
					func() error {
						_, err := deadletter.Replay(ctx, q, deadletter.ReplayOptions{Who: "ann", Why: "test", Filter: deadletter.Filter{IDs: []string{"m-000"}}})
						return err
					},
					func() error {
						var exported strings.Builder
						if _, err := deadletter.Export(ctx, q, deadletter.Filter{}, &exported); err != nil {
							return err
						}
						_, err := deadletter.Import(ctx, q, strings.NewReader(exported.String()), deadletter.ImportOptions{Who: "ann", Why: "test"})
						return err
					},
					func() error {
						_, err := deadletter.Purge(ctx, q, deadletter.PurgeOptions{Who: "ann", Why: "test", Everything: true})
						return err
					},
				} {
					if err := do(); err != nil {
						b.Error(err)
					}
				}
				b.wantRights(plan.OperatorRights, planned)
			})
		})
	}
}

// plan creates the queues of a subscription. It returns the plan, and how many operations that took.
func (b *bubble) plan(queue string) (plan *mq.Plan, operations int) {
	b.Helper()
	for _, q := range queuesOf(queue) {
		b.Create(q)
	}
	plan, err := b.client(b.T, Config{}).Plan(b.Context(), queue)
	if err != nil {
		b.Fatal(err)
	}
	return plan, len(b.Operations())
}

// queuesOf returns the queues of a subscription.
func queuesOf(queue string) []string {
	all := []string{queue, Names{}.suspects(queue), Names{}.dlq(queue)}
	if api.IsFIFO(queue) {
		all = append(all, Names{}.place(queue))
	}
	return all
}

// putIn puts a message that is alone in its group.
func (b *bubble) putIn(queue, id string, attributes map[string]sqsfake.Attribute) {
	b.put(queue, id, "v", map[bool]string{true: id}[api.IsFIFO(queue)], attributes)
}

// wantRights checks that rights are those of the operations after the first ones. AWS's rights include the batches of an action.
func (b *bubble) wantRights(rights []mq.Right, first int) {
	b.Helper()
	used := map[string]bool{}
	for _, o := range b.Operations()[first:] {
		used["sqs:"+strings.TrimSuffix(o.Action, "Batch")+" on "+o.Queue] = true
	}
	for _, r := range rights {
		for _, action := range r.Operations {
			if op := action + " on " + r.Name; !used[op] {
				b.Errorf("the right %s is not needed", op)
			} else {
				delete(used, op)
			}
		}
	}
	for op := range used {
		b.Errorf("the plan does not name %s", op)
	}
}
