package sqs

import (
	"context"
	"fmt"
	"maps"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/sqs/internal/api"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/doctor"
	"github.com/redeliver/redeliver/internal/sqsfake"
)

// refuseAttribute refuses to create queues with an attribute, as SQS does. It returns the attributes with which queues are
// created.
func (b *bubble) refuseAttribute(name string) (created map[string]map[string]any) {
	created = map[string]map[string]any{}
	b.setFault(func(call *sqsfake.Call) *sqsfake.Fault {
		given, _ := call.In["Attributes"].(map[string]any)
		switch {
		case call.Action != "CreateQueue":
		case given[name] != nil:
			return &sqsfake.Fault{Status: 400, Code: "InvalidParameterValue", Message: fmt.Sprintf("Value %v for parameter %s is invalid.", given[name], name)}
		default:
			created[call.Queue] = given
		}
		return nil
	})
	return created
}

// begin consumes orders.fifo for a second.
func (b *bubble) begin(cfg Config, queue string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	cfg.Sink = b
	return Consume(ctx, b.config(cfg), []string{queue}, func(context.Context, types.Message) error { return nil })
}

// Each attribute that redeliver sets is refused alone. A queue that only wishes for it is created with all others, an
// event says so. A queue that needs it is not created.
func TestEachAttributeRefusedAlone(t *testing.T) {
	kms := []string{"KmsMasterKeyId", "alias/mine", "KmsDataKeyReusePeriodSeconds", "600", "MaximumMessageSize", "2048"}
	set := map[string]bool{}
	for _, c := range []struct {
		queue      string
		attributes []string
		cfg        Config
		needed     string // beside those of the table
	}{
		{queue: "orders.fifo", attributes: kms},
		{queue: "orders", attributes: []string{"SqsManagedSseEnabled", "true"}},
		{queue: "orders", attributes: kms, cfg: Config{DLQ: deadletter.Config{Retention: 48 * time.Hour}}, needed: "MessageRetentionPeriod"},
	} {
		var wants map[string]map[string]any
		inBubble(t, func(b *bubble) {
			b.Create(c.queue, c.attributes...)
			wants = b.refuseAttribute("")
			if err := b.begin(c.cfg, c.queue); err != nil {
				b.Fatal(err)
			}
		})
		for _, a := range api.Attributes {
			used := false
			for _, attributes := range wants {
				used = used || attributes[a.Name] != nil
			}
			if !used {
				continue
			}
			set[a.Name] = true
			t.Run(c.queue+" without "+a.Name, func(t *testing.T) {
				inBubble(t, func(b *bubble) {
					b.Create(c.queue, c.attributes...)
					created := b.refuseAttribute(a.Name)
					err := b.begin(c.cfg, c.queue)
					if a.Needed || a.Name == c.needed {
						if err == nil || !strings.Contains(err.Error(), a.Name) || !strings.Contains(err.Error(), "orders-") {
							b.Errorf("it began: %v", err)
						}
						return
					}
					if err != nil {
						b.Fatal(err)
					}
					for name, want := range wants {
						want = maps.Clone(want)
						delete(want, a.Name)
						if got := created[name]; fmt.Sprint(got) != fmt.Sprint(want) {
							b.Errorf("%s is created with %v, want %v", name, got, want)
						}
					}
					reported := 0
					for _, e := range eventsOf[redeliver.SubscriptionChanged](b) {
						if e.Change == redeliver.ChangeSettingRefused && strings.Contains(e.Err.Error(), a.Name) {
							reported++
						}
					}
					if reported == 0 {
						b.Error("no event names it")
					}
				})
			})
		}
	}
	for _, a := range api.Attributes {
		if !set[a.Name] {
			t.Errorf("nothing sets %s", a.Name)
		}
	}
}

// An attribute that the user asked for in QueueAttributes is needed. A queue that takes too little without the attribute
// is read back and refused.
func TestRefusedAttributesThatBreakAPromise(t *testing.T) {
	for name, c := range map[string]struct {
		attribute string
		cfg       Config
		before    func(b *bubble)
	}{
		"asked for": {"DelaySeconds", Config{QueueAttributes: map[string]string{"DelaySeconds": "5"}}, func(*bubble) {}},
		"own redrive": {"RedrivePolicy", Config{QueueAttributes: map[string]string{
			"RedrivePolicy": `{"deadLetterTargetArn":"arn:aws:sqs:eu-west-1:1:x","maxReceiveCount":9}`}}, func(*bubble) {}},
		"too small": {"MaximumMessageSize", Config{}, func(b *bubble) {
			b.Create("orders", "MaximumMessageSize", "1048576")
			b.Inject(func(call *sqsfake.Call) *sqsfake.Fault { // a server on which new queues take 256 KiB
				if call.Action == "GetQueueAttributes" && call.Queue != "orders" && b.Attributes(call.Queue) != nil {
					b.Set(call.Queue, "MaximumMessageSize", "262144")
				}
				return nil
			})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bubble) {
				c.before(b)
				b.refuseAttribute(c.attribute)
				if err := b.begin(c.cfg, "orders"); err == nil || !strings.Contains(err.Error(), c.attribute) {
					b.Errorf("it began: %v", err)
				}
			})
		})
	}
}

// A DLQ whose RedriveAllowPolicy does not name redeliver's queue of suspects is no obstacle. The plan has no RedrivePolicy
// that SQS would refuse, and says with the doctor which ARN is missing.
func TestRedriveAllowPolicy(t *testing.T) {
	const arn = "arn:aws:sqs:eu-west-1:1:"
	byQueue := func(sources ...string) string {
		return fmt.Sprintf(`{"redrivePermission":"byQueue","sourceQueueArns":["%s"]}`, strings.Join(sources, `","`))
	}
	for name, c := range map[string]struct {
		policy       string
		main         bool // orders exists
		refuses      string
		wantRedrives string // queues that are created with a RedrivePolicy
	}{
		"by queue":           {byQueue(arn + "orders"), true, arn + "orders-suspects", ""},
		"by queue, no main":  {byQueue(arn + "orders"), false, arn + "orders-suspects", "orders"},
		"none":               {`{"redrivePermission":"denyAll"}`, false, arn + "orders-suspects", ""},
		"all":                {`{"redrivePermission":"allowAll"}`, false, "", "orders orders-suspects"},
		"both":               {byQueue(arn+"orders", arn+"orders-suspects"), false, "", "orders orders-suspects"},
		"unknown permission": {`{"redrivePermission":"byMoon"}`, true, "", "orders-suspects"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bubble) {
				if c.main {
					b.Create("orders")
				}
				b.Create("orders-dlq", "RedriveAllowPolicy", c.policy)
				check := func() {
					client := b.client(b.T, Config{})
					plan, err := client.Plan(b.Context(), "orders")
					if err != nil {
						b.Fatal(err)
					}
					if c.refuses != "" != strings.Contains(plan.String(), "RedriveAllowPolicy") || !strings.Contains(plan.String(), c.refuses) {
						b.Errorf("the plan is %s", plan)
					}
					found, err := client.Operations().Doctor(b.Context(), "orders", doctor.Examination{})
					if text := fmt.Sprint(found); err != nil || c.refuses != "" != strings.Contains(text, "RedriveAllowPolicy") || !strings.Contains(text, c.refuses) {
						b.Errorf("the doctor finds %s, %v", text, err)
					}
				}
				check()
				if err := b.begin(Config{}, "orders"); err != nil {
					b.Fatalf("it ended with %v", err)
				}
				for _, o := range b.Operations() {
					if o.Action == "CreateQueue" && o.Code != "" {
						b.Errorf("SQS refused to create %s: %s", o.Queue, o.Code)
					}
				}
				var redrives []string
				for _, queue := range []string{"orders", "orders-suspects"} {
					if b.Attributes(queue)["RedrivePolicy"] != "" {
						redrives = append(redrives, queue)
					}
				}
				if got := strings.Join(redrives, " "); got != c.wantRedrives {
					b.Errorf("a RedrivePolicy have %q, want %q", got, c.wantRedrives)
				}
				check()
			})
		})
	}
}

// docs/reference/sqs.md has the table of attributes.
func TestDocumentedAttributes(t *testing.T) {
	text, err := os.ReadFile("../../docs/reference/sqs.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range api.Attributes {
		need := "wished"
		if a.Needed {
			need = "needed"
		}
		if row := fmt.Sprintf("| `%s` | %s | %s |\n", a.Name, need, a.Without); !strings.Contains(string(text), row) {
			t.Errorf("docs/reference/sqs.md lacks the row %s", row)
		}
	}
}
